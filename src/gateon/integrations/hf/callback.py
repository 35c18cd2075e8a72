"""A callback for the Trainer of transformers: learn each task in its own context."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from torch.optim import Optimizer

from ...anatomy.shards import is_sharded
from ...availability.obstruct import Obstruction, Rules, View, obstruction_of
from ...gating.gates import Gates, gates_of
from ...methods.gateon import first_rate
from ...storage import checkpoint
from ...tracking.scalars import availability_scalars
from .encoders import LANGUAGE, attach
from .saving import FILE, gate_weights, is_saveable, load_gates, save_gates

__all__ = ["GateONCallback"]

KEY = "gateon"  # in the first parameter group of a saved optimizer
GATE = "gate:"  # there, the prefix of the names of gates, to tell them from availabilities


class GateONCallback(transformers.TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Learns a task in its own context.

    For example::

        trainer = Trainer(
            model=model, args=args, train_dataset=reviews, callbacks=[GateONCallback(context=0)]
        )
        trainer.train()

    For the next task use the same model, a new Trainer and `GateONCallback(context=1)`. A model
    without gates gets those of `gateon.hf.attach`, and so does every model of `model_init`.

    To evaluate earlier tasks along with this one, pass `eval_dataset={"books": ..., "films": ...}`
    and `GateONCallback(context=1, contexts={"books": 0, "films": 1})`, or look at one with
    `gateon.gates_of(model).show(0)`.

    Gates and availabilities are saved with the optimizer of a checkpoint, so that
    `resume_from_checkpoint` continues as if nothing had happened, wherever that checkpoint lies.
    They are also saved beside the weights, in checkpoints and by `trainer.save_model`, for
    `gateon.hf.from_pretrained`.

    What the Trainer logs in training then also has how available the units of every site are and
    what share of them is frozen, as `availability/SITE` and `saturation/SITE`, in whatever it
    reports to.

    Args:
        context: The context of this task; contexts that do not exist yet are added.
        contexts: The context in which each named data set is evaluated; all others are evaluated in
            the active one.
        per: "unit" (n-GateON) or "parameter" (p-GateON).
        rate: eta_A; doubled in context 0 if its task has fewer than 50 steps.
        epsilon: Relevance below it unfreezes.
        head: Whether to obstruct the output layers too.
        log: Whether to add availabilities to what the Trainer logs.
    """

    def __init__(
        self,
        context: int = 0,
        *,
        contexts: Mapping[str, int] | None = None,
        per: View = "unit",
        rate: float = float(LANGUAGE.rate),  # type: ignore[arg-type]
        epsilon: float = LANGUAGE.epsilon,
        head: bool = LANGUAGE.obstruct_head,
        log: bool = True,
    ) -> None:
        self.context, self.contexts = context, contexts or {}
        self.per, self.rate, self.epsilon, self.head, self.log = per, rate, epsilon, head, log
        for index in (context, *self.contexts.values()):
            if index < 0:
                raise ValueError(f"A context must be an index of at least 0, got {index}.")
        self.handle: Obstruction | None = None
        self._hook: Any = None

    def on_init_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Attach the gates before Trainer builds its optimizer."""
        self._gated(given["model"])
        if (trainer := _calling_trainer()) is not None:
            self._patch(trainer)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Switch to the context, and obstruct the optimizer inside Accelerate's wrapper."""
        gates = gates_of(given["model"])
        if gates is None:
            raise ValueError(
                "The model has no gates: pass the callback in Trainer(callbacks=[...]) rather than "
                "adding it later, and do not detach() or replace the model in between."
            )
        if any(is_sharded(p) for p in gates.model.parameters()):
            raise ValueError(
                "Trainer has sharded this model, and its checkpoints would hold pieces of "
                "availabilities: leave fsdp out for DistributedDataParallel, or call fully_shard in "
                "a loop of your own."
            )
        inner = _unwrapped(given["optimizer"])
        self.handle = self._obstruction(gates, state.max_steps)
        self.handle.follow(inner)
        gates.switch(self.context)
        saved = inner.param_groups[0].pop(KEY, None)
        if saved is not None:
            names = [key for key in saved if key.startswith(GATE)]
            load_gates(gates, {key.removeprefix(GATE): saved[key] for key in names})
            self.handle.load_state_dict({k: v for k, v in saved.items() if k not in names})
        elif state.global_step > 0:
            raise ValueError(
                f"The checkpoint of step {state.global_step} has no availabilities, since it was "
                "saved without GateONCallback: resume without the callback, or start anew."
            )
        self._hook = inner.register_state_dict_post_hook(self._save_with)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Stop saving with the optimizer; bring back the best step with its availabilities."""
        if self._hook is not None:
            self._hook.remove()
        best = Path(state.best_model_checkpoint or "", FILE)
        if self.handle is not None and args.load_best_model_at_end and best.is_file():
            # Trainer has restored the weights, but the files of adapters hold no gates.
            kept = checkpoint.load(best, only=["gates", "availability"])
            load_gates(self.handle.gates, kept["gates"])
            self.handle.load_state_dict(kept["availability"])

    def _gated(self, model: Any) -> Any:
        """Attach gates to the model if it has none, and add the contexts this callback needs."""
        gates, wanted = gates_of(model), 1 + max(self.context, *self.contexts.values(), 0)
        if gates is None:
            gates = attach(model, wanted)
        while gates.contexts < wanted:
            gates.add_context()
        return model

    def _patch(self, trainer: Any) -> None:
        """Wrap what Trainer has no callbacks for: new models, saving, evaluating, adding to logs."""
        named = trainer.eval_dataset if isinstance(trainer.eval_dataset, dict) else {}
        missing = next((name for name in named if name not in self.contexts), None)
        if self.contexts and missing is not None:
            raise ValueError(
                f"contexts= does not name the data set {missing!r}: "
                "add the context in which to evaluate it."
            )
        new_model, save_model = trainer.call_model_init, trainer.save_model
        evaluation_loop, log = trainer.evaluation_loop, trainer.log

        def call_model_init(trial: Any = None) -> Any:
            return self._gated(new_model(trial))

        def save_with_gates(output_dir: str | None = None, _internal_call: bool = False) -> None:
            save_model(output_dir, _internal_call)
            is_gated = gates_of(trainer.model) is not None
            if trainer.args.should_save and is_gated and is_saveable(trainer.model):
                save_gates(trainer.model, output_dir or trainer.args.output_dir)

        def evaluate_in_context(
            dataloader: Any,
            description: str,
            prediction_loss_only: bool | None = None,
            ignore_keys: list[str] | None = None,
            metric_key_prefix: str = "eval",
        ) -> Any:
            with self._shown(trainer.model, metric_key_prefix):
                return evaluation_loop(
                    dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
                )

        def log_with_availability(logs: dict[str, float], start_time: float | None = None) -> None:
            if self.log and self.handle is not None and "loss" in logs:
                logs |= availability_scalars(self.handle)
            log(logs, start_time)

        trainer.call_model_init, trainer.save_model = call_model_init, save_with_gates
        trainer.evaluation_loop, trainer.log = evaluate_in_context, log_with_availability

    @contextmanager
    def _shown(self, model: Any, prefix: str) -> Iterator[None]:
        """Show the context of the data set whose name ends the prefix of its metrics."""
        gates = gates_of(model)
        names = [name for name in self.contexts if f"_{prefix}".endswith(f"_{name}")]
        if gates is None or not names:
            yield
            return
        before = gates.context
        gates.show(self.contexts[max(names, key=len)])
        try:
            yield
        finally:
            gates.show(before)

    def _obstruction(self, gates: Gates, steps: int) -> Obstruction:
        """The obstruction of earlier tasks, or a new one."""
        handle = obstruction_of(gates)
        if handle is None:
            rules = Rules(
                per=self.per,
                rate=self.rate,
                epsilon=self.epsilon,
                floor=0.0,
                relevance="gradient",
                apply="switch",
                scale="update",
                head=self.head,
                frozen=(),
                bias_apart=False,
                first_rate=first_rate(steps, self.rate) if self.context == 0 else None,
            )
            return Obstruction(gates, rules)
        per = handle.rules.per
        if per != self.per:
            raise ValueError(f"This model has availabilities per {per}: pass per={per!r}.")
        return handle

    def _save_with(self, optimizer: Optimizer, saved: dict[str, Any]) -> None:
        # Unknown entries of parameter groups survive Optimizer.load_state_dict, which Trainer calls
        # before this callback. Gates are saved here too, because of a model with adapters Trainer
        # saves the adapters only.
        if self.handle is not None:
            weights = gate_weights(self.handle.gates)
            gates = {GATE + name: weight.clone() for name, weight in weights.items()}
            saved["param_groups"][0][KEY] = self.handle.state_dict() | gates


def _calling_trainer() -> Any:
    """The Trainer up the call stack, which does not pass itself to callbacks; None if not found."""
    frame = inspect.currentframe()
    while frame is not None and not isinstance(frame.f_locals.get("self"), transformers.Trainer):
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]


def _unwrapped(optimizer: Any) -> Optimizer:
    """The optimizer inside Accelerate's wrapper."""
    while not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        optimizer = optimizer.optimizer
    inner: Optimizer = optimizer
    return inner
