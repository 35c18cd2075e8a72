"""Where the relevance of units is read from while the user trains: sums over samples since the last step, each taken once."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from . import relevance
from .gate import Gate
from .gates import Gates
from .sites import Site

__all__ = ["Observer", "Relevance", "Tapped", "Through", "observer"]

Relevance = Literal["gradient", "activity", "next-layer", "next-layer-gated"]


def observer(gates: Gates, site: Site, measure: Relevance, marker: nn.Parameter) -> Observer:
    """The observer of one site for one measure of relevance.

    Args:
        gates: the model's.
        site: which one.
        measure: "gradient" (eq. n-mu), "activity" (eq. bio-relevance), "next-layer" (eq. causallocal) or "next-layer-gated".
        marker: a parameter whose gradient is fresh exactly when the observation is.
    """
    model = gates.model
    readers = [model.get_submodule(name) for name in site.readers]
    if measure.startswith("next-layer") and not readers:
        raise ValueError(
            f"relevance={measure!r} needs to know which layer reads site {site.name!r}, and none could be found: "
            'use "gradient" or "activity".'
        )
    if measure == "next-layer-gated":
        return Through(gates, site)
    return Tapped(
        gates.taps[site.name],
        "gradient" if measure == "gradient" else "activity",
        readers if measure == "next-layer" else [],
        marker,
    )


class Tapped:
    """Reads the relevance that a gate gathers in the backward pass; times the outgoing weights of the readers, if there are any."""

    def __init__(
        self, gate: Gate, measure: Literal["gradient", "activity"], readers: list[nn.Module], marker: nn.Parameter
    ) -> None:
        self.gate, self.readers = gate, readers
        gate.observe(measure)
        assert gate.tap is not None

        def forget_stale(_: Tensor) -> None:
            # A skipped or discarded step leaves an observation behind, but its gradients are zeroed by the user. The layers that
            # make the units get their gradients after this hook runs, so that an empty gradient here means: a new batch begins.
            tap = gate.tap
            if tap is not None and tap.grad is not None and (marker.grad is None or not marker.grad.any()):
                tap.grad = None

        gate.tap.register_hook(forget_stale)

    def take(self) -> Tensor | None:
        """Sum of mu over the samples seen since the last call; None if there were none."""
        tap = self.gate.tap
        if tap is None or tap.grad is None:
            return None
        mu, tap.grad = tap.grad, None
        if self.readers:
            mu = mu * sum(relevance.outgoing(reader, self.gate.site.units) for reader in self.readers)
        return _over_processes(mu)

    def remove(self) -> None:
        """Stop observing."""
        self.gate.observe(None)


class Through:
    """Computes `relevance.next_layer_gated` in the forward pass, where the next layer's units are made."""

    def __init__(self, gates: Gates, site: Site) -> None:
        self.gates, self.site, self.total = gates, site, None
        self.inputs: dict[str, Tensor] = {}
        self.hooks: list[Any] = []
        for name in site.readers:
            reader = gates.model.get_submodule(name)
            owner = next((s for s in gates.sites.values() if name in s.owns), None)
            self.hooks.append(reader.register_forward_pre_hook(self._remember(name)))
            if owner is not None and owner.activation and not owner.head:
                activation = gates.model.get_submodule(owner.activation)
                self.hooks.append(activation.register_forward_pre_hook(self._measure(name, reader, owner)))
            else:
                self.hooks.append(reader.register_forward_hook(self._measure_linear(name, owner)))

    total: Tensor | None

    def take(self) -> Tensor | None:
        """Sum of mu over the samples seen since the last call; None if there were none."""
        mu, self.total = self.total, None
        return None if mu is None else _over_processes(mu)

    def remove(self) -> None:
        """Stop observing."""
        for hook in self.hooks:
            hook.remove()

    def _remember(self, name: str) -> Any:
        def before(module: nn.Module, args: Any) -> None:
            if module.training and torch.is_grad_enabled():
                self.inputs[name] = args[0].detach()

        return before

    def _measure(self, name: str, reader: nn.Module, owner: Site) -> Any:
        def before(activation: nn.Module, args: Any) -> None:
            if name in self.inputs:
                self._add(name, reader, owner, _slope(activation, args[0]))

        return before

    def _measure_linear(self, name: str, owner: Site | None) -> Any:
        def after(reader: nn.Module, args: Any, output: Tensor) -> None:
            if name in self.inputs:
                self._add(name, reader, owner, torch.ones_like(output))

        return after

    def _add(self, name: str, reader: nn.Module, owner: Site | None, slope: Tensor) -> None:
        x = self.inputs.pop(name)
        with torch.no_grad():
            gate = self.gates.gates.get(owner.name) if owner is not None else None
            if gate is not None and not gate.off:
                slope = slope * gate.gain_like(slope)
            dim = self.site.dim
            if x.shape[dim] != self.site.units:  # flattened: every unit at several positions
                dim = -1
            mu = relevance.next_layer_gated(x, reader, slope, dim)
            mu = mu.unflatten(0, (self.site.units, -1)).sum(1) * len(x)
            self.total = mu if self.total is None else self.total + mu


Observer = Tapped | Through


def _slope(activation: nn.Module, x: Tensor) -> Tensor:
    """f'(x) of a function that acts on each number alone."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(activation.forward(x.clone()).sum(), x)
    return slope


def _over_processes(mu: Tensor) -> Tensor:
    """The sum over all processes that train together: relevance is then that of the whole batch."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        mu = mu.clone()
        torch.distributed.all_reduce(mu)
    return mu
