"""Where the relevance of units is read from while the user trains: sums over samples since the last step, each taken once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import vjp
from torch.utils.hooks import unserializable_hook

from ..anatomy.adapters import is_adapted
from ..anatomy.kinds import has_computed_weight, unit_dim
from ..anatomy.sites import Site
from ..gating.gate import Gate, Measure
from ..gating.gates import Gates
from ..gating.units import at_least_float32
from . import relevance

__all__ = ["Observer", "Relevance", "Tapped", "Through", "observer"]

Relevance = Literal["gradient", "activity", "next-layer", "next-layer-gated"]


def observer(
    gates: Gates,
    site: Site,
    measure: Relevance | Callable[[Tensor, Tensor], Tensor],
    owned: Iterable[nn.Parameter],
) -> Observer:
    """The observer of one site for one measure of relevance.

    Args:
        gates: the model's.
        site: which one.
        measure: "gradient" (eq. n-mu), "activity" (eq. bio-relevance), "next-layer" (eq.
            causallocal) or "next-layer-gated"; or a function of gradient and activity, see
            `gateon.obstruct`.
        owned: the parameters of the units, whose gradients are fresh exactly when the observation
            is.
    """
    model = gates.model
    if callable(measure):
        return Tapped(gates.taps[site.name], measure, [], _tap(site.units, list(owned)))
    readers = [model.get_submodule(name) for name in site.readers]
    if measure.startswith("next-layer") and not readers:
        raise ValueError(
            f"relevance={measure!r} needs to know which layer reads site {site.name!r}, and none could be found: "
            'use "gradient" or "activity".'
        )
    if measure.startswith("next-layer") and any(is_adapted(reader) for reader in readers):
        raise ValueError(
            f"relevance={measure!r} knows nothing of the adapters of the layer that reads site {site.name!r}: "
            'use "gradient" or "activity".'
        )
    computed = next(
        (name for name in site.readers if has_computed_weight(model.get_submodule(name))), None
    )
    if measure.startswith("next-layer") and computed is not None:
        raise ValueError(
            f"relevance={measure!r} needs the weights of layer {computed!r}, which are computed anew at every call: "
            'use "gradient" or "activity".'
        )
    tap = _tap(site.units, list(owned))
    if measure == "next-layer-gated":
        return Through(gates, site, tap)
    return Tapped(
        gates.taps[site.name],
        "gradient" if measure == "gradient" else "activity",
        readers if measure == "next-layer" else [],
        tap,
    )


class Tapped:
    """Reads the relevance that a gate gathers in the backward pass; times the outgoing weights of the readers, if there are any."""

    def __init__(self, gate: Gate, measure: Measure, readers: list[nn.Module], tap: Tensor) -> None:
        self.gate, self.readers, self.tap = gate, readers, tap
        self.rest: Tensor | float = (
            0.0  # what units of the readers that are left out add to the outgoing weights
        )
        gate.observe(measure, tap)

    def take(self) -> Tensor | None:
        """Sum of mu over the samples seen since the last call; None if there were none."""
        if self.tap.grad is None:
            return None
        mu, self.tap.grad = self.tap.grad, None
        return _over_processes(mu * (self.outgoing() + self.rest) if self.readers else mu)

    def outgoing(self) -> Tensor:
        """The squared norm of the weights by which the readers read each unit."""
        return torch.stack(
            [relevance.outgoing(reader, self.gate.site.units) for reader in self.readers]
        ).sum(0)

    def remove(self) -> None:
        """Stop observing."""
        self.gate.stop_observing()


class Through:
    """Computes `relevance.next_layer_gated` in the forward pass, where the next layer's units are made; counted if learned from."""

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
            # Partial methods and not closures: a copy of the model then gets observers of its own.
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
        """Sum of mu over the samples seen since the last call; None if there were none."""
        mu, self.tap.grad = self.tap.grad, None
        return None if mu is None else _over_processes(mu)

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
        return (
            self._deposit(output, name, owner, torch.ones_like(output))
            if name in self.inputs
            else output
        )

    def _deposit(self, made: Tensor, name: str, owner: Site | None, slope: Tensor) -> Tensor:
        reader = self.readers[name]
        if self.tap.device != made.device:
            self.tap.data = self.tap.data.to(made.device)
        x = self.inputs.pop(name)
        with torch.no_grad():
            gate = self.gates.gates.get(owner.name) if owner is not None else None
            if gate is not None and not gate.off:
                slope = slope * gate.gain_like(slope, unit_dim(reader.layer))
            dim = self.site.dim
            if (
                x.dim() < -dim or x.shape[dim] != self.site.units
            ):  # flattened: every unit at several positions
                dim = -1
            mu = relevance.next_layer_gated(x, reader, slope, dim)
            mu = mu.unflatten(0, (self.site.units, -1)).sum(1) * len(x)
        kept: Tensor = _Deposit.apply(made, self.tap, mu)  # type: ignore[no-untyped-call]
        return kept


class _Deposit(torch.autograd.Function):
    """x unchanged; its backward pass adds mu to the gradient of `tap`."""

    @staticmethod
    def forward(x: Tensor, tap: Tensor, mu: Tensor) -> Tensor:
        return x.clone()  # no view: an activation may work in place

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient, ctx.saved_tensors[0], None


Observer = Tapped | Through


def _tap(units: int, owned: list[nn.Parameter]) -> Tensor:
    """A leaf whose gradient is the sum of mu over the samples of the batch, or of its micro-batches."""
    tap = torch.zeros(
        units, device=owned[0].device, dtype=at_least_float32(owned[0].dtype), requires_grad=True
    )

    def forget_stale(_: Tensor) -> None:
        # A skipped or discarded step leaves an observation behind, but its gradients are zeroed by
        # the user. The layers that make the units get their gradients after this hook runs, so that
        # empty gradients here mean: a new batch begins.
        if tap.grad is not None and all(p.grad is None or not p.grad.any() for p in owned):
            tap.grad = None

    tap.register_hook(unserializable_hook(forget_stale))
    return tap


def _slope(activation: nn.Module, x: Tensor) -> Tensor:
    """f'(x) of a function that acts on each number alone."""
    pull = vjp(lambda inputs: activation.forward(inputs.clone()), x.detach())[1]
    slope: Tensor = pull(torch.ones_like(x))[0]
    return slope


def _over_processes(mu: Tensor) -> Tensor:
    """The sum over all processes that train together: relevance is then that of the whole batch."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        mu = mu.clone()
        torch.distributed.all_reduce(mu)
    return mu
