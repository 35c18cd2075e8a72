"""How the other methods call a model besides training it: in evaluation, in another context, watching the batch at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...anatomy.contextual import Contextual, show_context
from ...anatomy.wiring import evaluating
from ...gating.gate import Gate

__all__ = [
    "LastBatch",
    "check_seed",
    "check_strength",
    "context_of",
    "evaluating",
    "outputs",
    "showing",
    "trainable",
]


def outputs(model: nn.Module, x: Any) -> Tensor:
    """The model's outputs in float32 for one tensor, or for named ones.

    >>> outputs(nn.Linear(3, 2), torch.zeros(4, 3)).shape
    torch.Size([4, 2])
    """
    device = next(model.parameters()).device
    output = (
        model(**{name: value.to(device) for name, value in x.items()})
        if isinstance(x, Mapping)
        else model(x.to(device))
    )
    logits: Tensor = getattr(output, "logits", output)
    return logits.float()


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters a method looks after, by name.

    Those of gates are not among them: there is a row for every context, and no context moves
    another's.

    >>> list(trainable(nn.Linear(3, 2)))
    ['weight', 'bias']
    """
    own = {id(gate.weight) for gate in model.modules() if isinstance(gate, Gate)}
    return {name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in own}


def context_of(model: nn.Module) -> int | None:
    """The context its modules with something for every context are switched to; None where it has no such module.

    >>> context_of(nn.Linear(2, 2)) is None
    True
    """
    return next(
        (module.context for module in model.modules() if isinstance(module, Contextual)), None
    )


@contextmanager
def showing(model: nn.Module, context: int | None) -> Iterator[None]:
    """The model in another context; None: as it is."""
    before = context_of(model)
    if context is None or before is None or context == before:
        yield
        return
    show_context(model, context)
    try:
        yield
    finally:
        show_context(model, before)


class LastBatch:
    """The inputs and outputs of the last forward pass a model was trained with.

    `Method.penalty` is given the model only; this hook, put on it in `prepare`, holds the rest. It
    is no part of any state.

    >>> model = nn.Linear(3, 2)
    >>> last = LastBatch(model)
    >>> output = model(torch.zeros(4, 3))
    >>> last.size, last.output is output
    (4, True)
    """

    def __init__(self, model: nn.Module) -> None:
        self.x: Any = None
        self.output: Any = None
        self.paused = False

        def keep(
            module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], output: Any
        ) -> None:
            # A copy of the model carries this hook too; what it is called with is none of our
            # business.
            if module is model and module.training and torch.is_grad_enabled() and not self.paused:
                self.x, self.output = named or args[0], output

        model.register_forward_hook(keep, with_kwargs=True)

    @property
    def size(self) -> int:
        """How many samples it has."""
        return len(next(iter(self.x.values())) if isinstance(self.x, Mapping) else self.x)

    @property
    def logits(self) -> Tensor:
        """The outputs in float32, with their graph."""
        logits: Tensor = getattr(self.output, "logits", self.output)
        return logits.float()

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """Keep what there is during forward passes of the method's own."""
        self.paused = True
        try:
            yield
        finally:
            self.paused = False

    def forget(self) -> None:
        """Let the memory go."""
        self.x = self.output = None


def check_seed(seed: int) -> None:
    """Seeds are whole numbers from 0 on.

    >>> check_seed(-1)
    Traceback (most recent call last):
    ...
    ValueError: seed is a whole number of at least 0, not -1.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed is a whole number of at least 0, not {seed!r}.")


def check_strength(name: str, value: float) -> None:
    """A number that may not be negative.

    >>> check_strength("strength", -1.0)
    Traceback (most recent call last):
    ...
    ValueError: strength is a finite number of at least 0, not -1.0.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value < 0
    ):
        raise ValueError(f"{name} is a finite number of at least 0, not {value!r}.")
