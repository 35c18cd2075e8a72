"""One batch over several processes, exactly as one process would learn it.

Every process computes the outputs of its share of the samples. They are joined, so that each of
them has the loss of the whole batch, whatever that loss is, and decides by it as all others do.
With R processes the backward pass multiplies the slope of a process's own outputs by R, and the
gradients are averaged:

    g = 1/R sum_r R dL/dz_r dz_r/dtheta + dP/dtheta

So a penalty P on parameters, which all of them compute alike, counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from ..anatomy.norm import ContextNorm
from .lost import hearing
from .processes import Processes, current

__all__ = ["average_gradients", "check_shareable", "joint_outputs", "sum_in_place"]

BUCKET = 1 << 22  # numbers in one message


def joint_outputs(
    processes: Processes, network: nn.Module, x: Any, outputs: Callable[[nn.Module, Any], Tensor]
) -> Tensor:
    """The outputs for all of x, of which every process computes its share.

    A batch with fewer samples than processes is computed by all of them alike.

    Args:
        processes: those that share the batch.
        network: as they all hold it.
        x: the whole batch: one tensor, or several by name.
        outputs: what the network makes of inputs.

    >>> from gateon.parallel.processes import ALONE
    >>> joint_outputs(ALONE, nn.Identity(), torch.ones(2), lambda network, x: network(x))
    tensor([1., 1.])
    """
    samples = len(next(iter(x.values())) if isinstance(x, Mapping) else x)
    if processes.count == 1 or samples < processes.count:
        return outputs(network, x)
    mine = processes.share(samples)
    own = {n: v[mine] for n, v in x.items()} if isinstance(x, Mapping) else x[mine]
    draws = network.training and any(
        isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in network.modules()
    )
    with _norms_over_processes(network), _own_generator(processes) if draws else nullcontext():
        found = outputs(network, own)
    joined: Tensor = _Joined.apply(found, samples, processes)  # type: ignore[no-untyped-call]
    return joined


def average_gradients(processes: Processes, parameters: list[nn.Parameter]) -> None:
    """Replace every gradient by its mean over processes."""
    if processes.count == 1:
        return
    for p in parameters:
        if p.grad is not None and p.grad.is_sparse:
            p.grad = p.grad.to_dense()
    gradients = [p.grad for p in parameters if p.grad is not None]
    sum_in_place(gradients)
    if gradients:
        torch._foreach_div_(gradients, processes.count)


def sum_in_place(tensors: list[Tensor]) -> None:
    """Replace every tensor by its sum over processes, in messages of a few megabytes."""
    if current().count == 1:
        return
    sent = []
    with hearing():
        for some in _buckets(tensors):
            joined = torch.cat([tensor.reshape(-1) for tensor in some])
            sent.append((some, joined, dist.all_reduce(joined, async_op=True)))
        for some, joined, message in sent:
            message.wait()
            pieces = joined.split([tensor.numel() for tensor in some])
            shaped = [piece.view_as(tensor) for piece, tensor in zip(pieces, some, strict=True)]
            torch._foreach_copy_(some, shaped)


def check_shareable(network: nn.Module) -> None:
    """Refuse a network in which samples of a batch interact, except through our norms."""
    for name, module in network.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"Layer {name!r} is a {type(module).__name__}, which would see only a process's "
                "share of the batch: replace it by gateon.context_norms(model), or train with one "
                "process."
            )


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors of one kind in lists of about as many numbers as one message takes."""
    some: list[Tensor] = []
    for tensor in tensors:
        alike = not some or (tensor.dtype, tensor.device) == (some[0].dtype, some[0].device)
        if some and (not alike or sum(t.numel() for t in some) + tensor.numel() > BUCKET):
            yield some
            some = []
        some.append(tensor)
    if some:
        yield some


class _Joined(torch.autograd.Function):
    """The outputs of all processes in the order of the batch; see the head of this file."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, samples: int, processes: Processes) -> Tensor:
        ctx.mine, ctx.count = processes.share(samples), processes.count
        shares = [processes.share(samples, rank) for rank in range(processes.count)]
        sizes = [share.stop - share.start for share in shares]
        longest = own.new_zeros(max(sizes), *own.shape[1:])  # messages are of one size
        longest[: len(own)] = own
        found = [torch.empty_like(longest) for _ in sizes]
        with hearing():
            dist.all_gather(found, longest)
        return torch.cat([part[:size] for part, size in zip(found, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        return slope[ctx.mine] * ctx.count, None, None


class _Summed(torch.autograd.Function):
    """The sum over processes; its slope is the sum of theirs, since each of them uses it."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        return _all_reduced(own)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return _all_reduced(slope)


def _all_reduced(tensor: Tensor) -> Tensor:
    total = tensor.contiguous().clone()
    with hearing():
        dist.all_reduce(total)
    return total


@contextmanager
def _norms_over_processes(network: nn.Module) -> Iterator[None]:
    """Norms normalise by the whole batch meanwhile."""
    norms = [module for module in network.modules() if isinstance(module, ContextNorm)]
    for norm in norms:
        norm.summed = _Summed.apply
    try:
        yield
    finally:
        for norm in norms:
            norm.summed = None


@contextmanager
def _own_generator(processes: Processes) -> Iterator[None]:
    """Draw apart from other processes, and alike again afterwards."""
    seed = int(torch.randint(1 << 60, ()))
    alike = torch.get_rng_state()
    torch.manual_seed(seed + processes.rank)
    try:
        yield
    finally:
        torch.set_rng_state(alike)
