"""Templates of what belongs to a model: parameters, batches, contexts and availabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..anatomy.contextual import contexts_of
from ..anatomy.rows import ByRow
from ..gating.gate import Gate
from .templates import LARGEST, Rule, Whole, shown, values_like

__all__ = ["Grown", "Inputs", "availabilities_like", "batch_like", "contexts_like", "grown"]

MOST_STEPS = 10**12  # a thousand tasks of a billion steps
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class Inputs:
    """What a network learns from. Texts may have any length.

    Args:
        shape: The shape of one input.
        classes: The number of labels.
    """

    shape: tuple[int, ...]
    classes: int


@dataclass
class Grown:
    """A model as a state has it.

    Args:
        state: The template of each entry of its `state_dict`.
        parameters: Its parameters in order, without data.
        model: A copy of the model without data.
        contexts: How many contexts it has; None if it is the same in every context.
        inputs: What it learns from; None if unknown.
    """

    state: dict[str, Any]
    parameters: dict[str, Tensor]
    model: nn.Module = field(repr=False)
    contexts: int | None = None
    inputs: Inputs | None = None

    def earlier(self, name: str, contexts: int) -> Any:
        """The template of an entry saved earlier, when the model had at least that many contexts.

        A buffer with one row per context may have fewer rows then.
        """
        now = self.state[name]
        if not isinstance(now, Tensor) or now.dim() == 0 or name in self.parameters:
            return now

        def accepts(value: Any) -> bool:
            if not isinstance(value, Tensor) or value.dtype != now.dtype or value.dim() == 0:
                return False
            if value.shape[1:] != now.shape[1:]:
                return False
            fewer = len(now) == self.contexts and contexts <= len(value) < len(now)
            return len(value) == len(now) or fewer

        return Rule(accepts, f"be {shown(now)}, or have fewer rows")

    @property
    def context(self) -> Whole:
        """The template of a context's index."""
        return Whole(0, LARGEST if self.contexts is None else self.contexts - 1)


def grown(model: nn.Module, state: Any, inputs: Inputs | None = None) -> Grown:
    """A copy of the model without data, with as many contexts as the state has.

    Args:
        model: The model, which is left alone.
        state: The `state_dict` of such a model.
        inputs: What it learns from, if known.

    >>> model = nn.Linear(2, 3)
    >>> grown(model, model.state_dict()).state["weight"].shape
    torch.Size([3, 2])
    """
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise ValueError("model must be a dict of tensors")
    twin = _bare(model, {})
    try:
        twin.load_state_dict(
            {
                name: value.to("meta") if isinstance(value, Tensor) else value
                for name, value in state.items()
            }
        )
    except (RuntimeError, TypeError, AttributeError, IndexError) as reason:
        lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
        why = lines[-1].rstrip(".") if lines else "other tensors"
        raise ValueError(f"model does not fit ({why})") from reason
    like = {
        name: value if isinstance(value, Tensor) else values_like(value)
        for name, value in twin.state_dict().items()
    }
    gates = {m.contexts for m in twin.modules() if isinstance(m, Gate) and m.weight is not None}
    if len(gates) > 1:
        raise ValueError("the gates of model have different numbers of contexts")
    return Grown(like, dict(twin.named_parameters()), twin, contexts_of(twin), inputs)


def _bare(module: nn.Module, copies: dict[int, Any]) -> nn.Module:
    """A copy of the module without data and hooks.

    What is shared inside it stays shared, and nothing that grows is shared with the original.
    """
    if id(module) not in copies:
        twin = module.__class__.__new__(module.__class__)
        copies[id(module)] = twin
        held = dict(module.__dict__)
        twin.__dict__.update(
            {
                key: value.copy() if isinstance(value, list | dict | set) else value
                for key, value in held.items()
            }
        )
        if isinstance(module, ByRow):
            rows = {name: table.without_data() for name, table in module.kept.items()}
            twin.__dict__["kept"] = rows
        for kind in HOOKS:
            twin.__dict__[kind] = type(held[kind])()
        for kind in ("_parameters", "_buffers"):
            twin.__dict__[kind] = {
                name: _without_data(value, copies) for name, value in held[kind].items()
            }
        twin.__dict__["_modules"] = {
            name: child if child is None else _bare(child, copies)
            for name, child in held["_modules"].items()
        }
    found: nn.Module = copies[id(module)]
    return found


def _without_data(tensor: Tensor | None, copies: dict[int, Any]) -> Tensor | None:
    if tensor is None:
        return None
    if id(tensor) not in copies:
        meta = tensor.detach().to("meta")
        is_parameter = isinstance(tensor, nn.Parameter)
        copies[id(tensor)] = nn.Parameter(meta, tensor.requires_grad) if is_parameter else meta
    found: Tensor = copies[id(tensor)]
    return found


def batch_like(x: Any, y: Any, inputs: Inputs | None) -> tuple[Rule, Rule]:
    """The templates of a batch: inputs, as one tensor or a dict of them, and their labels.

    Args:
        x: The inputs.
        y: The labels.
        inputs: What the network learns from; None if unknown.
    """

    def are_labels(value: Any) -> bool:
        if not isinstance(value, Tensor) or value.dtype != torch.long or value.dim() != 1:
            return False
        if len(value) == 0 or value.min() < 0:
            return False
        return inputs is None or bool(value.max() < inputs.classes)

    def are_inputs(value: Any) -> bool:
        held = list(value.values()) if isinstance(value, Mapping) else [value]
        return bool(held) and are_labels(y) and all(_is_input(one, len(y), inputs) for one in held)

    return (
        Rule(are_inputs, "be inputs, one for every label"),
        Rule(are_labels, "be labels of existing classes"),
    )


def _is_input(value: Any, count: int, inputs: Inputs | None) -> bool:
    if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != count:
        return False
    if inputs is None:
        return True
    if value.is_floating_point():
        return value.dtype == torch.float32 and tuple(value.shape[1:]) == inputs.shape
    are_tokens = value.dtype == torch.long and value.dim() == 2 and len(inputs.shape) == 1
    return are_tokens and bool((value >= 0).all())


def availabilities_like(mine: Mapping[str, Tensor], state: Any, model: Grown) -> dict[str, Any]:
    """The template of availabilities, which may have been saved in one context per sample.

    Args:
        mine: The `state_dict` of an obstruction of the same model.
        state: The one to check; it may also have parameters that came with new contexts.
        model: The model as the state has it.
    """
    counts = Rule(
        lambda value: _are_counts(value, mine["advances"].dim(), MOST_STEPS),
        f"be counts of at most {MOST_STEPS} steps",
    )
    steps = Rule(
        lambda value: _are_counts(value, 0, MOST_STEPS), f"be a count of at most {MOST_STEPS} steps"
    )
    like: dict[str, Any] = {name: tensor.to("meta") for name, tensor in mine.items()}
    new = {
        f"{name}:{kind}": p.detach()
        for name, p in model.parameters.items()
        for kind in ("running", "applied")
    }
    like |= {key: new[key] for key in state if key in new and key not in like}
    like |= {"advances": counts, "steps": steps}
    if "pace" not in state:  # as in older states
        like.pop("pace")
    if "context" in state:
        like["context"] = contexts_like(model, state["context"])
    else:  # as in older states
        like.pop("context")
    return like


def contexts_like(model: Grown, value: Any) -> Rule:
    """The template of indices of contexts that a model has, in a tensor of the same rank."""
    high = LARGEST if model.contexts is None else model.contexts - 1
    dimensions = value.dim() if isinstance(value, Tensor) else 0
    return Rule(
        lambda found: _are_counts(found, dimensions) and bool((found <= high).all()),
        f"be contexts from 0 to {high}",
    )


def _are_counts(value: Any, dimensions: int, most: int = LARGEST) -> bool:
    if not isinstance(value, Tensor) or value.dtype != torch.long or value.dim() != dimensions:
        return False
    return bool(((value >= 0) & (value <= most)).all())
