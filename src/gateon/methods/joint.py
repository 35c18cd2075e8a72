"""Joint training: everything is kept and learned together. The upper bound of a single network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from .replay import Replay
from .shared.samples import Balance

__all__ = ["Joint"]


@dataclass
class Joint(Replay):
    """Multi-task training (Caruana 1997): task k learns all samples of tasks 1 to k.

    It is replay that keeps everything and weighs the k tasks alike, L_new / k + (k - 1) / k L_old,
    with L_old over samples drawn from all past tasks alike: samples count equally if tasks are of
        equal size. Its state holds all the data.

    >>> Joint().name, Joint().replay, Joint().memory
    ('joint', True, None)
    """

    memory: None = field(default=None, init=False)
    balance: Balance = field(default="reservoir", init=False)
    share: Literal["half", "tasks"] = field(default="tasks", init=False)
    loss: Callable[[Tensor, Tensor], Tensor] = field(default=F.cross_entropy, repr=False)
    seed: int = 0

    name = "joint"
