"""A callback for the Trainer of Lightning: learn each task in its own context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ...availability.obstruct import Obstruction, obstruct, obstruction_of
from ...gating.attach import attach
from ...gating.gates import Gates
from ...tracking.scalars import availability_scalars
from .names import Callback

__all__ = ["GateONCallback", "attach_network"]


def attach_network(module: nn.Module) -> Gates:
    """Attach gates to the network of a LightningModule: its only child with parameters, or itself.

    >>> module = nn.Module()
    >>> module.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> module.loss = nn.CrossEntropyLoss()
    >>> attach_network(module).model is module.net
    True
    """
    learned = [child for child in module.children() if next(child.parameters(), None) is not None]
    return attach(learned[0] if len(learned) == 1 else module)


class GateONCallback(Callback):  # type: ignore[misc,unused-ignore]
    """Learns in one context during a fit.

    For example::

        trainer = lightning.Trainer(callbacks=[GateONCallback(context=0)])
        trainer.fit(module, books)

    For the next task use the same module, a new Trainer and `GateONCallback(context=1)`. Gates are
    part of the module and so of its weights; availabilities are saved with the callbacks of a
    checkpoint. `trainer.fit(module, books, ckpt_path=...)` goes on as if nothing had happened.

    How available the units of every site are, and what share of them is frozen, is logged with what
    the module logs, every `log_every_n_steps`: as `availability/SITE` and `saturation/SITE`.

    Args:
        context: The context of this task; contexts that do not exist yet are added.
        contexts: The context of each data loader in validation, in test and in prediction, in their
            order; without it all are looked at in the active one.
        attach: Attaches gates to a LightningModule that has none, before its optimizers are built.
        obstruct: Obstructs its optimizers, such as `partial(gateon.obstruct, per="parameter")`.
        log: Whether to log availabilities.
    """

    def __init__(
        self,
        context: int = 0,
        *,
        contexts: Sequence[int] = (),
        attach: Callable[[Any], Gates] = attach_network,
        obstruct: Callable[[list[Optimizer], Gates], Obstruction] = obstruct,
        log: bool = True,
    ) -> None:
        self.context, self.contexts = context, tuple(contexts)
        self.logs = log  # Lightning itself sets the log of a callback
        self.attach, self.obstruct = attach, obstruct
        for index in (context, *self.contexts):
            if index < 0:
                raise ValueError(f"A context must be an index of at least 0, got {index}.")
        self.handle: Obstruction | None = None
        self._loaded: Mapping[str, Any] | None = None
        self._before: Any = None  # the context that was shown before a data loader's own

    # Called by Lightning.

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Attach the gates before Lightning builds optimizers or wraps the module."""
        gates = gates_inside(pl_module)
        if gates is None:
            if stage != "fit":
                return
            gates = self.attach(pl_module)
        while gates.contexts <= max(self.context, *self.contexts, 0):
            gates.add_context()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Switch to the context, and obstruct the optimizers."""
        gates = _found(pl_module)
        self.handle = obstruction_of(gates)
        if self.handle is None:
            self.handle = self.obstruct(list(trainer.optimizers), gates)
        else:
            self.handle.follow(list(trainer.optimizers))
        gates.switch(self.context)
        if self._loaded is not None:
            self.handle.load_state_dict(self._loaded)
            self._loaded = None
        elif trainer.ckpt_path:
            raise ValueError(
                f"The checkpoint {trainer.ckpt_path} has no availabilities, since it was saved "
                "without GateONCallback: fit without the callback, or start anew."
            )

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log availabilities, at the steps that are logged: to measure them takes time."""
        if self.logs and self.handle is not None and trainer._logger_connector.should_update_logs:
            values = availability_scalars(self.handle)
            pl_module.log_dict(values, on_step=True, on_epoch=False)

    def state_dict(self) -> dict[str, Any]:
        """The availabilities, for a checkpoint."""
        return {} if self.handle is None else self.handle.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the availabilities of a checkpoint until there is an optimizer to obstruct."""
        self._loaded = state_dict or None

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Show the context of this data loader."""
        self._show(pl_module, dataloader_idx)

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Show again what was shown before."""
        self._show_again(pl_module)

    on_test_batch_start = on_predict_batch_start = on_validation_batch_start
    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Show again what was shown before, if an evaluation failed."""
        if gates_inside(pl_module) is not None:
            self._show_again(pl_module)

    def _show(self, module: nn.Module, loader: int) -> None:
        if not self.contexts:
            return
        if loader >= len(self.contexts):
            raise ValueError(
                f"contexts= names {len(self.contexts)} data loaders, and there are more: add the "
                f"context of data loader {loader}."
            )
        gates = _found(module)
        self._before = gates.context
        gates.show(self.contexts[loader])

    def _show_again(self, module: nn.Module) -> None:
        if self._before is not None:
            _found(module).show(self._before)
            self._before = None


def gates_inside(module: nn.Module) -> Gates | None:
    """The gates of a LightningModule or of a network in it; None if there are none."""
    found = (m.__dict__["context_gates"] for m in module.modules() if "context_gates" in m.__dict__)
    return next(found, None)


def _found(module: nn.Module) -> Gates:
    gates = gates_inside(module)
    if gates is None:
        raise ValueError(
            "The module has no gates: pass the callback in Trainer(callbacks=[...]), fit before "
            "you evaluate, and do not detach() the gates in between."
        )
    return gates
