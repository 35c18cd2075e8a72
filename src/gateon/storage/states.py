"""Whether a state fits the thing it is for: every tensor and value is compared with a template before anything is taken over.

A template is nested like the state. Its leaves say what may stand there:

- a tensor (of the device "meta", without numbers): one of the same shape and dtype;
- `Whole` or `Real`: a number; a text or None: just that;
- `Partly`: a table, some of whose entries may be missing; `Rule`: whatever a function accepts;
- `ANYTHING`: whatever is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..anatomy.contextual import contexts_of
from ..gating.gate import Gate

__all__ = [
    "ANYTHING",
    "COUNT",
    "FLAG",
    "GENERATOR",
    "NUMBER",
    "Grown",
    "Inputs",
    "Partly",
    "Rule",
    "Whole",
    "availabilities_like",
    "batch_like",
    "check",
    "check_fits",
    "contexts_like",
    "grown",
    "indices_like",
    "optimizer_like",
    "schedule_like",
    "values_like",
]

LARGEST = 1 << 53  # of a whole number: beyond it sums lose digits
MOST_STEPS = 10**12  # a thousand tasks of a billion
# sizes of a toy parameter, which tell what the sizes of its optimizer's state come from
PRIMES = (
    2,
    3,
    5,
    7,
    11,
    13,
    17,
    19,
)


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds, both included."""

    low: int = 0
    high: int = LARGEST


@dataclass(frozen=True)
class Partly:
    """A table of which entries may be missing: torch adds some from version to version, and knows what to put there."""

    entries: Mapping[str, Any]
    needed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """What a function accepts; `words` say what it should have been."""

    accepts: Callable[[Any], bool]
    words: str


COUNT = Whole()
NUMBER = Rule(lambda value: _is_number(value), "be a number")  # NaN and infinity too
FLAG = Rule(lambda value: isinstance(value, bool), "be true or false")
ANYTHING = Rule(lambda value: True, "be there")


def check(state: Any, like: Any, name: str = "state") -> None:
    """Raise ValueError, in one sentence, where a state is not like its template.

    >>> check({"step": 3, "weight": torch.ones(2)}, {"step": COUNT, "weight": torch.empty(2)})
    >>> check({"step": 3, "weight": torch.ones(2)}, {"step": COUNT, "weight": torch.empty(4)})
    Traceback (most recent call last):
    ...
    ValueError: weight must be float32 of shape (4,), and is float32 of shape (2,)
    """
    if isinstance(like, Tensor):
        _require(
            isinstance(state, Tensor) and (state.shape, state.dtype) == (like.shape, like.dtype),
            name,
            _shown(like),
            state,
        )
    elif isinstance(like, Whole):
        fits = type(state) is int and like.low <= state <= like.high
        _require(fits, name, f"a whole number from {like.low} to {like.high}", state)
    elif isinstance(like, Rule):
        if not like.accepts(state):
            raise ValueError(f"{name} must {like.words}")
    elif isinstance(like, Partly):
        _require(isinstance(state, Mapping), name, "a table", state)
        check(
            state,
            {
                key: value
                for key, value in like.entries.items()
                if key in state or key in like.needed
            },
            name,
        )
    elif isinstance(like, Mapping):
        _require(isinstance(state, Mapping), name, "a table", state)
        # Types too: True is the same key as 1.
        if {(type(key), key) for key in state} != {(type(key), key) for key in like}:
            raise ValueError(
                f"{name} must have {len(like)} entries by the names expected here, and has {len(state)} others"
            )
        for key, part in like.items():
            check(state[key], part, str(key) if name == "state" else f"{name} {key}")
    elif isinstance(like, list | tuple):
        _require(
            isinstance(state, list | tuple) and len(state) == len(like),
            name,
            f"a list of {len(like)}",
            state,
        )
        for n, (value, part) in enumerate(zip(state, like, strict=True)):
            check(value, part, f"{name} {n}")
    else:
        _require(type(state) is type(like) and state == like, name, repr(like), state)


def check_fits(state: Any, template: Callable[[Any], Any]) -> None:
    """Raise ValueError where a state is not like the template made for it; a state may be of any kind, or have any parts."""
    try:
        like = template(state)
    except (KeyError, TypeError, AttributeError, IndexError, RuntimeError, OverflowError) as reason:
        raise ValueError("its parts are not those expected here") from reason
    try:
        check(state, like)
    except OverflowError as reason:
        raise ValueError("it holds a number beyond all measure") from reason


def _require(holds: bool, name: str, wanted: str, found: Any) -> None:
    if not holds:
        raise ValueError(f"{name} must be {wanted}, and is {_shown(found)}")


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    if type(value) is int and abs(value) > LARGEST:  # Python refuses to write the largest out
        return "a number beyond all measure"
    return (
        f"{value!r:.40}"
        if isinstance(value, int | float | str | None)
        else f"a {type(value).__name__}"
    )


def values_like(values: Any, *, below_one: bool = False) -> Any:
    """Plain values of the same kinds: numbers that were not negative stay so, whole ones whole, texts as they are.

    Args:
        values: of a thing made with the same arguments.
        below_one: numbers below 1 stay below 1, but for learning rates.

    >>> check({"lr": 0.5, "steps": 7}, values_like({"lr": 0.1, "steps": 3}))
    """
    if isinstance(values, Mapping):
        return {
            key: values_like(
                value, below_one=below_one and not (isinstance(key, str) and "lr" in key)
            )
            for key, value in values.items()
        }
    if isinstance(values, list | tuple):
        return [values_like(value, below_one=below_one) for value in values]
    if isinstance(values, Tensor):
        return values.to("meta")
    if isinstance(values, bool):
        return FLAG
    if isinstance(values, int) and not below_one:
        return Whole(min(values, 1))
    if isinstance(values, int | float):
        return Rule(lambda value: _is_like(value, values, below_one), f"be a number like {values}")
    if values is None:
        return Rule(lambda value: value is None or _is_number(value), "be a number or nothing")
    return values


def _is_number(value: Any) -> bool:
    """A whole number must be one that a float can hold."""
    return type(value) is float or (type(value) is int and abs(value) <= LARGEST)


def _is_like(value: Any, number: float, below_one: bool) -> bool:
    if not _is_number(value):
        return False
    if not math.isfinite(number):
        return True
    return (
        math.isfinite(value)
        and (value >= 0 or number < 0)
        and (value < 1 or not below_one or number >= 1)
    )


def _is_generator(state: Any) -> bool:
    try:
        torch.Generator().set_state(state)
    except (TypeError, RuntimeError):
        return False
    return True


GENERATOR = Rule(_is_generator, "be the state of a random generator")


def indices_like(below: int) -> Rule:
    """Numbers of units, each once and in order."""

    def accepts(value: Any) -> bool:
        whole = (
            isinstance(value, Tensor)
            and value.dtype == torch.long
            and value.dim() == 1
            and len(value) > 0
        )
        return bool(whole and value[0] >= 0 and value[-1] < below and (value.diff() > 0).all())

    return Rule(accepts, f"number units from 0 to {below - 1} in order")


@dataclass(frozen=True)
class Inputs:
    """What a network learns from: the shape of one input, and how many labels there are. Texts have any length."""

    shape: tuple[int, ...]
    classes: int


def batch_like(x: Any, y: Any, inputs: Inputs | None) -> tuple[Rule, Rule]:
    """Inputs, one tensor or named ones, and a label for each; of the kind a network learns from, where that is known."""

    def are_labels(value: Any) -> bool:
        whole = (
            isinstance(value, Tensor)
            and value.dtype == torch.long
            and value.dim() == 1
            and len(value) > 0
        )
        return bool(whole and value.min() >= 0 and (inputs is None or value.max() < inputs.classes))

    def are_inputs(value: Any) -> bool:
        held = list(value.values()) if isinstance(value, Mapping) else [value]
        return bool(held) and are_labels(y) and all(_is_input(one, len(y), inputs) for one in held)

    return Rule(are_inputs, "be inputs, as many as labels"), Rule(
        are_labels, "be labels of classes there are"
    )


def _is_input(value: Any, count: int, inputs: Inputs | None) -> bool:
    if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != count:
        return False
    if inputs is None:
        return True
    if value.is_floating_point():
        return value.dtype == torch.float32 and tuple(value.shape[1:]) == inputs.shape
    return (
        value.dtype == torch.long
        and value.dim() == 2
        and len(inputs.shape) == 1
        and bool((value >= 0).all())
    )


@dataclass
class Grown:
    """A model as a state has it: what each entry must look like, its parameters in order, and how many contexts it has."""

    state: dict[str, Any]
    parameters: dict[str, Tensor]
    model: nn.Module = field(repr=False)
    contexts: int | None = None  # None: it is the same in every context
    inputs: Inputs | None = None  # None: not known

    def earlier(self, name: str, contexts: int) -> Any:
        """An entry as it may have been with so many contexts or more: a buffer with a row for each had fewer then."""
        now = self.state[name]
        if not isinstance(now, Tensor) or now.dim() == 0 or name in self.parameters:
            return now

        def accepts(value: Any) -> bool:
            if (
                not isinstance(value, Tensor)
                or value.dtype != now.dtype
                or value.shape[1:] != now.shape[1:]
                or value.dim() == 0
            ):
                return False
            return len(value) == len(now) or (
                len(now) == self.contexts and contexts <= len(value) < len(now)
            )

        return Rule(accepts, f"be {_shown(now)}, or have fewer rows")

    @property
    def context(self) -> Whole:
        """The number of a context it has."""
        return Whole(0, LARGEST if self.contexts is None else self.contexts - 1)


def grown(model: nn.Module, state: Any, inputs: Inputs | None = None) -> Grown:
    """The model with as many contexts as the state has, without numbers; the model itself is left alone.

    >>> model = nn.Linear(2, 3)
    >>> grown(model, model.state_dict()).state["weight"].shape
    torch.Size([3, 2])
    """
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise ValueError("model must be a table of tensors")
    twin = _bare(model, {})
    try:
        twin.load_state_dict(
            {
                name: value.to("meta") if isinstance(value, Tensor) else value
                for name, value in state.items()
            }
        )
    except (RuntimeError, TypeError, AttributeError, IndexError) as reason:
        told = [line.strip() for line in str(reason).splitlines() if line.strip()]
        raise ValueError(
            f"model does not fit ({told[-1].rstrip('.') if told else 'other tensors'})"
        ) from reason
    like = {
        name: value if isinstance(value, Tensor) else values_like(value)
        for name, value in twin.state_dict().items()
    }
    gates = {len(m.weight) for m in twin.modules() if isinstance(m, Gate) and m.weight is not None}
    if len(gates) > 1:
        raise ValueError("model has gates of different numbers of contexts")
    return Grown(like, dict(twin.named_parameters()), twin, contexts_of(twin), inputs)


def _bare(module: nn.Module, known: dict[int, Any]) -> nn.Module:
    """The module without numbers and hooks; what is shared in it stays shared, and what grows in it does not grow in the other."""
    if id(module) not in known:
        twin = module.__class__.__new__(module.__class__)
        known[id(module)] = twin
        held = dict(module.__dict__)
        twin.__dict__.update(
            {
                key: value.copy() if isinstance(value, list | dict | set) else value
                for key, value in held.items()
            }
        )
        for kind in (
            "_forward_hooks",
            "_forward_pre_hooks",
            "_backward_hooks",
            "_backward_pre_hooks",
        ):
            twin.__dict__[kind] = type(held[kind])()
        twin.__dict__["_parameters"] = {
            name: _without_numbers(value, known) for name, value in held["_parameters"].items()
        }
        twin.__dict__["_buffers"] = {
            name: _without_numbers(value, known) for name, value in held["_buffers"].items()
        }
        children = {
            name: child if child is None else _bare(child, known)
            for name, child in held["_modules"].items()
        }
        twin.__dict__["_modules"] = children
    found: nn.Module = known[id(module)]
    return found


def _without_numbers(tensor: Tensor | None, known: dict[int, Any]) -> Tensor | None:
    if tensor is None:
        return None
    if id(tensor) not in known:
        meta = tensor.detach().to("meta")
        known[id(tensor)] = (
            nn.Parameter(meta, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else meta
        )
    found: Tensor = known[id(tensor)]
    return found


def availabilities_like(mine: Mapping[str, Tensor], state: Any, model: Grown) -> dict[str, Any]:
    """What availabilities look like: as mine, and those of parameters that came with new contexts.

    They may have been saved in one context for each sample.
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
    if "context" in state:
        like["context"] = contexts_like(model, state["context"])
    else:  # as in older states
        like.pop("context")
    return like


def contexts_like(model: Grown, value: Any) -> Rule:
    """Indices of contexts that a model has, of whatever shape they are."""
    high = LARGEST if model.contexts is None else model.contexts - 1
    dimensions = value.dim() if isinstance(value, Tensor) else 0
    return Rule(
        lambda found: _are_counts(found, dimensions) and bool((found <= high).all()),
        f"be contexts from 0 to {high}",
    )


def _are_counts(value: Any, dimensions: int, most: int = LARGEST) -> bool:
    whole = isinstance(value, Tensor) and value.dtype == torch.long and value.dim() == dimensions
    return bool(whole and ((value >= 0) & (value <= most)).all())


def optimizer_like(
    make: Callable[[Any], Optimizer],
    parameters: Sequence[Tensor],
    groups: Sequence[Mapping[str, Any]],
    state: Any,
) -> dict[str, Any]:
    """What the state of an optimizer of these parameters looks like, told by a toy of it that has made one step.

    Args:
        make: builds the optimizer.
        parameters: of which only shapes and dtypes count.
        groups: of an optimizer made in the same way, with what a schedule keeps there.
        state: which parameters have something in it.
    """
    # As large as the parameters, of one number each: an optimizer may group them by size.
    stand_ins = [
        nn.Parameter(torch.zeros((), dtype=p.dtype).expand(p.shape), p.requires_grad)
        for p in parameters
    ]
    toys = [
        nn.Parameter(torch.ones(PRIMES[: p.dim()], dtype=p.dtype), p.requires_grad)
        for p in parameters
    ]
    planned, toy = make(stand_ins), make(toys)
    if _sizes(planned) != _sizes(toy):
        toy, by_stand_in = (
            planned,
            {id(one): other for one, other in zip(stand_ins, toys, strict=True)},
        )
        for group in toy.param_groups:
            group["params"] = [by_stand_in.get(id(p), p) for p in group["params"]]
    if {id(p) for group in toy.param_groups for p in group["params"]} <= {
        id(p) for p in toys
    }:  # and not what the factory holds
        for p in toys:
            p.grad = torch.ones_like(p) if p.requires_grad else None
        toy.step()
    shapes = {id(t): tuple(p.shape) for t, p in zip(toys, parameters, strict=True)}
    ordered = [
        shapes.get(id(p), tuple(p.shape)) for group in toy.param_groups for p in group["params"]
    ]
    stepped, held = toy.state_dict(), state["state"]
    if not isinstance(held, Mapping) or not all(
        type(n) is int and 0 <= n < len(ordered) for n in held
    ):
        raise ValueError("optimizer state must be a table by the numbers of parameters")
    entries = {
        n: {
            key: _entry_like(value, ordered[n])
            for key, value in stepped["state"].get(n, {}).items()
        }
        for n in held
    }
    numbered = [group["params"] for group in stepped["param_groups"]]
    return {
        "state": entries,
        "param_groups": [_group_like(group, n) for group, n in zip(groups, numbered, strict=True)],
    }


def _sizes(optimizer: Optimizer) -> list[int]:
    return [len(group["params"]) for group in optimizer.param_groups]


def schedule_like(schedule: Any) -> Any:
    """What the state of a schedule made with the same arguments looks like; None for none."""
    if schedule is None:
        return None
    like = values_like(schedule.state_dict())
    return Partly(
        {"verbose": ANYTHING} | like, tuple(name for name in like if not name.startswith("_"))
    )


def _group_like(group: Mapping[str, Any], numbers: list[int]) -> Partly:
    """The same settings, but for rates that a schedule changes; how the steps are computed decides nothing."""
    real = {
        key: float(value) if type(value) is int else value
        for key, value in group.items()
        if key != "params"
    }
    flags = {key: value for key, value in real.items() if value is None or isinstance(value, bool)}
    ways = {
        key: Rule(partial(_is_either, flags[key]), "be as it was or nothing")
        for key in ("fused", "foreach")
        if key in flags
    }
    return Partly(
        values_like(real, below_one=True) | flags | ways | {"params": numbers}, ("params", "lr")
    )


def _is_either(wanted: Any, value: Any) -> bool:
    return value is None or value is wanted


def _entry_like(value: Any, shape: tuple[int, ...]) -> Any:
    """An entry of the toy's, with the sizes of the parameter in the place of the toy's."""
    if not isinstance(value, Tensor):
        return values_like(value)
    if value.dim() == 0:
        kind = value.dtype
        return Rule(lambda found: _is_count(found, kind), "be one number of at least 0")
    by_prime = dict(zip(PRIMES, shape, strict=False))
    return torch.empty(
        [by_prime.get(size, size) for size in value.shape], dtype=value.dtype, device="meta"
    )


def _is_count(found: Any, kind: torch.dtype) -> bool:
    return (
        isinstance(found, Tensor)
        and found.dim() == 0
        and found.dtype == kind
        and bool(found >= 0)
        and math.isfinite(found)
    )
