"""Gradients of single samples as rows, and sums of their squares without the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map

from ...anatomy.norm import ContextNorm
from ...gating.gate import Gate
from .calls import logits
from .samples import picked

__all__ = ["check_single_samples", "gradient_rows", "square_sums"]

NUMBERS = 1 << 24  # of gradients of single samples held at once


def check_single_samples(model: nn.Module, method: str) -> None:
    """A sample has a gradient of its own only where no layer mixes the samples of a batch."""
    for name, module in model.named_modules():
        unkept = isinstance(module, _BatchNorm) and module.running_mean is None
        if unkept or (isinstance(module, ContextNorm) and module.statistics == "batch"):
            raise ValueError(
                f"{method} needs the gradients of single samples, but the norm {name!r} uses the "
                "statistics of the batch: use norms that keep statistics, or none."
            )


def gradient_rows(model: nn.Module, names: Collection[str], x: Any, pick: Tensor) -> Tensor:
    """The gradient of pick_n . model(x_n) for every sample n, (N, numbers).

    A row is made of the gradients of the parameters named, one after the other.

    >>> model = nn.Linear(2, 2)
    >>> x, pick = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]])
    >>> gradient_rows(model, ["weight", "bias"], x, pick)
    tensor([[3., 4., 0., 0., 1., 0.]])
    """
    state = {name: p.detach() for name, p in model.named_parameters()}
    chosen = {name: state[name] for name in names}

    def score(parameters: dict[str, Tensor], sample: Any, weights: Tensor) -> Tensor:
        return (_output(model, {**state, **parameters}, sample) * weights).sum()

    rows = []
    with _unobserved(model):
        for some, weights in _pieces(x, pick, sum(p.numel() for p in chosen.values())):
            found = _each(grad(score), chosen, some, weights)
            rows.append(torch.cat([found[name].flatten(1) for name in chosen], 1))
    return torch.cat(rows)


def square_sums(
    model: nn.Module, names: Collection[str], x: Any, pick: Tensor
) -> dict[str, Tensor]:
    """sum_n (d/dtheta pick_n . log softmax model(x_n))^2 for every parameter named.

    A Linear layer that reads one vector a sample has the gradient g a^T, whose square is that of g
    times that of a: the sum over samples is one matrix product, and no row is ever written.

    >>> pick = torch.eye(2)[[0, 1, 0, 1, 0]]
    >>> sums = square_sums(nn.Linear(2, 2), ["weight", "bias"], torch.ones(5, 2), pick)
    >>> sums["weight"].shape, bool((sums["bias"] > 0).all())
    (torch.Size([2, 2]), True)
    """
    state = {name: p.detach() for name, p in model.named_parameters()}
    layers = _vector_layers(model, names, next(_pieces(x, pick[:1], 1))[0])
    whole = {name: state[name] for name in names if name.rpartition(".")[0] not in layers}
    taps = {
        name: state[f"{name}.weight"].new_zeros(1, layer.out_features)
        for name, layer in layers.items()
    }
    sums = {name: torch.zeros_like(state[name]) for name in names}
    added: Mapping[str, Tensor] = taps
    inputs: dict[str, Tensor] = {}

    def tapped(name: str) -> Callable[..., Tensor]:
        def hook(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            inputs[name] = args[0]
            return output + added[name]

        return hook

    def score(
        parts: tuple[dict[str, Tensor], dict[str, Tensor]], sample: Any, weights: Tensor
    ) -> tuple[Tensor, Any]:
        nonlocal added
        parameters, added = parts
        output = _output(model, {**state, **parameters}, sample)
        return (output.log_softmax(0) * weights).sum(), dict(inputs)

    # First of all hooks: what multiplies the layer's output, such as a gate, comes behind the tap.
    hooks = [
        layer.register_forward_hook(tapped(name), prepend=True) for name, layer in layers.items()
    ]
    try:
        with _unobserved(model):
            for some, weights in _pieces(x, pick, sum(p.numel() for p in whole.values())):
                (found, slopes), read = _each(
                    grad(score, has_aux=True), (whole, taps), some, weights
                )
                for name, rows in found.items():
                    # not in place: rows of a parameter that is not used are one
                    sums[name] += rows.square().sum(0)
                for name in layers:
                    g, a = slopes[name][:, 0].square(), read[name][:, 0].square()
                    sums[f"{name}.weight"].addmm_(g.T, a)
                    if f"{name}.bias" in sums:
                        sums[f"{name}.bias"] += g.sum(0)
    finally:
        for hook in hooks:
            hook.remove()
    return sums


@contextmanager
def _unobserved(model: nn.Module) -> Iterator[None]:
    """Gates observe nothing meanwhile: nothing is learned from this pass."""
    observed = [(gate, gate.tap) for gate in model.modules() if isinstance(gate, Gate)]
    for gate, _ in observed:
        gate.tap = None
    try:
        yield
    finally:
        for gate, tap in observed:
            gate.tap = tap


def _each(gradient: Callable[..., Any], parts: Any, samples: Any, weights: Tensor) -> Any:
    """What `gradient` gives for every sample: at once, or one by one if vmap cannot follow."""
    if len(weights) > 1:
        try:
            return vmap(gradient, (None, 0, 0))(parts, samples, weights)
        except RuntimeError as reason:
            if "data-dependent" not in str(reason):
                raise
    rows = [
        gradient(parts, picked(samples, torch.tensor(n)), weight)
        for n, weight in enumerate(weights)
    ]
    return tree_map(lambda *values: torch.stack(values), *rows)


def _output(model: nn.Module, state: Mapping[str, Tensor], sample: Any) -> Tensor:
    """The outputs for one sample."""
    one = (
        {name: value[None] for name, value in sample.items()}
        if isinstance(sample, Mapping)
        else sample[None]
    )
    return logits(model, one, state)[0].float()


def _pieces(x: Any, pick: Tensor, numbers: int) -> Iterator[tuple[Any, Tensor]]:
    size = min(256, max(1, NUMBERS // max(1, numbers)))
    for rows in torch.arange(len(pick)).split(size):
        some = picked(x, rows)
        yield (
            {n: v.to(pick.device) for n, v in some.items()}
            if isinstance(some, Mapping)
            else some.to(pick.device),
            pick[rows],
        )


@torch.no_grad()
def _vector_layers(model: nn.Module, names: Collection[str], sample: Any) -> dict[str, nn.Linear]:
    """Linear layers called once a pass, with one vector a sample, that share no parameter."""
    uses = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    linear = {
        name: layer
        for name, layer in model.named_modules()
        if type(layer) is nn.Linear
        and f"{name}.weight" in names
        and all(uses[id(p)] == 1 for p in layer.parameters())
    }
    calls: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            calls[name] += 1 if args and args[0].dim() == 2 else 2  # 2: not to be used

        return hook

    hooks = [layer.register_forward_hook(counted(name)) for name, layer in linear.items()]
    _output(model, {}, picked(sample, torch.tensor(0)))
    for one in hooks:
        one.remove()
    return {name: layer for name, layer in linear.items() if calls[name] == 1}
