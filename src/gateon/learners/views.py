"""Outputs of a learner's network in any of its contexts; learning goes on as if none were asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..anatomy.contextual import as_context, contexts_of
from ..anatomy.wiring import evaluating
from ..gating.contexts import mixes_contexts, showing
from ..methods.shared.calls import outputs
from ..parallel.batch import joint_outputs
from ..parallel.processes import Processes
from ..subnetwork.part import Part
from .work import Setup, Work, part_shown

__all__ = ["Precision", "Views", "computing"]

Precision = Literal["float32", "bf16"]
AT_ONCE = 4096  # samples in one pass over several contexts, so that memory stays small


def computing(precision: Precision, network: nn.Module) -> torch.autocast | nullcontext[None]:
    """Compute a network's outputs in a precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(next(network.parameters()).device.type, torch.bfloat16)


class Views:
    """Evaluates a learner's network.

    Args:
        setup: of the learner.
        processes: those that share every batch.
        precision: of the computation; outputs are in float32.
    """

    def __init__(self, setup: Setup, processes: Processes, precision: Precision) -> None:
        self.setup, self.processes, self.precision = setup, processes, precision
        self._part: Part | None = None  # the sub-network evaluated last

    def forget(self) -> None:
        """Drop the sub-network evaluated last, because the whole is about to change."""
        self._part = None

    @torch.no_grad()
    def outputs(self, work: Work, x: Any, context: int | None, *, compact: bool) -> Tensor:
        """Outputs for x, of which every process computes its share.

        Args:
            work: what is being trained.
            x: the inputs.
            context: to see them in; None for that of the work.
            compact: whether to evaluate the sub-network of another context.
        """
        with self._showing(work, context, compact=compact) as network:
            return joint_outputs(self.processes, network, x, self._outputs).cpu()

    @torch.no_grad()
    def outputs_under(
        self, work: Work, x: Any, contexts: Sequence[int], *, compact: bool
    ) -> Iterator[Tensor]:
        """Outputs for x in each of several contexts: see `Learner.outputs_under`."""
        if isinstance(x, Tensor) and not len(x):
            raise ValueError(
                "There are no inputs to recognise a context by: give at least one sample."
            )
        whole = self.setup.model
        if work.part is not None or not isinstance(x, Tensor) or not mixes_contexts(whole):
            yield from (self.outputs(work, x, as_context(k), compact=compact) for k in contexts)
            return
        at_once = max(1, AT_ONCE // len(x))  # contexts
        for some in (contexts[i : i + at_once] for i in range(0, len(contexts), at_once)):
            rows = torch.tensor(some).repeat_interleave(len(x))
            with showing(whole, rows), evaluating(whole):
                repeated = x.repeat(len(some), *[1] * (x.dim() - 1))
                yield from self._outputs(whole, repeated).cpu().split(len(x))

    @contextmanager
    def _showing(self, work: Work, context: int | None, *, compact: bool) -> Iterator[nn.Module]:
        """The network of a context in evaluation mode; everything is restored afterwards."""
        whole, known = self.setup.model, contexts_of(self.setup.model)
        if context is not None and known is not None and context >= known:
            raise IndexError(f"Context {context} does not exist: there are {known}.")
        if context is None or context == work.context:
            seen = context if work.part is None else None  # a sub-network has only its own
            with showing(work.network, seen), evaluating(work.network):
                yield work.network
            return
        work.write_back()
        if compact and (self._part is None or self._part.cut.context != context):
            self._part = part_shown(self.setup, context)
        if compact and self._part is not None:
            yield self._part.network
            return
        with showing(whole, context), evaluating(whole):
            yield whole

    def _outputs(self, network: nn.Module, x: Any) -> Tensor:
        with computing(self.precision, network):
            return outputs(network, x)
