"""What a learner refuses, each in a sentence that says what to do."""

from __future__ import annotations

from torch import Tensor
from torch.optim import Optimizer

from ..anatomy.contextual import contexts_of
from ..detection.detector import ContextDetector
from ..parallel.batch import check_shareable
from ..parallel.processes import Processes
from .training import Loss
from .work import Setup

__all__ = ["check_arguments", "check_inferable", "check_served", "check_shared", "loss_of"]


def check_arguments(optimizer: object, precision: object) -> None:
    """Refuse an optimizer in place of a factory, and an unknown precision."""
    if isinstance(optimizer, Optimizer):
        raise TypeError(
            "Learner builds its optimizers itself: give it a factory, such as "
            "partial(torch.optim.Adam, lr=5e-3)."
        )
    if precision not in ("float32", "bf16"):
        raise ValueError(f'precision must be "float32" or "bf16", got {precision!r}.')


def check_served(setup: Setup, served: object) -> None:
    """Refuse a method that was given to another learner since."""
    if setup.method.served is not served:
        raise RuntimeError(
            f"The {type(setup.method).__name__}() object of this learner was given to another "
            "learner since, and now serves its network: give each learner a method of its own."
        )


def check_inferable(setup: Setup, contexts: ContextDetector | None) -> None:
    """Refuse a detector of contexts where there are none, or where ends must be known."""
    name = setup.method.name
    if contexts is not None and contexts_of(setup.model) is None:
        raise ValueError(
            f"Under {name} a network is the same in every context, so none can be inferred: use "
            "known contexts, or a method that has contexts, such as n-gateon."
        )
    if contexts is not None and setup.method.needs_ends:
        raise ValueError(
            f"{name} must be told where a task ends, which is unknown if contexts are inferred: "
            "use known contexts, or another method, such as n-gateon."
        )


def check_shared(setup: Setup, processes: Processes) -> None:
    """Refuse several processes where a batch cannot be shared."""
    if processes.count == 1:
        return
    if setup.method.whole_batch:
        raise ValueError(
            f"{setup.method.name} must see all samples of a batch at once, so that several "
            "processes cannot share it: train with one process, or choose another method, such "
            "as n-gateon."
        )
    check_shareable(setup.model)


def loss_of(loss: Loss, outputs: Tensor, y: Tensor) -> Tensor:
    """The loss of outputs and labels; a label for which there is no output raises ValueError."""
    try:
        return loss(outputs, y)
    except IndexError as reason:
        raise ValueError(
            f"Labels must be between 0 and {outputs.shape[-1] - 1}, got {int(y.min())} to "
            f"{int(y.max())}: give the network an output for each class."
        ) from reason
