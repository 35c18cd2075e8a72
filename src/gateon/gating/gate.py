"""The gate of one place, and the relevance it observes there.

x = sigma(v_k) f(Wx), sigma(v) = tanh(max(v, 0)) (eq. multiplicative).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..anatomy.rows import ByRow, replace_data
from ..anatomy.shards import check_unsharded, is_sharded
from ..anatomy.sites import Site
from . import units
from .growth import mark_grown, note_backward, pad_gradient
from .reads import each_sample, product

__all__ = ["Gate", "Measure"]

Measure = Literal["gradient", "activity"] | Callable[[Tensor, Tensor], Tensor]


class Gate(ByRow):
    """Multiplies the units of one place by the gains of a context, and observes their relevance.

    Args:
        site: the place it serves.
        rows: v of the first contexts, (contexts, units); None for a place that is observed but not
            gated.
        power: gain = sigma(v) ** power; 1 in the paper, 2 in the released code.
        around_one: sigma(v) = 1 + tanh(v) instead, which is exactly 1 at v = 0 and has a slope
            there: for pretrained networks.
        steepness: v is multiplied by it first, so that gates can learn faster than the weights of
            the same optimizer.
        batch_dim: which dimension of the activity counts samples.
        silences: the gates, at most one, whose closed units are silenced here too, since a norm in
            between may turn zeros into something else.
        draw: v of a new context by its number and how likely each unit is to be open.
    """

    per_sample = True
    by_row = ("weight",)

    def __init__(
        self,
        site: Site,
        rows: Tensor | None,
        power: int = 1,
        batch_dim: int = 0,
        *,
        around_one: bool = False,
        steepness: float = 1.0,
        silences: tuple[Gate, ...] = (),
        draw: Callable[[int, Tensor | None], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.silences, self.draw = silences, draw  # in a tuple, which registers no submodule
        self.site, self.power, self.batch_dim, self.around_one, self.steepness = (
            site,
            power,
            batch_dim,
            around_one,
            steepness,
        )
        self.weight = None if rows is None else nn.Parameter(rows)
        self.off = False
        self.fired = False
        # Plain attributes, not buffers: buffers would be saved, and broadcast by data-parallel
        # wrappers.
        self.context = torch.zeros(1, dtype=torch.long)
        self.tap: Tensor | None = None
        self.measure: Measure = "gradient"
        self.of_pass: Tensor | None = None  # the gains that all readers of one pass share

    def forward(self, x: Tensor) -> Tensor:
        """x times the active gains."""
        if not torch.compiler.is_compiling() and not self.fired:
            self.fired = True
        if self.site.at_readers:
            self.of_pass = None
        return self.multiply(x, self.site.dim, flattened=self.site.in_front)

    def multiply(self, x: Tensor, dim: int, *, flattened: bool) -> Tensor:
        """x, whose units are along `dim`, times the active gains."""
        units = self.site.units
        if flattened and x.shape[dim] != units:
            # The reader sees every unit at several positions, flattened.
            return self._apply_gains(x.unflatten(dim, (units, -1)), dim - 1).flatten(dim - 1)
        return self._apply_gains(x, dim)

    @property
    def width(self) -> int:
        """How many units are computed: all of them here."""
        return self.site.units

    def computed(self, values: Tensor) -> Tensor:
        """Of values for each unit, along the last dimension, those of the units computed."""
        return values

    @property
    def contexts(self) -> int | None:
        """How many have a row; None for a place that is observed but not gated."""
        return None if self.weight is None else len(self.kept.get("weight", self.weight))

    def show(self, context: int | Tensor) -> None:
        """Use the gains of this context, or of one for each sample."""
        rows = torch.as_tensor(self.at_work(context), dtype=torch.long).reshape(-1)
        self.context = rows.to((self.context if self.weight is None else self.weight).device)

    def add_context(self, likely: Tensor | None = None) -> None:
        """Add a row, started like the others, also in the middle of training."""
        assert self.weight is not None and self.draw is not None
        if self.kept:
            rows = self.kept["weight"]
            rows.add(self.draw(len(rows), likely))
            return
        check_unsharded(
            self, "no context can be added to it: attach(contexts=...) with all of them"
        )
        before = self.weight.data
        row = self.draw(len(before), likely).to(before)
        replace_data(self.weight, torch.cat([before, row[None]]))
        mark_grown(self.weight)
        if self.weight.grad is not None:
            pad_gradient(self.weight)

    def gain(self, context: Tensor | None = None) -> Tensor:
        """sigma(v_k) ** power of one context or of several, (contexts, units)."""
        assert self.weight is not None
        rows = self.context if context is None else context.to(self.weight.device)
        # A gate with one row, as in every sub-network, needs no selecting.
        v = (
            self.rows_of("weight")[rows.cpu()].to(self.weight.device)
            if (self.kept or is_sharded(self.weight)) and context is not None
            else self.weight
            if self.weight.shape[0] == rows.shape[0] == 1
            else self.weight.index_select(0, rows)
        )
        if self.steepness != 1:
            v = v * self.steepness
        sigma = 1 + torch.tanh(v) if self.around_one else torch.tanh(torch.relu(v))
        return sigma if self.power == 1 else sigma**self.power

    def gain_like(self, x: Tensor, dim: int | None = None) -> Tensor:
        """The active gains, shaped to multiply an activity x whose units are along `dim`."""
        dim, batch = (self.site.dim if dim is None else dim) % x.dim(), self.batch_dim % x.dim()
        gain = self.computed(self.gain())
        gain, rows = gain if gain.dtype == x.dtype else gain.to(x.dtype), gain.shape[0]
        if rows == dim == x.dim() - 1 == 1:  # has its shape already
            return gain
        self._check_rows(rows, x, dim, batch)
        shape = [1] * x.dim()
        if rows > 1:
            shape[batch] = rows
            gain = gain if batch < dim else gain.T
        shape[dim] = self.width
        return gain.reshape(shape)

    def end_gradient(self) -> None:
        """Drop the gradient of the row at work, which is about to be put away, if it was used."""
        if self.weight is None or not self.kept or self.weight.grad is None:
            return
        if self.kept["weight"].unused:
            raise ValueError(
                f"The gate of site {self.site.name!r} has a gradient that no step has used, and "
                "its row is about to be put away: step, or zero_grad(), before a switch."
            )
        self.weight.grad = None

    def observe(self, measure: Measure, tap: Tensor) -> None:
        """Add the sum of mu over samples to the gradient of `tap`, (units,), in every backward."""
        self.measure, self.tap = measure, tap

    def stop_observing(self) -> None:
        """Stop adding relevance."""
        self.tap = None

    def _apply_gains(self, x: Tensor, dim: int) -> Tensor:
        dim, batch = dim % x.dim(), self.batch_dim % x.dim()
        if x.shape[dim] != self.width:
            raise ValueError(
                f"Site {self.site.name!r} has {self.site.units} units, but dimension {dim} of its "
                f"activity {tuple(x.shape)} does not: name the site with the layers that make "
                "these units."
            )
        summed = self.site.at_readers and self.tap is not None and self.measure == "gradient"
        if summed and torch.is_grad_enabled() and not _is_transformed():
            return product(x, self._gains_of_pass(x, dim, batch), dim, batch)
        for gate in self.silences:
            x = x if gate.off else x * (gate.gain_like(x, dim) > 0)
        gain = None if self.weight is None or self.off else self.gain_like(x, dim)
        if self.kept and self.weight is not None and gain is not None and not _is_transformed():
            note_backward(self.weight, gain, self.kept["weight"])
        unobserved = self.tap is None and (gain is None or _is_plain(x))
        if not torch.is_grad_enabled() or unobserved or _is_transformed():
            return x if gain is None else x * gain
        self._bring_tap(x.device)
        if gain is None:
            gain = x.new_ones([1] * x.dim())
        tap = None if self.tap is None else self.computed(self.tap)
        observed: Tensor = _ObservedProduct.apply(  # type: ignore[no-untyped-call]
            x, gain, tap, self.measure, dim, batch
        )
        return observed

    def _gains_of_pass(self, x: Tensor, dim: int, batch: int) -> Tensor:
        """The gains of every sample, (samples, units), one tensor for all readers of a pass."""
        samples = 1 if batch == dim else x.shape[batch]
        if self.of_pass is None or len(self.of_pass) != samples:
            assert self.weight is not None and self.tap is not None
            gain = self.weight.new_ones(1, self.site.units) if self.off else self.gain()
            self._check_rows(len(gain), x, dim, batch)
            self._bring_tap(x.device)
            if self.kept and not self.off:
                note_backward(self.weight, gain, self.kept["weight"])
            self.of_pass = each_sample(gain, self.tap, samples)
        return self.of_pass

    def _check_rows(self, rows: int, x: Tensor, dim: int, batch: int) -> None:
        if rows not in (1, x.shape[batch]) or (rows > 1 and batch == dim):
            times = x.shape[batch] // rows if x.shape[batch] % rows == 0 else 0
            beams = f" and give it {times} times if a sample is generated {times} times"
            raise ValueError(
                f"{rows} contexts were given for a batch of {x.shape[batch]} at site "
                f"{self.site.name!r}: switch to one context, or to one for each sample"
                f"{beams if times > 1 and batch != dim else ''}."
            )

    def _bring_tap(self, device: torch.device) -> None:
        if self.tap is not None and self.tap.device != device:
            self.tap.data = self.tap.data.to(device)

    def _apply(self, fn: Any, recurse: bool = True) -> Gate:
        super()._apply(fn, recurse)
        if self.weight is not None:
            self.context = self.context.to(self.weight.device)
            if self.tap is not None:
                self.tap.data = self.tap.data.to(self.weight.device)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """A copy shares no pass with this one."""
        return self.__dict__ | {"of_pass": None}

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"units={self.site.units}" + (
            "" if self.weight is None else f", contexts={self.contexts}"
        )


class _ObservedProduct(torch.autograd.Function):
    """x * gain; the gradient of `tap` is the sum of the relevance over samples.

    As a gradient it comes out of the one backward pass, adds up over micro-batches, and survives
    torch.compile.
    """

    # No setup_context: with one, torch inspects the signature anew at every call, which small
    # networks notice.
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor,
        tap: Tensor | None,
        measure: Measure,
        dim: int,
        batch: int,
    ) -> Tensor:
        ctx.measure, ctx.dim, ctx.batch = measure, dim, batch
        ctx.save_for_backward(x, gain)
        return x * gain

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, gain = ctx.saved_tensors
        dim, batch = ctx.dim, ctx.batch
        to_x = gradient * gain if ctx.needs_input_grad[0] else None
        rows = _as_rows(gain, dim, batch)
        # dL/dg_i per sample; times the gain it is the unit's contribution dL/dx_i x_i of the gated
        # activity.
        if rows.shape[0] == 1:
            to_gain, squares = _sums(gradient, x, dim, batch, squared=ctx.needs_input_grad[2])
            observed = None if squares is None else squares * rows[0].square()
        else:
            to_gain = units.contributions(gradient, x, dim, batch)
            observed = (to_gain * rows).square().sum(0)
            to_gain = to_gain if batch < dim else to_gain.T
        if callable(ctx.measure) and ctx.needs_input_grad[2]:
            samples = (units.as_samples(part, dim, batch) for part in (gradient, x * gain))
            observed = ctx.measure(*samples)
        elif ctx.measure == "activity" and ctx.needs_input_grad[2]:
            observed = units.activity(x * gain, dim, batch) * (
                1 if batch == dim else x.shape[batch]
            )
        grad_gain = to_gain.reshape(gain.shape).to(gain.dtype) if ctx.needs_input_grad[1] else None
        return to_x, grad_gain, observed if ctx.needs_input_grad[2] else None, None, None, None


def _is_plain(x: Tensor) -> bool:
    """Whether autograd's own product will do: half precision would round every summand."""
    return x.dtype not in units.HALF and (torch.compiler.is_compiling() or x.numel() <= units.BLOCK)


def _is_transformed() -> bool:
    """Whether torch.func differentiates: nothing is learned from its gradients."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def _sums(
    gradient: Tensor, x: Tensor, dim: int, batch: int, *, squared: bool
) -> tuple[Tensor, Tensor | None]:
    """Sums over samples of dL/dg and, if asked for, of its square.

    A large activity is processed a few samples at a time, so that the product stays in the cache.
    """
    sums, squares = [], []
    for g, h in units.pieces(gradient, x, dim, batch):
        per_gain = units.contributions(g, h, dim, batch)
        sums.append(per_gain.sum(0))
        if squared:
            squares.append(per_gain.square_().sum(0))
    if len(sums) > 1:
        sums, squares = [torch.stack(sums).sum(0)], [torch.stack(squares).sum(0)] if squares else []
    return sums[0], squares[0] if squares else None


def _as_rows(gain: Tensor, dim: int, batch: int) -> Tensor:
    """The gain of shape (1, units, 1, 1) or (samples, units, 1, 1) as (1 or samples, units)."""
    if gain.shape[batch] == 1 or batch == dim:
        return gain.reshape(1, -1)
    return (
        gain.reshape(gain.shape[batch], -1)
        if batch < dim
        else gain.reshape(-1, gain.shape[batch]).T
    )
