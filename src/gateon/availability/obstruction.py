"""The hooks that scale the updates of an optimizer by availability, and the state they keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..anatomy.shards import full, local, over_pieces, piece
from ..anatomy.sites import Site
from ..gating.gates import Gates
from ..gating.growth import grow_memory, pad_gradient
from ..markup import block, table
from ..parallel.batch import sum_in_place
from . import rule as availability
from .books import Books
from .ledgers import ParameterLedger, UnitLedger
from .observers import OwnGradients
from .optimizers import check_gradients, checked_optimizers, evaluate_closure, skips_step
from .room import Pace, tasks_left
from .settings import Rules, require

__all__ = ["Obstruction", "Saturation"]


class Saturation(NamedTuple):
    """How full a layer is.

    Args:
        frozen: The share of availabilities below a threshold.
        room: Their mean.
        tasks: How many more tasks fit, infinite if nothing has been taken yet.
    """

    frozen: float
    room: float
    tasks: float


class Obstruction:
    """What `obstruct` returns: the availabilities, and the hooks that apply them.

    A step of the optimizer then looks like this:

    1. Run the closure, if there is one, so that its gradients exist.
    2. Before the first optimizer of a backward pass moves anything, measure the relevance of every
       unit or parameter, check that it is finite, and move the running availabilities by it.
    3. Remember the value of each parameter whose update is to be scaled.
    4. The optimizer takes its step.
    5. theta <- lerp(theta before, theta after, A); what belongs to a closed rank has A = 0.
    6. Restore the gates of contexts that took no part: momentum and decay must not move them.
    7. After the last optimizer, and with apply="step", the running availabilities take effect.

    Args:
        gates: What `attach` returned.
        rules: The arguments of `obstruct`.
    """

    def __init__(self, gates: Gates, rules: Rules) -> None:
        self.gates, self.rules = gates, rules
        self.steps = 0
        self.optimizers: list[Optimizer] = []
        # Called in every step once the relevances are known and A has moved by them.
        self.watchers: list[Callable[[], None]] = []
        self._books = Books(gates, rules)
        self.pace = Pace()
        # Of the current step: what scales each parameter, which rows of each gate may move, and
        # the values before the step.
        self._scales: dict[nn.Parameter, Tensor] = {}
        self._rows: dict[nn.Parameter, Tensor] = {}
        self._before: dict[nn.Parameter, Tensor] = {}
        self._contexts = [gates.learning_rows]  # those switched to since the last step
        self._measured: list[UnitLedger | ParameterLedger] = []
        self._stepped: list[Optimizer] = []
        self._hooks: list[Any] = []
        self._exact_only = False
        require(
            bool(self._books.owners) or bool(self._books.frozen),
            "Nothing in this model has an availability, since it has output layers only: "
            "pass head=True to obstruct them.",
        )
        try:
            self._books.observe()
        except ValueError:
            self.remove()
            raise
        gates.listeners.append(self)

    @property
    def availability(self) -> dict[str, Tensor]:
        """Running A: by site (units,), and by name for parameters that have their own."""
        return {name: running for ledger in self.ledgers() for name, running, _ in ledger.entries()}

    @property
    def applied(self) -> dict[str, Tensor]:
        """The A that scales updates now: the running one, or that of the last switch."""
        return {name: applied for ledger in self.ledgers() for name, _, applied in ledger.entries()}

    def ledgers(self) -> list[UnitLedger | ParameterLedger]:
        """Every ledger: of units, then of parameters."""
        return self._books.ledgers()

    def take_on(self) -> None:
        """Start tracking parameters added since, such as the output layers of new tasks."""
        self._books.take_on()

    def scale_of(self, parameter: nn.Parameter) -> Tensor | None:
        """What scales the updates of a parameter, shaped to multiply it; None if nothing does."""
        tracked = parameter in self._books.frozen or parameter in self._books.owners
        return self._books.scale_of(parameter) if tracked else None

    def expect(self, steps: int | None = None, tasks: int | None = None) -> None:
        """Announce the next task, before the switch to its context.

        `rate="room"` and `gather_after` ask how long tasks are. Unannounced, a task is taken to be
        as long as the one before, and how many will come to be unknown.

        Args:
            steps: How many it has.
            tasks: How many tasks there are in all, if that is known.
        """
        self.pace.expect(steps, tasks)

    def room(self, site: Site) -> Tensor | None:
        """How available each unit of a site is; None if unknown.

        It is the unit's A or, per parameter, the mean over the weights it reads with.
        """
        return self._books.room(site)

    def saturation(self, threshold: float = 0.05) -> dict[str, Saturation]:
        """By site: the share of availabilities below the threshold, their mean, and a forecast.

        The forecast is how many more tasks fit before the mean falls below the threshold too: see
        `gateon.availability.room.tasks_left`.
        """
        parts: dict[str, list[Tensor]] = {}
        for ledger in self.ledgers():
            flat = [full(A).flatten() for _, A, _ in ledger.entries()]
            parts.setdefault(ledger.site.name, []).extend(flat)
        joined = {name: torch.cat(tensors) for name, tensors in parts.items()}
        return {
            name: Saturation(
                availability.saturation(A, threshold),
                room := availability.room(A),
                tasks_left(room, self.pace.so_far, threshold),
            )
            for name, A in joined.items()
        }

    def __repr__(self) -> str:
        """How much room is left, and where least."""
        left = {name: one.room for name, one in self.saturation().items()}
        scarce = min(left, key=lambda name: left[name])
        per = f"per {self.rules.per}, {self.steps} steps"
        return f"<Obstruction {per}: least room {left[scarce]:.3f} at {scarce!r}>"

    def _repr_html_(self) -> str:
        rows = [
            [name or "(model)", f"{100 * room:.1f} %", f"{100 * frozen:.1f} %"]
            for name, (frozen, room, _) in self.saturation().items()
        ]
        note = f"availability per {self.rules.per}, after {self.steps} steps"
        return block("Obstruction", table(("site", "room left", "frozen"), rows), note=note)

    def follow(self, optimizer: Optimizer | Sequence[Optimizer]) -> None:
        """Scale the updates of this optimizer instead of the previous one; A stays as it is."""
        optimizers = checked_optimizers(optimizer, self.gates)
        if self._books.is_of_whole_parameters():
            self._start_anew()
        decays = any(group.get("weight_decay") for one in optimizers for group in one.param_groups)
        require(
            not (self._exact_only and decays),
            "Weight decay would also move units left out of the sub-network: set it to 0, "
            "or train the whole model.",
        )
        self.optimizers = optimizers
        self.take_on()
        self.gates.orphaned = False
        self._begin_step()
        self._remove_hooks()
        for one in self.optimizers:
            self._hooks.append(one.register_step_pre_hook(self._before_step))
            self._hooks.append(one.register_step_post_hook(self._after_step))

    def _start_anew(self) -> None:
        """Keep books of other parameters of the same names: the model was sharded since."""
        state = self.state_dict()
        self._books.stop_observing()
        self._books = Books(self.gates, self.rules)
        self._books.observe()
        self._before.clear()
        self.load_state_dict(state)

    def keep_exact(self) -> None:
        """Refuse optimizers with weight decay from now on: these are the A of a sub-network."""
        self._exact_only = True

    def remove(self) -> None:
        """Stop scaling and observing: the optimizer is plain again."""
        self._remove_hooks()
        self._books.stop_observing()
        if self in self.gates.listeners:
            self.gates.listeners.remove(self)

    # State.

    def state_dict(self) -> dict[str, Tensor]:
        """Running and applied A, steps in total and since the last switch, context, firing rates.

        Of a sharded model it is the whole state, for which all processes ask at the same time.
        """
        advances = torch.tensor([count for ledger in self.ledgers() for count in ledger.advances])
        state = {
            "steps": torch.tensor(self.steps),
            "advances": advances,
            "context": self.gates.learning_rows.clone(),
            "pace": self.pace.state(),
        }
        for ledger in self.ledgers():
            for name, running, applied in ledger.entries():
                whole = full(running).clone(), full(applied).clone()
                state |= {f"{name}:running": whole[0], f"{name}:applied": whole[1]}
        return state | {f"{name}:rates": rates.clone() for name, rates in self._rates().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned; a state that does not fit changes nothing.

        It makes no difference whether the gates are switched to that context before or after: the
        applied availabilities are those of the state.
        """
        self.take_on()
        mine, state = self.state_dict(), self._upgraded(state)
        for key in (mine | state).keys() - {"context"}:
            fits = key in mine and key in state and _alike(mine[key], state[key])
            require(
                fits,
                f"These availabilities belong to another model or view: {key!r} is missing, "
                "unknown or has another shape or dtype.",
            )
        advances = iter(state["advances"].tolist())
        for ledger in self.ledgers():
            for name, running, applied in ledger.entries():
                for now, kept in ((running, "running"), (applied, "applied")):
                    local(now).copy_(piece(state[f"{name}:{kept}"], now))
            ledger.take_stock()
            ledger.advances = [next(advances) for _ in ledger.advances]
        for name, rates in self._rates().items():
            rates.copy_(state[f"{name}:rates"])
        self.steps = int(state["steps"])
        self.pace.load(state["pace"])
        self.gates.resume(state["context"])
        self._begin_step()
        self._books.set_rates()
        self._books.forget_open()

    def _rates(self) -> dict[str, Tensor]:
        """The firing rates of the units of each site, if relevance is made of them."""
        return {one.site.name: one.rates for one in self._books.units if one.rates is not None}

    def _upgraded(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert an older state, which has no pace, no context and one count of advances per ledger."""
        since = {"context": self.gates.learning_rows, "pace": Pace().state()}
        now, advances = since | dict(state), state.get("advances")
        if advances is not None and advances.shape == (len(self.ledgers()),):
            per_ledger = zip(self.ledgers(), advances.tolist(), strict=True)
            counts = [count for ledger, count in per_ledger for _ in ledger.advances]
            now["advances"] = torch.tensor(counts)
        return now

    # Called by the gates.

    def switched(self) -> None:
        """Apply the running availabilities of this moment: the context has changed."""
        for ledger in self.ledgers():
            ledger.snapshot()
        self.pace.switch()
        self._books.set_rates()
        self._books.forget_open()
        self._contexts.append(self.gates.learning_rows)

    def context_added(self) -> None:
        """Give the optimizers' memory of every gate one more row, as the gates have now."""
        for gate in self.gates.gates.values():
            assert gate.weight is not None
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    if any(p is gate.weight for p in group["params"]):
                        grow_memory(optimizer.state.get(gate.weight, {}), len(gate.weight), group)

    # One step.

    @torch.no_grad()
    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        args, kwargs = evaluate_closure(args, kwargs)
        if skips_step(optimizer):
            return args, kwargs
        if optimizer in self._stepped:  # it steps again before the others did
            self._finish()
        if not self._stepped:
            self._measure()
        books, groups = self._books, optimizer.param_groups
        moving = [p for group in groups for p in group["params"] if p.grad is not None]
        gates = [p for p in moving if p in books.gate_weights and p.shape[0] > 1]
        for weight in gates:
            pad_gradient(weight)
        contexts = self._took_part()
        scales = ((p, self._scale_now(p, contexts)) for p in moving)
        self._scales = {p: A for p, A in scales if A is not None}
        self._rows = {weight: self._rows_that_move(weight) for weight in gates}
        if self.rules.scale == "gradient":
            for parameter, A in self._scales.items():
                assert parameter.grad is not None
                local(parameter.grad).mul_(A)
            self._scales.clear()
        for parameter in (*self._scales, *self._rows):
            self._remember(parameter)
        return args, kwargs

    @torch.no_grad()
    def _after_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if skips_step(optimizer):
            return
        for parameter, A in self._scales.items():
            held = local(parameter)
            torch.lerp(self._before[parameter], held, A, out=held)
            if parameter in self._books.resting:  # the backward pass needs the room of adapters
                del self._before[parameter]
        for weight, rows in self._rows.items():
            held = local(weight)
            torch.where(rows, held, self._before[weight], out=held)
        self._stepped.append(optimizer)
        if len(self._stepped) == len(self.optimizers):
            self._finish()

    def _begin_step(self) -> None:
        """Forget which contexts took part in the previous step."""
        self._contexts = [self.gates.learning_rows]
        self.gates.passed.clear()

    def _scale_now(self, parameter: nn.Parameter, contexts: tuple[int, ...]) -> Tensor | None:
        """What scales a parameter in a step of these contexts; None if it moves freely."""
        is_open = self._books.open_part(parameter, contexts)
        if self._books.is_plastic(parameter):
            return is_open
        A = self._books.scale_of(parameter)
        return A if is_open is None else A * is_open

    def _took_part(self) -> tuple[int, ...]:
        """The contexts in which the model was run since the last step.

        Where forward passes cannot be noted (a compiled model), those switched to.
        """
        switched = (int(k) for learned in self._contexts for k in learned.reshape(-1))
        return tuple(sorted(self.gates.passed or set(switched)))

    def _rows_that_move(self, weight: nn.Parameter) -> Tensor:
        """Which rows of a gate the current step may move, (contexts, 1).

        Those of the contexts in which the model was run since the last step. The gradient alone
        does not tell: it may be zero in the context being learned, and decay may have been added to
        it. It only decides between several contexts, or where forward passes cannot be noted (a
        compiled model): then the contexts switched to since the last step are candidates.
        """
        assert weight.grad is not None
        rows = torch.zeros(len(weight), 1, dtype=torch.bool, device=weight.device)
        passed, which = self.gates.passed, self._took_part()
        rows[which[0] if len(which) == 1 else list(which)] = True  # one is much faster than a list
        sure = len(passed) == 1 or (not passed and len(self._contexts) == 1)
        rows = piece(rows, weight)
        return rows if sure else rows & local(weight.grad).any(1, keepdim=True)

    def _measure(self) -> None:
        """Measure all relevances, check that they are finite, and only then move A."""
        # Of the whole batch, where several processes train together, in one message.
        observers = [ledger.observer for ledger in self._books.units if ledger.observer]
        taps = [one.tap for one in observers if not isinstance(one, OwnGradients)]
        sum_in_place([tap.grad for tap in taps if tap.grad is not None])
        self._books.spend(self.pace)
        sums = {}
        for ledger in self.ledgers():
            ledger.to(next(iter(self._books.owners)).device)
            if (measured := ledger.measure()) is not None:
                sums[ledger] = measured
        # A finite sum of a layer's relevances shows that its gradients are finite.
        measured_layers = [one for one in self._books.layers if one in sums]
        if measured_layers:  # of all pieces, where parameters are sharded
            of_layers = over_pieces(
                torch.stack([sums[one] for one in measured_layers]), self._books.owners
            )
            sums |= dict(zip(measured_layers, of_layers, strict=True))
        covered = {p for one in measured_layers if not one.rule.is_still for p in one.names}
        groups = [group for one in self.optimizers for group in one.param_groups]
        moving = (p for group in groups for p in group["params"])
        check_gradients([p for p in moving if p not in covered], self.steps)
        totals = torch.stack(list(sums.values())).tolist() if sums else []
        for ledger, total in zip(sums, totals, strict=True):
            if not total < float("inf"):
                raise FloatingPointError(
                    f"The relevance at site {ledger.site.name!r} is not finite in step "
                    f"{self.steps}, because a loss or gradient is not. Nothing was changed: "
                    "lower the learning rate, or skip this batch."
                )
        if self.pace.after_step(self.rules.gather_after) <= 0:  # too early in the task to count
            return
        moved = {ledger: ledger.advance(total) for ledger, total in zip(sums, totals, strict=True)}
        self._measured = [ledger for ledger, has_moved in moved.items() if has_moved]
        for watcher in self.watchers:
            watcher()

    def _finish(self) -> None:
        """End the step: all optimizers have moved."""
        for ledger in self._measured:
            ledger.stepped()
        self._measured.clear()
        self._stepped.clear()
        self._begin_step()
        self.steps += 1
        self.pace.step()

    def _remember(self, parameter: nn.Parameter) -> None:
        """Copy the value before the step, into the same memory each time."""
        kept, now = self._before.get(parameter), local(parameter)
        if kept is None or kept.device != now.device or not _alike(kept, now):
            self._before[parameter] = now.detach().clone()
        else:
            kept.copy_(now)

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._stepped.clear()


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype
