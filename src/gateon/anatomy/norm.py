"""ContextNorm: batch normalisation whose running statistics are kept per context.

Running statistics are not parameters: availability cannot protect them, and if all contexts shared
one set, every context would forget its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from .rows import ByRow, replace_data

__all__ = ["ContextNorm", "Statistics", "UnitLength", "follow_norms", "kept_statistics"]

Statistics = Literal["context", "batch"]
LARGEST_STATISTIC = 1 << 16  # numbers
HALF = (torch.bfloat16, torch.float16)


class ContextNorm(ByRow):
    """Batch normalisation with separate running statistics for every context.

    y = scale * (x - mean_k) / sqrt(var_k + eps) + shift. In training mean_k and var_k are the
    batch's and move the running ones of context k; in evaluation they are the running ones of
    context k, so that one sample can be predicted alone.

    Args:
        num_features: units or channels, dimension 1 of the input.
        contexts: how many contexts have statistics at first.
        statistics: "context" as above, or "batch": the batch's own, in evaluation too (predictions
            then depend on the batch).
        affine: whether scale and shift are learned (shared by all contexts, and protected by
            availability like weights).

    >>> norm = ContextNorm(4, contexts=2)
    >>> _ = norm(torch.randn(8, 4) + 5)
    >>> norm.running_mean.mean(1).abs() > 0.1
    tensor([ True, False])
    """

    per_sample = True
    shared = True
    by_row = ("running_mean", "running_var")
    running_mean: Tensor
    running_var: Tensor
    start: Tensor

    def __init__(
        self,
        num_features: int,
        contexts: int = 1,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        statistics: Statistics = "context",
    ) -> None:
        super().__init__()
        if statistics not in ("context", "batch"):
            raise ValueError(f'statistics must be "context" or "batch", got {statistics!r}.')
        if contexts < 1:
            raise ValueError(f"contexts must be at least 1, got {contexts}.")
        self.num_features, self.eps, self.momentum, self.statistics = (
            num_features,
            eps,
            momentum,
            statistics,
        )
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine else None
        self.register_buffer("running_mean", torch.zeros(contexts, num_features))
        self.register_buffer("running_var", torch.ones(contexts, num_features))
        # of a new context
        self.register_buffer(
            "start", torch.stack([torch.zeros(num_features), torch.ones(num_features)])
        )
        self.replaces: type[_BatchNorm] | None = None  # the class it took the place of
        self.behind: tuple[str, ...] = ()  # children through which the result goes
        self.follows = False  # whether it is switched with the model: see `follow_norms`
        # A plain attribute: as a buffer it would be saved, and broadcast by data-parallel wrappers.
        self.context = torch.zeros((), dtype=torch.long)
        # Sums over the processes that share a batch, while they do: see `gateon.parallel`.
        self.summed: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x, (batch, features, ...), with the statistics of the context that is shown."""
        y = self._shown(x)
        for name in self.behind:
            y = self.get_submodule(name)(y)
        return y

    def _shown(self, x: Tensor) -> Tensor:
        if self.statistics == "batch":
            if self.summed is not None:
                return self._over_processes(x, self.summed)[0]
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        if self.context.dim() == 0:
            return self._normalise(x, self.context)
        if len(self.context) != len(x):
            raise ValueError(
                f"{len(self.context)} contexts were given for a batch of {len(x)}: "
                "switch to one context, or to one for each sample."
            )
        if not self.training:
            return self._with_own_statistics(x)
        contexts, samples = self.context.unique(return_counts=True)
        if x[:1, :1].numel() == 1 and (samples == 1).any():
            raise ValueError(
                f"Context {int(contexts[samples == 1][0])} has a single sample in this batch, "
                "which has no variance: give each context at least two, or call eval()."
            )
        y = torch.empty_like(x)
        for k in contexts:
            rows = self.context == k
            y[rows] = self._normalise(x[rows], k)
        return y

    @property
    def contexts(self) -> int | None:
        """How many have statistics; None if all contexts share those that are shown."""
        return len(self.kept.get("running_mean", self.running_mean)) if self.follows else None

    def show(self, context: int | Tensor) -> None:
        """Use the statistics of this context, or of one for each sample."""
        rows = torch.as_tensor(self.at_work(context), dtype=torch.long)
        self.context = rows.to(self.running_mean.device)

    def add_context(self) -> None:
        """Add statistics, new ones or those of the BatchNorm it took the place of."""
        for name, row in zip(self.by_row, self.start, strict=True):
            if self.kept:
                self.kept[name].add(row)
            else:
                replace_data(here := getattr(self, name), torch.cat([here, row[None]]))

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        contexts = len(self.kept.get("running_mean", self.running_mean))
        return f"{self.num_features}, contexts={contexts}, statistics={self.statistics!r}"

    def _normalise(self, x: Tensor, k: Tensor) -> Tensor:
        row = k.reshape(1)
        if self.training and self.summed is not None:
            y, mean, var = self._over_processes(x, self.summed)
            for running, found in ((self.running_mean, mean), (self.running_var, var)):
                moved = running[row].lerp(found.detach().to(running)[None], self.momentum)
                running.index_copy_(0, row, moved)
            return y
        # copies, which it moves
        mean, var = (
            self.running_mean.index_select(0, row)[0],
            self.running_var.index_select(0, row)[0],
        )
        y = F.batch_norm(
            x, mean, var, self.weight, self.bias, self.training, self.momentum, self.eps
        )
        if self.training:
            self.running_mean.index_copy_(0, row, mean[None])
            self.running_var.index_copy_(0, row, var[None])
        return y

    def _over_processes(
        self, x: Tensor, summed: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x normalised by the batch that several processes share; its mean and unbiased variance."""
        wide, dims = x.float() if x.dtype in HALF else x, [0, *range(2, x.dim())]
        per_unit = (1, -1, *[1] * (x.dim() - 2))
        own = wide.new_tensor([x.numel() / x.shape[1]])
        sums = summed(torch.cat([wide.sum(dims), own]))
        n = sums[-1].detach()
        mean = sums[:-1] / n
        centred = wide - mean.view(per_unit)
        var = summed(centred.square().sum(dims)) / n
        y = centred * torch.rsqrt(var + self.eps).view(per_unit)
        if self.weight is not None and self.bias is not None:
            y = y * self.weight.view(per_unit) + self.bias.view(per_unit)
        return y.to(x.dtype), mean, var * n / (n - 1)

    def _with_own_statistics(self, x: Tensor) -> Tensor:
        shape = (x.shape[0], -1, *[1] * (x.dim() - 2))
        mean, var = (
            self.running_mean[self.context].view(shape),
            self.running_var[self.context].view(shape),
        )
        y = (x - mean) * torch.rsqrt(var + self.eps)
        if self.weight is None or self.bias is None:
            return y
        per_unit = (1, -1, *[1] * (x.dim() - 2))
        return y * self.weight.view(per_unit) + self.bias.view(per_unit)

    def _apply(self, fn: Any, recurse: bool = True) -> ContextNorm:
        super()._apply(fn, recurse)
        self.context = self.context.to(self.running_mean.device)
        return self


class UnitLength(nn.Module):
    """Activity scaled to length one over the units of each sample.

    >>> UnitLength()(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """

    def forward(self, x: Tensor) -> Tensor:
        """x / |x|."""
        return F.normalize(x, dim=1)


def follow_norms(model: nn.Module) -> None:
    """Let the ContextNorms of a model be switched with it; `gateon.attach` does so too.

    >>> model = nn.Sequential(ContextNorm(4))
    >>> follow_norms(model)
    >>> model[0].contexts
    1
    """
    for module in model.modules():
        if isinstance(module, ContextNorm):
            module.follows = True


def kept_statistics(model: nn.Module) -> Callable[[], None]:
    """Remember the running statistics that the next forward pass may move.

    Returns:
        A function that puts them back.
    """
    kept: list[tuple[Tensor, Tensor | None, Tensor]] = []
    for norm in (module for module in model.modules() if module._buffers):
        if isinstance(norm, ContextNorm) and norm.statistics == "context":
            rows = norm.context.reshape(-1)
            kept += [(b, rows, b[rows]) for b in (norm.running_mean, norm.running_var)]
        elif isinstance(norm, _NormBase) or (norm.training and not isinstance(norm, ContextNorm)):
            # Also the estimates of spectral_norm and the like; large tables are constants.
            own = norm.buffers(recurse=False)
            kept += [(b, None, b.clone()) for b in own if b.numel() <= LARGEST_STATISTIC]

    def restore() -> None:
        for buffer, rows, values in kept:
            buffer[... if rows is None else rows] = values

    return restore
