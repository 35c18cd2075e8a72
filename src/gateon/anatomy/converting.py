"""BatchNorms replaced by norms whose running statistics are kept per context."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .norm import ContextNorm, Statistics
from .parts import parts_of

__all__ = ["context_norms"]


def context_norms(
    model: nn.Module, contexts: int = 1, *, statistics: Statistics = "context"
) -> nn.Module:
    """Replace every BatchNorm of the model by a ContextNorm, in place; returns the model.

    Each takes over scale, shift and statistics. Call it before `gateon.attach` and before the
    optimizer is built.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
    >>> context_norms(model)[1]
    ContextNorm(4, contexts=1, statistics='context')
    """
    if "context_gates" in model.__dict__:
        raise ValueError(
            "This model has gates already, which would be lost with its norms: "
            "call context_norms before attach."
        )
    if isinstance(model, _BatchNorm):
        return _converted(model, contexts, statistics)
    new = {
        norm: _converted(norm, contexts, statistics)
        for norm in model.modules()
        if isinstance(norm, _BatchNorm)
    }
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if isinstance(child, _BatchNorm):
                setattr(parent, name, new[child])
    return model


def _converted(norm: _BatchNorm, contexts: int, statistics: Statistics) -> ContextNorm:
    if norm.momentum is None:
        raise ValueError(
            "A BatchNorm with momentum=None averages over all batches: give it a momentum first."
        )
    if norm.running_mean is None:  # it never had statistics of its own and uses the batch's
        statistics = "batch"
    new = ContextNorm(
        norm.num_features,
        contexts,
        eps=norm.eps,
        momentum=norm.momentum,
        affine=norm.affine,
        statistics=statistics,
    )
    new.replaces = type(norm)
    if norm.affine:
        # the same objects: an optimizer that holds them still does
        new.weight, new.bias = (
            norm.weight,
            norm.bias,
        )
    if norm.running_mean is not None and norm.running_var is not None:
        new.running_mean = norm.running_mean.detach().repeat(contexts, 1)
        new.running_var = norm.running_var.detach().repeat(contexts, 1)
        new.start = torch.stack([norm.running_mean.detach(), norm.running_var.detach()])
    for name in parts_of(norm):
        new.add_module(name, norm.get_submodule(name))
    new.behind = tuple(parts_of(norm))
    new.train(norm.training)
    if type(norm).forward is not _BatchNorm.forward:
        _check_same(norm, new)
    return new


@torch.no_grad()
def _check_same(norm: _BatchNorm, new: ContextNorm) -> None:
    """Raise ValueError if a norm of another library does more than the norm that is to replace it."""
    norm, new = copy.deepcopy(norm).eval(), copy.deepcopy(new).eval()
    per_unit = torch.linspace(-2, 3, norm.num_features).to(new.running_mean)
    for positions in ((2, 2), (2,), (), (2, 2, 2)):
        shape = (2, norm.num_features, *positions)
        x = per_unit.view(1, -1, *[1] * len(positions)).expand(shape).contiguous()
        try:
            expected = norm.forward(x)
        except (ValueError, RuntimeError, AssertionError):
            continue  # it wants another number of dimensions
        if torch.allclose(new.forward(x), expected, atol=1e-6):
            return
        break
    raise ValueError(
        f"{type(norm).__name__} does more than normalise and apply its parts one after another: "
        "replace it by an nn.BatchNorm and what else it does."
    )
