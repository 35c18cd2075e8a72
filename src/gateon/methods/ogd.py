"""OGD: no step may change, to first order, what the network answers to samples of past tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from ..anatomy.contextual import own_by_context
from ..storage.states import COUNT, Grown
from .base import Adopt, Method
from .shared.calls import check_seed, evaluating, outputs, trainable
from .shared.per_sample import check_single_samples, gradient_rows
from .shared.quadratic import check_fits, check_loaded
from .shared.samples import Memory, gathered, seeded

__all__ = ["OGD", "extended"]


@dataclass
class OGD(Method):
    """Orthogonal gradient descent (Farajtabar et al. 2020, AISTATS) by the true logit (OGD-GTL).

    At the end of a task the gradients d z_y(x) / d theta of the logit of the true class are taken
    for some samples and added to an orthonormal basis B of all of them. Every later step follows g
    - B^T B g. Only plain SGD follows that direction: other optimizers are refused. Heads that
    belong to one task (`Contextual` modules) are left out of B and trained freely.

    The basis has memory * tasks rows as long as the network has parameters: 72 MB a task for two
    hidden layers of 100 units, 4.5 GB a task for 2000: lower `memory` there.

    Args:
        memory: number of samples of each task whose gradients are stored.
        seed: of which samples.

    >>> OGD(memory=100).name
    'ogd'
    """

    memory: int = 200
    seed: int = 0

    basis: Tensor | None = field(default=None, init=False, repr=False, compare=False)
    # what a row is made of
    shapes: dict[str, list[int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    tasks: int = field(default=0, init=False, repr=False, compare=False)
    model: nn.Module | None = field(default=None, init=False, repr=False, compare=False)

    name = "ogd"

    def __post_init__(self) -> None:
        """Validate the settings."""
        if self.memory is None:
            raise ValueError("memory must be a whole number of at least 1, got None.")
        Memory(self.memory)
        check_seed(self.seed)

    def prepare(self, model: nn.Module) -> Adopt:
        """Project the gradients of every optimizer's step."""
        check_single_samples(model, "OGD")
        self.model = model
        self.basis, self.shapes, self.tasks = None, {}, 0

        def project(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if self.basis is not None:
                self._project(self.basis, dict(model.named_parameters()))

        def adopt(optimizer: Optimizer) -> None:
            _check_plain(optimizer)
            self._check(model)
            optimizer.register_step_pre_hook(project)

        return adopt

    @torch.no_grad()
    def _project(self, basis: Tensor, parameters: Mapping[str, nn.Parameter]) -> None:
        """g <- g - B^T B g, parameter by parameter."""
        pieces = basis.split([torch.Size(shape).numel() for shape in self.shapes.values()], 1)
        along = basis.new_zeros(len(basis))
        for name, B in zip(self.shapes, pieces, strict=True):
            g = parameters[name].grad
            if g is not None:
                along.addmv_(B, g.reshape(-1))
        for name, B in zip(self.shapes, pieces, strict=True):
            p = parameters[name]
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad -= (along @ B).view_as(p)

    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Add the directions of some samples of the task."""
        self._check(model)
        kept = Memory(self.memory)
        kept.add(gathered(data, task, seeded(self.seed, self.tasks)))
        (part,) = kept.parts
        shared = _shared(model)
        new = {name: list(p.shape) for name, p in shared.items() if name not in self.shapes}
        shapes = self.shapes | new
        with evaluating(model):
            with torch.no_grad():
                classes = outputs(model, part.x).shape[1]
            like = next(model.parameters())
            rows = gradient_rows(model, shapes, part.x, F.one_hot(part.y, classes).to(like))
        basis = (
            rows.new_zeros(0, rows.shape[1])
            if self.basis is None
            else F.pad(self.basis, (0, rows.shape[1] - self.basis.shape[1]))
        )
        self.basis, self.shapes = extended(basis, rows), shapes
        self.tasks += 1

    def state_dict(self) -> dict[str, Any]:
        """The basis and the parameters its rows are made of."""
        return {"basis": self.basis, "shapes": dict(self.shapes), "tasks": self.tasks}

    def state_like(self, state: Any, model: Grown) -> Any:
        """A row of the basis has a number for each parameter."""
        shapes = {name: list(model.parameters[name].shape) for name in state["shapes"]}
        width = sum(math.prod(shape) for shape in shapes.values())
        like = next(iter(model.parameters.values()))
        basis = None if state["basis"] is None else like.new_empty(len(state["basis"]), width)
        return {"basis": basis, "shapes": shapes, "tasks": COUNT}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        empty = {name: torch.empty(shape, device="meta") for name, shape in state["shapes"].items()}
        like = next(check_loaded({"shapes": empty}, self.model).parameters())
        self.basis = None if state["basis"] is None else state["basis"].to(like).clone()
        self.shapes, self.tasks = (
            {name: list(shape) for name, shape in state["shapes"].items()},
            int(state["tasks"]),
        )

    def _check(self, model: nn.Module) -> None:
        check_fits(
            {name: torch.empty(shape, device="meta") for name, shape in self.shapes.items()}, model
        )


@torch.no_grad()
def extended(basis: Tensor, rows: Tensor) -> Tensor:
    """An orthonormal basis of what an orthonormal basis and more rows span.

    >>> rows = torch.tensor([[3.0, 4.0, 0.0], [1.0, 0.0, 0.0]])
    >>> extended(torch.tensor([[1.0, 0.0, 0.0]]), rows).abs()
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    length = rows.norm(dim=1, keepdim=True)
    rows = (rows / length.clamp_min(torch.finfo(rows.dtype).tiny))[length[:, 0] > 0]
    for _ in range(2):  # what one pass leaves by rounding, the second takes away
        rows = rows - (rows @ basis.T) @ basis
    rows = rows[rows.norm(dim=1) > TINY]
    if not len(rows):
        return basis
    Q, R = torch.linalg.qr(rows.T)
    # not by the diagonal: later rows may need a direction that an earlier one did not
    new = Q.T[R.abs().amax(1) > TINY]
    new = new - (new @ basis.T) @ basis
    return torch.cat([basis, new / new.norm(dim=1, keepdim=True)])


TINY = 1e-4  # of a direction of length one: what is left of it is rounding


def _shared(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that all tasks share."""
    own = own_by_context(model)
    return {name: p for name, p in trainable(model).items() if p not in own}


def _check_plain(optimizer: Optimizer) -> None:
    bent = any(
        group.get(key) for group in optimizer.param_groups for key in ("momentum", "weight_decay")
    )
    if type(optimizer) is not SGD or bent:
        how = " with momentum or weight decay" if bent else ""
        raise ValueError(
            "OGD follows the projected gradient with plain SGD only, not "
            f"{type(optimizer).__name__}{how}: use partial(torch.optim.SGD, lr=1e-2)."
        )
