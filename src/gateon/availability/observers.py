"""Observers of the relevance of units during training: sums over samples since the last step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import vjp
from torch.utils.hooks import unserializable_hook

from ..anatomy.adapters import is_adapted
from ..anatomy.kinds import has_computed_weight, input_weights, unit_dim
from ..anatomy.shards import full, is_sharded
from ..anatomy.sites import Site
from ..gating.gate import Gate, Measure
from ..gating.gates import Gates
from ..gating.units import at_least_float32
from . import relevance
from .firing_rate import FiringRate, activity_and_count, firing_rate_of

__all__ = [
    "MEASURES",
    "Makers",
    "MeanActivity",
    "Observer",
    "OwnGradients",
    "Relevance",
    "Tapped",
    "Through",
    "dense_gradient",
    "observer",
]

Makers = Mapping[nn.Parameter, tuple[nn.Module, str]]  # with the module and the name there
Owned = Mapping[nn.Parameter, Callable[[Tensor], Tensor | None]]
Relevance = Literal[
    "gradient", "fisher", "activity", "firing-rate", "next-layer", "next-layer-gated"
]
MEASURES = get_args(Relevance)


def observer(
    gates: Gates,
    site: Site,
    measure: Relevance | FiringRate | Callable[[Tensor, Tensor], Tensor],
    makers: Makers,
    owned: Owned,
) -> Observer:
    """Start observing the relevance of one site.

    Args:
        gates: The gates of the model.
        site: One of its sites.
        measure: "gradient" (eq. n-mu), "fisher" (eq. n-fisher), "activity" (eq. bio-relevance),
            "firing-rate" or a `FiringRate`, "next-layer" (eq. causallocal) or "next-layer-gated";
            or a function of gradient and activity, see `gateon.obstruct`.
        makers: The parameters that make the units, whose gradients are as recent as the
            observation.
        owned: All parameters of the units, each with what shapes one value per unit to multiply it.
    """
    if measure == "fisher":
        return OwnGradients(site.units, owned)
    makers = _with_gate(gates, site, makers)
    if firing_rate_of(measure) is not None:
        return MeanActivity(gates.taps[site.name], _tap(site.units + 1, makers))
    if callable(measure):
        return Tapped(gates.taps[site.name], measure, [], _tap(site.units, makers))
    assert not isinstance(measure, FiringRate)
    readers = [gates.model.get_submodule(name) for name in site.readers]
    if measure.startswith("next-layer"):
        _check_readers(site, readers, measure)
    tap = _tap(site.units, makers)
    if measure == "next-layer-gated":
        return Through(gates, site, tap)
    return Tapped(
        gates.taps[site.name],
        "gradient" if measure == "gradient" else "activity",
        readers if measure == "next-layer" else [],
        tap,
    )


def _check_readers(site: Site, readers: list[nn.Module], measure: str) -> None:
    """Raise ValueError if the weights with which a site is read are not known."""
    named = zip(site.readers, readers, strict=True)
    computed = next((name for name, reader in named if has_computed_weight(reader)), None)
    if not readers:
        problem = f"needs the layer that reads site {site.name!r}, and none was found"
    elif any(not input_weights(reader)[0] and not is_adapted(reader) for reader in readers):
        problem = f"does not know with which weights site {site.name!r} is read"
    elif measure == "next-layer-gated" and any(
        isinstance(reader, nn.RNNBase | nn.RNNCellBase) for reader in readers
    ):
        problem = f"cannot look into the recurrent layer that reads site {site.name!r}"
    elif any(is_adapted(reader) for reader in readers):
        problem = f"does not support adapters on the layer that reads site {site.name!r}"
    elif computed is not None:
        problem = f"needs the weights of layer {computed!r}, which are recomputed at every call"
    else:
        return
    raise ValueError(f'relevance={measure!r} {problem}: use "gradient" or "activity".')


class OwnGradients:
    """Reads the relevance of units off the gradients of their own parameters (eq. n-fisher).

    Args:
        units: How many there are.
        owned: Their parameters, each with what shapes one value per unit to multiply it.
    """

    def __init__(self, units: int, owned: Owned) -> None:
        self.units, self.owned = units, owned

    def take(self) -> Tensor | None:
        """Return mu of this step; None if there are no gradients."""
        found = [
            (full(dense_gradient(p)), shaped)
            for p, shaped in self.owned.items()
            if p.grad is not None
        ]
        return relevance.unit_fisher(found, self.units) if found else None

    def remove(self) -> None:
        """Stop observing: there is nothing to undo."""


class Tapped:
    """Reads the relevance that a gate collects in the backward pass.

    Args:
        gate: The gate of the site.
        measure: What the gate collects.
        readers: Layers whose squared outgoing weights multiply it; empty for none.
        tap: The leaf whose gradient is the relevance.
    """

    def __init__(self, gate: Gate, measure: Measure, readers: list[nn.Module], tap: Tensor) -> None:
        self.gate, self.readers, self.tap = gate, readers, tap
        # What the units of the readers left out of a sub-network add to the outgoing weights.
        self.rest: Tensor | float = 0.0
        gate.observe(measure, tap)

    def take(self) -> Tensor | None:
        """Return the sum of mu over the samples since the last call; None if there were none."""
        if self.tap.grad is None:
            return None
        mu, self.tap.grad = self.tap.grad, None
        return mu * (self.outgoing() + self.rest) if self.readers else mu

    def outgoing(self) -> Tensor:
        """The squared norm of the weights with which the readers read each unit."""
        units = self.gate.site.units
        return torch.stack([relevance.outgoing(reader, units) for reader in self.readers]).sum(0)

    def remove(self) -> None:
        """Stop observing."""
        self.gate.stop_observing()


class MeanActivity:
    """Reads the mean activity of units, of which a ledger makes firing rates.

    Args:
        gate: The gate of the site.
        tap: The leaf whose gradient is the activity summed over samples, and their number.
    """

    def __init__(self, gate: Gate, tap: Tensor) -> None:
        self.gate, self.tap = gate, tap
        gate.observe(activity_and_count, tap)

    def take(self) -> Tensor | None:
        """Return the mean of |x| over the samples since the last call; None if there were none."""
        if self.tap.grad is None:
            return None
        sums, self.tap.grad = self.tap.grad, None
        return sums[:-1] / sums[-1]

    def remove(self) -> None:
        """Stop observing."""
        self.gate.stop_observing()


class Through:
    """Computes `relevance.next_layer_gated` in the forward pass of the next layer.

    It only counts once the backward pass comes through.

    Args:
        gates: The gates of the model.
        site: The site observed.
        tap: The leaf whose gradient is the relevance.
    """

    def __init__(self, gates: Gates, site: Site, tap: Tensor) -> None:
        self.gates, self.site, self.tap = gates, site, tap
        self.inputs: dict[str, Tensor] = {}
        self.readers = {
            name: relevance.WithoutHooks(gates.model.get_submodule(name)) for name in site.readers
        }
        self.hooks: list[Any] = []
        for name in site.readers:
            reader = gates.model.get_submodule(name)
            owner = next((s for s in gates.sites.values() if name in s.owns), None)
            # Partial methods, not closures, so that a copy of the model gets its own observers.
            self.hooks.append(reader.register_forward_pre_hook(partial(self._remember, name)))
            if owner is not None and owner.activation and not owner.head:
                activation = gates.model.get_submodule(owner.activation)
                self.hooks.append(
                    activation.register_forward_pre_hook(partial(self._measure, name, owner))
                )
            else:
                self.hooks.append(
                    reader.register_forward_hook(partial(self._measure_linear, name, owner))
                )

    def take(self) -> Tensor | None:
        """Return the sum of mu over the samples since the last call; None if there were none."""
        mu, self.tap.grad = self.tap.grad, None
        return mu

    def remove(self) -> None:
        """Stop observing."""
        for hook in self.hooks:
            hook.remove()

    def _remember(self, name: str, module: nn.Module, args: Any) -> None:
        if module.training and torch.is_grad_enabled():
            self.inputs[name] = args[0].detach()

    def _measure(self, name: str, owner: Site, activation: nn.Module, args: Any) -> Any:
        if name not in self.inputs:
            return args
        return (self._deposit(args[0], name, owner, _slope(activation, args[0])), *args[1:])

    def _measure_linear(
        self, name: str, owner: Site | None, reader: nn.Module, args: Any, output: Tensor
    ) -> Tensor:
        if name not in self.inputs:
            return output
        return self._deposit(output, name, owner, torch.ones_like(output))

    def _deposit(self, made: Tensor, name: str, owner: Site | None, slope: Tensor) -> Tensor:
        reader = self.readers[name]
        if self.tap.device != made.device:
            self.tap.data = self.tap.data.to(made.device)
        x = self.inputs.pop(name)
        with torch.no_grad():
            gate = self.gates.gates.get(owner.name) if owner is not None else None
            if gate is not None and not gate.off:
                slope = slope * _gain_like(gate, slope, unit_dim(reader.layer))
            dim = self.site.dim
            if x.dim() < -dim or x.shape[dim] != self.site.units:
                dim = -1  # flattened: every unit at several positions
            mu = relevance.next_layer_gated(x, reader, slope, dim)
            mu = mu.unflatten(0, (self.site.units, -1)).sum(1) * len(x)
        kept: Tensor = _Deposit.apply(made, self.tap, mu)  # type: ignore[no-untyped-call]
        return kept


def _gain_like(gate: Gate, made: Tensor, dim: int) -> Tensor:
    """The gains of a gate for what a layer makes: once more for a second factor of its units."""
    gain = gate.gain_like(made, dim)
    return torch.cat([gain] * (made.shape[dim] // gate.site.units), dim)


class _Deposit(torch.autograd.Function):
    """Returns x unchanged; the backward pass adds mu to the gradient of `tap`."""

    @staticmethod
    def forward(x: Tensor, tap: Tensor, mu: Tensor) -> Tensor:
        return x.clone()  # not a view, because an activation may work in place

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient, ctx.saved_tensors[0], None


Observer = OwnGradients | Tapped | MeanActivity | Through


def _tap(size: int, makers: Makers) -> Tensor:
    """A leaf whose gradient is the sum of mu over the samples of the batch or its micro-batches."""
    like = next(iter(makers))
    tap = torch.zeros(
        size, device=like.device, dtype=at_least_float32(like.dtype), requires_grad=True
    )

    def forget_stale(_: Tensor) -> None:
        # A skipped step leaves an observation behind, but the user zeroes its gradients. The layers
        # that make the units get their gradients after this hook runs, so if they are empty here, a
        # new batch begins.
        if tap.grad is not None and not any(
            _has_gradient(p, *place) for p, place in makers.items()
        ):
            tap.grad = None

    tap.register_hook(unserializable_hook(forget_stale))
    return tap


def _with_gate(gates: Gates, site: Site, makers: Makers) -> Makers:
    """The parameters that make the units and, where they are sharded, the weight of their gate.

    Before gradients are reduced, a gradient is that of the whole parameter, which is in place of
    its pieces only near its own backward pass: that of the gate is near.
    """
    gate = gates.gates.get(site.name)
    if gate is None or gate.weight is None or not is_sharded(gate.weight):
        return makers
    return {**makers, gate.weight: (gate, "weight")}


def _has_gradient(parameter: nn.Parameter, module: nn.Module, name: str) -> bool:
    """Whether a parameter has a gradient that was not zeroed since.

    Of a sharded one the piece held here may be zero by itself, and before gradients are reduced
    they are those of the whole one in its place.
    """
    if is_sharded(parameter):
        return any(p.grad is not None for p in (parameter, module.get_parameter(name)))
    return parameter.grad is not None and bool(parameter.grad.any())


def dense_gradient(parameter: nn.Parameter) -> Tensor:
    """The gradient of a parameter, which embeddings may have in sparse form."""
    assert parameter.grad is not None
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad


def _slope(activation: nn.Module, x: Tensor) -> Tensor:
    """f'(x) of an elementwise function f."""
    pull = vjp(lambda inputs: activation.forward(inputs.clone()), x.detach())[1]
    slope: Tensor = pull(torch.ones_like(x))[0]
    return slope
