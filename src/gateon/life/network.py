"""The network of a living model: one for all tasks, a context and outputs of its own for each.

Every (task, label) is one row of the output layer. A task is learned and asked with its own rows
only, so that the gradient of all others is zero; new labels append rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..learners.learner import Learner
from ..learners.training import optimizer_of
from ..methods.gateon import GateON
from ..networks.cnn import cnn
from ..networks.mlp import mlp
from ..subnetwork.compact import compact
from .settings import Settings

__all__ = ["TaskNetwork", "body", "copied"]

POOLED = 7  # places a side that are left behind the convolutions
AT_ONCE = 256  # samples evaluated together: more leave the cache


def body(shape: Sequence[int], outputs: int, settings: Settings) -> nn.Sequential:
    """A convolutional network for images (C, S, S), a multi-layer perceptron for vectors.

    >>> body((4,), 3, Settings(hidden=(8,)))[-1]
    Linear(in_features=8, out_features=3, bias=True)
    """
    if len(shape) == 1:
        drop = settings.dropout
        return mlp(shape[0], settings.hidden, outputs, input_dropout=drop, dropout=drop)
    pool = max(1, (shape[-1] - 2 * len(settings.channels)) // POOLED)
    return cnn(shape, settings.channels, settings.hidden, outputs, pool=pool)


class TaskNetwork:
    """A gated network whose contexts are tasks.

    Args:
        shape: of one sample.
        settings: of the model.
        outputs: rows of the output layer.
        state: what `state()` gave, perhaps with fewer outputs; None to begin.
    """

    def __init__(
        self,
        shape: Sequence[int],
        settings: Settings,
        outputs: int,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.shape, self.settings, self.outputs = tuple(shape), settings, outputs
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            network = body(shape, outputs, settings)
        self.head = list(network._modules)[-1]
        self.loss = RowsLoss()
        method = GateON(
            per=settings.per,
            rate=settings.rate,
            epsilon=0.0,  # a unit that a task needs never changes again
            density=settings.density,
            seed=settings.seed,
        )
        self.learner = Learner(
            network, optimizer=optimizer_of("adam", settings.lr), method=method, loss=self.loss
        )
        self._folded: dict[int, nn.Module] = {}  # the sub-networks that were asked
        if state is not None:
            self._take(state)

    def state(self) -> dict[str, Any]:
        """The network and its availabilities, as tensors."""
        held = self.learner.state_dict()
        return {"model": dict(held["model"]), "method": held["method"]}

    def grown(self, outputs: int) -> TaskNetwork:
        """The same network with more rows in its output layer."""
        return TaskNetwork(self.shape, self.settings, outputs, self.state())

    def begin(self, context: int, rows: Sequence[int]) -> None:
        """Learn a context from now on, with these rows."""
        self.loss.rows = torch.tensor(rows)
        self._folded.clear()
        self.learner.switch(context)

    def step(self, x: Tensor, y: Tensor, context: int) -> float:
        """Learn a batch; y as `RowsLoss` takes it."""
        return self.learner.observe(x, y, context=context).loss

    @torch.no_grad()
    def logits(self, x: Tensor, context: int, rows: Sequence[int]) -> Tensor:
        """The outputs for the rows of a task, (samples, rows)."""
        network = self.folded(context)
        parts = [network(some)[:, list(rows)] for some in x.split(AT_ONCE)]
        return torch.cat(parts) if parts else torch.zeros(0, len(rows))

    @torch.no_grad()
    def learning_logits(self, x: Tensor, context: int, rows: Sequence[int]) -> Tensor:
        """The same while the context is being learned."""
        return torch.cat(
            [self.learner.predict(some, context)[:, list(rows)] for some in x.split(AT_ONCE)]
        )

    def room(self) -> dict[str, float]:
        """By layer: the mean availability that is left."""
        handle = self.method.handle
        assert handle is not None
        return {name: one.room for name, one in handle.saturation().items()}

    @property
    def method(self) -> GateON:
        """GateON, with its current state."""
        method = self.learner.method
        assert isinstance(method, GateON)
        return method

    def snapshot(self) -> Callable[[], None]:
        """Remember the current state; return a function that restores it."""
        held = copied(self.learner.state_dict())
        return partial(self.learner.load_state_dict, held)

    def folded(self, context: int) -> nn.Module:
        """The active sub-network of a context, plain and folded; made when it is first asked."""
        if context not in self._folded:
            self._folded[context] = compact(self.learner.model, context, fold=True)
        return self._folded[context]

    def _take(self, state: Mapping[str, Any]) -> None:
        fresh = self.learner.state_dict()
        model = dict(state["model"])
        for name in (f"{self.head}.weight", f"{self.head}.bias"):
            model[name] = torch.cat([model[name], fresh["model"][name][len(model[name]) :]])
        self.learner.load_state_dict(fresh | {"model": model, "method": state["method"]})


@dataclass
class RowsLoss:
    """Cross-entropy over the rows of one task.

    Labels are one-hot (samples, rows). Where some rows have no sample, `kept` are those that the
    task knew before, and y has as many columns again: what the network said of them before. Then

        L = - sum_r y_r log p_r - sum_kept q_r log p(r | kept),  q: said before

    (learning without forgetting, Li and Hoiem 2016, over the labels that are away).

    >>> loss = RowsLoss(rows=torch.tensor([1, 2]))
    >>> round(loss(torch.zeros(1, 4), torch.tensor([[1.0, 0.0]])).item(), 4)
    0.6931
    """

    rows: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch."""
        count = len(self.rows)
        own = outputs[:, self.rows]
        loss = F.cross_entropy(own, y[:, :count])
        if y.shape[1] > count:
            before = y[:, count:]
            loss = loss + F.cross_entropy(own[:, : before.shape[1]], before)
        return loss


def copied(value: Any) -> Any:
    """A state whose tensors are copies."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    return value
