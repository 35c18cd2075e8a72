"""Saving and loading gated models: weights as transformers saves them, the rest beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn

from ...anatomy.adapters import has_adapters, is_peft
from ...anatomy.kinds import inputs_of, units_of
from ...anatomy.rows import fetch_rows
from ...anatomy.shards import full, is_sharded
from ...anatomy.sites import Site
from ...availability.obstruct import Obstruction, Rules, obstruction_of
from ...gating.attach import attach as attach_anywhere
from ...gating.gates import Gates, gates_of
from ...networks.pretrained import with_weights
from ...networks.text import TextClassifier
from ...parallel.processes import current
from ...storage import checkpoint
from ...storage.files import is_regular, printable
from ...storage.states import Whole, availabilities_like, check, check_fits, grown
from .card import card_text, write_card
from .template import state_like

__all__ = [
    "FILE",
    "Loaded",
    "from_pretrained",
    "gate_weights",
    "is_saveable",
    "load_gates",
    "save_gates",
    "save_pretrained",
]

FILE = "gateon.safetensors"  # gates and availabilities, beside the weights
# What a file that does not fit its model may raise.
UNFIT = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
    AssertionError,
)


class Loaded(NamedTuple):
    """What `from_pretrained` returns.

    `handle.follow(optimizer)` continues the obstruction; it is None if there was none.
    """

    model: Any
    gates: Gates
    handle: Obstruction | None


def save_pretrained(
    model: nn.Module, directory: str | Path, handle: Obstruction | None = None
) -> None:
    """Save the weights as transformers does, and gates and availabilities in one file beside them.

    The weights alone are an ordinary model of transformers, without gates. For a model with
    adapters PEFT saves the adapters. README.md, the model card, tells of the contexts.

    Args:
        model: A gated model of transformers or PEFT, or a gated `text_classifier`.
        directory: Where to save it; created if it does not exist. Of a sharded model all processes
            call this, and the first one writes.
        handle: What `obstruct` returned; None to look it up.
    """
    gates = gates_of(model)
    if gates is None:
        raise ValueError(
            "This model has no gates: attach them first, or use model.save_pretrained."
        )
    saved: Any = gates.model.encoder if isinstance(gates.model, TextClassifier) else gates.model
    if not is_saveable(saved):
        raise ValueError(
            f"{type(model).__name__} is not a model of transformers: "
            "save model.state_dict() and handle.state_dict() instead."
        )
    # Of a sharded model all processes join the pieces, and the first one keeps and writes them.
    writes = not is_sharded_model(model) or current().is_first
    whole = ((k, full(v)) for k, v in saved.state_dict().items() if "context_gate" not in k)
    weights = {k: v for k, v in whole if writes}
    if writes:
        saved.save_pretrained(directory, state_dict=weights)
    save_gates(model, directory, handle, writes=writes)


def is_saveable(model: Any) -> bool:
    """Whether the model has a `save_pretrained` of transformers or PEFT."""
    return isinstance(model, transformers.PreTrainedModel) or is_peft(model, "PeftModel")


def is_sharded_model(model: nn.Module) -> bool:
    """Whether every process holds a piece of it."""
    return any(is_sharded(p) for p in model.parameters())


def save_gates(
    model: nn.Module,
    directory: str | Path,
    handle: Obstruction | None = None,
    *,
    writes: bool = True,
) -> None:
    """Save gates, availabilities and the head of a `text_classifier` as one file, and a model card.

    Args:
        model: A gated model.
        directory: Where its weights are.
        handle: What `obstruct` returned; None to look it up.
        writes: False in processes that only join what they hold of a sharded model.
    """
    gates = gates_of(model)
    assert gates is not None
    handle, model = handle or obstruction_of(gates), gates.model
    state = {
        "gates": gate_weights(gates),
        "sites": [asdict(site) for site in gates.sites.values()],
        "arguments": gates.arguments,
        "context": gates.context if isinstance(gates.context, int) else gates.context.tolist(),
        "rules": None if handle is None else asdict(handle.rules),
        "availability": None if handle is None else handle.state_dict(),
        "classifier": None,
    }
    if isinstance(model, TextClassifier):
        weights = model.head.state_dict()
        state["classifier"] = {
            "pad": model.pad,
            "separator": model.separator,
            "pooling": model.pooling,
            "head": {k: full(v) for k, v in weights.items() if "context_gate" not in k},
            "dropout": model.dropout.p,
        }
    card = card_text(gates, handle)
    if writes:
        checkpoint.save(state, Path(directory) / FILE)
        write_card(Path(directory), model, card)


def from_pretrained(directory: str | Path, model: nn.Module | None = None) -> Loaded:
    """Load what `save_pretrained` saved, bit for bit, in evaluation mode as transformers does.

    Args:
        directory: That of `save_pretrained`, or a checkpoint of Trainer with `GateONCallback`.
        model: The model that was adapted, if the directory holds only adapters of PEFT; or this
            model with its adapters and without gates.

    Returns:
        The model, its gates and its availabilities.
    """
    path = Path(directory) / FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{directory} has no {FILE}: save the model with gateon.hf.save_pretrained."
        )
    state = checkpoint.load(path)
    with _naming(path):
        check_fits(state, state_like)
    classifier = state["classifier"]
    if model is None:
        model = _load_model(Path(directory), partly=classifier is not None)
    elif is_adapter(Path(directory)) and not has_adapters(model):
        model = _adapted(model, Path(directory))
    with _naming(path):
        if classifier is not None and not isinstance(model, TextClassifier):
            model = _classifier(model, classifier)
        gates = _regated(model, state)
        try:
            return Loaded(model, gates, _reobstructed(gates, state["rules"], state["availability"]))
        except BaseException:
            gates.detach()
            raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong with a file into a ValueError that names the file."""
    try:
        yield
    except UNFIT as reason:
        why = printable(reason).rstrip(".")
        raise ValueError(
            f"{path} does not fit ({why}): save it again with gateon.hf.save_pretrained."
        ) from reason


def _regated(model: Any, state: Mapping[str, Any]) -> Gates:
    """Attach the gates of a file; a model that they do not fit is left as it was."""
    weights, sites = state["gates"], [_site(values) for values in state["sites"]]
    room = sum(p.numel() for p in model.parameters())
    for site in sites:
        check(site.units, Whole(0, room), f"units of site {site.name}")
        if site.gated and site.name in weights:
            units = weights[site.name].shape[1]
            check(units, Whole(site.units, site.units), f"units of gate {site.name}")
        for name in (site.place, *site.owns, *site.readers):
            model.get_submodule(name)
        for name in site.columns:
            inputs = inputs_of(model.get_submodule(name))
            check(inputs, Whole(site.units, site.units), f"inputs of {name}")
            made = units_of(model.get_submodule(site.name))
            check(made, Whole(site.units, site.units), f"ranks of {site.name}")
    contexts = len(next(iter(weights.values())))
    gates = attach_anywhere(model, contexts, sites=sites, **state["arguments"])
    try:
        load_gates(gates, weights)
        gates.switch(state["context"])
    except BaseException:
        gates.detach()
        raise
    return gates


def _reobstructed(
    gates: Gates, rules: Mapping[str, Any] | None, availability: Any
) -> Obstruction | None:
    """Restore the availabilities of a file, for a model that has its gates."""
    if rules is None:
        return None
    handle = Obstruction(gates, Rules(**{name: _as_tuples(value) for name, value in rules.items()}))
    known = grown(gates.model, gates.model.state_dict())
    check_fits(availability, lambda held: availabilities_like(handle.state_dict(), held, known))
    handle.load_state_dict(availability)
    return handle


def _as_tuples(value: Any) -> Any:
    """Turn lists back into the tuples they were before JSON."""
    if isinstance(value, Mapping):
        return {name: _as_tuples(one) for name, one in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _load_model(directory: Path, *, partly: bool) -> Any:
    """Load the model whose weights are in a directory.

    Args:
        directory: The directory.
        partly: Whether weights may be missing, as for the encoder of a `text_classifier`.
    """
    for file in directory.iterdir():
        if not file.is_dir() and not is_regular(file):
            raise ValueError(f"{file} is not a regular file: remove it.")
    if is_adapter(directory):
        raise ValueError(
            f"{directory} holds adapters only: pass model=, the model that was adapted."
        )
    config = transformers.AutoConfig.from_pretrained(directory)
    kind = getattr(transformers, (config.architectures or ["AutoModel"])[0], None)
    if kind is None:
        raise ValueError(
            f"{directory} holds a {config.architectures[0]}, which is unknown to this version of "
            "transformers: update it."
        )
    model, report = with_weights(kind, directory, {"dtype": "auto", "output_loading_info": True})
    if (missing := sorted(report["missing_keys"])) and not partly:
        raise ValueError(
            f"The weights in {directory} are incomplete, {missing[0]!r} is missing: "
            "save the model again."
        )
    return model


def is_adapter(directory: Path) -> bool:
    """Whether a directory holds adapters of PEFT, and not the model they belong to."""
    return (directory / "adapter_config.json").is_file()


def _adapted(model: nn.Module, directory: Path) -> Any:
    """A model with the adapters of a directory around its layers, to be trained or used."""
    import peft

    if not (directory / "adapter_model.safetensors").is_file():
        raise FileNotFoundError(
            f"{directory} has no adapter_model.safetensors, and other files can run code: "
            "save the model again with gateon.hf.save_pretrained."
        )
    return peft.PeftModel.from_pretrained(model, directory, is_trainable=True).eval()


def _classifier(encoder: Any, held: Mapping[str, Any]) -> TextClassifier:
    """The `text_classifier` that an encoder was part of."""
    head = held["head"]
    settings = {name: value for name, value in held.items() if name != "head"}
    model = TextClassifier(encoder, len(head["weight"]), **settings)
    model.head.load_state_dict(head)
    return model.to(head["weight"].dtype).eval()


def _site(values: Mapping[str, Any]) -> Site:
    return Site(**{name: _as_tuples(value) for name, value in values.items()})


def gate_weights(gates: Gates) -> dict[str, Tensor]:
    """The weight of every gate, by site."""
    return {
        name: gate.rows_of("weight")
        for name, gate in gates.gates.items()
        if gate.weight is not None
    }


@torch.no_grad()
def load_gates(gates: Gates, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into the gates; ValueError if they do not fit."""
    check(weights, gate_weights(gates), "gates")
    for name, weight in weights.items():
        gates.gates[name].rows_of("weight").copy_(weight)
    fetch_rows(gates.model)
    gates.show(gates.context)
