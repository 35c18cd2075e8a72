"""Tensors of which every process holds a piece, as `fully_shard` makes them of parameters (DTensor).

All others are passed on as they are, so that whoever uses these functions need not tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch import distributed as dist

__all__ = ["check_shards", "check_unsharded", "full", "is_sharded", "local", "over_pieces", "piece"]


def is_sharded(tensor: object) -> bool:
    """Whether this process holds a piece of the tensor.

    >>> import torch
    >>> is_sharded(torch.ones(2))
    False
    """
    return hasattr(tensor, "full_tensor")


def local(tensor: Tensor) -> Tensor:
    """The piece of a tensor that this process holds, in the same memory."""
    made: Any = tensor
    return made.detach().to_local() if is_sharded(tensor) else tensor


def full(tensor: Tensor) -> Tensor:
    """The whole tensor; of a sharded one all processes ask at the same time."""
    made: Any = tensor
    return made.full_tensor() if is_sharded(tensor) else tensor


def piece(values: Tensor, tensor: Tensor) -> Tensor:
    """Of values that multiply a tensor, those that multiply the piece this process holds.

    >>> import torch
    >>> piece(torch.ones(4, 1), torch.ones(4, 3)).shape
    torch.Size([4, 1])
    """
    if not is_sharded(tensor):
        return values
    dim, (rank, count) = _cut(tensor), _who(tensor)
    behind = dim - tensor.dim()  # counted from the last, since values may have fewer dimensions
    if values.dim() < -behind or values.shape[behind] == 1:
        return values
    width = -(-tensor.shape[dim] // count)
    first = min(rank * width, tensor.shape[dim])
    return values.narrow(behind, first, min(width, tensor.shape[dim] - first))


def over_pieces(values: Tensor, tensors: Iterable[Tensor]) -> Tensor:
    """What processes computed from their pieces of these tensors, summed over all pieces."""
    found: Any = next((tensor for tensor in tensors if is_sharded(tensor)), None)
    if found is None:
        return values
    total = values.clone()
    dist.all_reduce(total, group=found.device_mesh.get_group(_mesh_dim(found)))
    return total


def check_shards(parameters: Iterable[tuple[str, nn.Parameter]]) -> None:
    """Refuse parameters that are cut in another way than by `fully_shard` on the whole model."""
    named: list[tuple[str, Any]] = list(parameters)
    sharded = [(name, p) for name, p in named if is_sharded(p)]
    if not sharded:
        return
    odd = next((name for name, p in named if not is_sharded(p)), None)
    if odd is not None:
        raise ValueError(
            f"Parameter {sharded[0][0]!r} is sharded and {odd!r} is not: call fully_shard on the "
            "whole model after its parts, without ignored_params."
        )
    for name, p in sharded:
        cuts = [one for one in p.placements if one.is_shard()]
        if len(cuts) != 1 or p.device_mesh != sharded[0][1].device_mesh:
            raise ValueError(
                f"Parameter {name!r} is cut as {tuple(p.placements)}, and availability follows "
                "fully_shard with one mesh only: do without tensor parallelism."
            )


def check_unsharded(model: nn.Module, what: str) -> None:
    """Refuse parameters of which each process has a piece."""
    sharded = next((name for name, p in model.named_parameters() if is_sharded(p)), None)
    if sharded is not None:
        raise ValueError(
            f"Parameter {sharded!r} is sharded (a DTensor, as made by fully_shard), and {what}."
        )


def _mesh_dim(tensor: Any) -> int:
    """The dimension of the mesh along which the tensor is cut; along others it is repeated."""
    cuts: list[bool] = [one.is_shard() for one in tensor.placements]
    return cuts.index(True)


def _cut(tensor: Any) -> int:
    """The dimension of the tensor that is cut."""
    dims: int = tensor.dim()
    return int(tensor.placements[_mesh_dim(tensor)].dim) % dims


def _who(tensor: Any) -> tuple[int, int]:
    """Which of how many pieces this process holds."""
    dim, mesh = _mesh_dim(tensor), tensor.device_mesh
    return int(mesh.get_local_rank(dim)), int(mesh.size(dim))
