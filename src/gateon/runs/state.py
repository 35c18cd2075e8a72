"""The state of a run, as its checkpoints hold it: where it is, what it found, what was learned.

Everything is checked before any of it is loaded: an intact file may still belong to something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, get_type_hints

from ..learners.protocol import AnyLearner
from ..storage.states import ANYTHING, FLAG, Whole, check, check_fits, values_like
from .as_json import are_times, fits
from .plan import Plan
from .record import Record
from .tables import packed, unpacked

__all__ = ["Held", "Position", "found_in", "held_in", "is_state", "state_of"]

# What is kept of the record while it grows, but for times.
FOUND = (
    *("tasks", "identities", "contexts", "switches", "accuracy", "macro_f1"),
    *("density", "availability", "curves", "losses", "labels", "samples"),
)
TABLES = ("accuracy", "macro_f1")
ALONE = ("isolated", "isolated_macro_f1")  # which may come to be known later
KEPT = (*FOUND, *ALONE)
HINTS = get_type_hints(Record)


@dataclass
class Position:
    """Where a run is.

    Args:
        task: how many tasks are learned and measured.
        step: how many batches of the next are learned.
        ended: whether the method was told that this task is over.
        identities: of the tasks so far, to recognise one that returns.
    """

    task: int = 0
    step: int = 0
    ended: bool = False
    identities: list[int] = field(default_factory=list)

    def next_task(self) -> None:
        """Move on to the beginning of the next task."""
        self.task, self.step, self.ended = self.task + 1, 0, False


@dataclass(frozen=True)
class Held:
    """What a checkpoint holds beside the learner.

    Args:
        position: where the run was.
        found: fields of the record by name.
        trained: seconds of training in the task that was begun.
        seconds: of every task that is over.
    """

    position: Position
    found: dict[str, Any]
    trained: float
    seconds: list[dict[str, float]]


def state_of(
    record: Record, position: Position, trained: float, learner: AnyLearner, tasks: int
) -> dict[str, Any]:
    """The state of a run with this many tasks."""
    return {
        "specification": record.specification,
        "data": record.data,
        "numerics": record.numerics,
        "inputs": {"shape": record.shape, "classes": record.classes, "tasks": tasks},
        "position": asdict(position),
        "found": {name: getattr(record, name) for name in KEPT}
        | {name: packed(getattr(record, name)) for name in TABLES},
        # apart: all else is equal in equal runs
        "times": {"trained": trained, "seconds": record.seconds},
        "learner": learner.state_dict(),
    }


def is_state(state: Mapping[str, Any]) -> bool:
    """Whether something has the parts of a run's state."""
    parts = ("specification", "data", "position", "found", "learner")
    return all(isinstance(state.get(part), dict) for part in parts) and isinstance(
        state.get("times", {}), dict
    )


def held_in(
    state: Mapping[str, Any], plan: Plan, *, inferred: bool, separate: bool, same_length: bool
) -> Held:
    """What a state holds; ValueError says what is wrong with it.

    Args:
        state: as `state_of` made it, perhaps long ago: with schema 1 the times were in the other
            parts.
        plan: of the run that resumes from it.
        inferred: whether contexts are inferred.
        separate: whether contexts have networks of their own.
        same_length: whether the state is of a run with as many tasks.
    """
    position = {"ended": False} | state["position"]
    times = state.get("times") or {
        "trained": position.pop("trained", None),
        "seconds": state["found"].get("seconds"),
    }
    check(position.get("task"), Whole(0, plan.tasks), "position task")
    task = position["task"]
    found = found_in(state)
    if not same_length:
        found |= dict.fromkeys(ALONE)  # these are of all tasks
    _check_position(position, len(found["tasks"]), plan)
    _check_contexts(position, found, state["learner"], plan.tasks, inferred=inferred)
    _check_tables(found, task, plan.tasks)
    _check_times(times, task)
    if not separate:
        found |= {name: _as_planned(found[name], plan) for name in TABLES}
    return Held(Position(**position), found, times["trained"], times["seconds"])


def _of_older(found: Mapping[str, Any]) -> dict[str, Any]:
    """What older states lack."""
    begun = len(found["tasks"]) if isinstance(found.get("tasks"), list) else 0
    later = {"labels": [[]] * begun, "losses": [[]] * begun, "samples": [0] * begun, "switches": []}
    return {**dict.fromkeys(ALONE), "identities": found.get("contexts"), **later}


def _as_planned(rows: list[list[float | None]], plan: Plan) -> list[list[float | None]]:
    """Without what was measured only because a task was to be the last one."""
    planned: list[list[float | None]] = []
    for k, row in enumerate(rows):
        planned.append(row if plan.measures_all(k) else [*[None] * k, row[k]])
    return planned


def found_in(state: Mapping[str, Any]) -> dict[str, Any]:
    """Everything found, by field of the record, of the right kinds and with its tables in full."""
    held, task = state["found"], state["position"].get("task")
    check(task, Whole(0), "position task")
    found = {name: value for name, value in held.items() if name != "seconds"}  # of schema 1
    found = _of_older(held) | found
    check_fits(found, lambda found: dict.fromkeys(KEPT, ANYTHING))
    try:
        full = {**found, **{name: unpacked(found[name], (task + 1) ** 2) for name in TABLES}}
    except KeyError as reason:
        raise ValueError("found has tables with gaps") from reason
    for name in KEPT:
        if not fits(full[name], HINTS[name]):
            raise ValueError(f"found {name} is of another kind")
    return full


def _check_position(position: Mapping[str, Any], begun: int, plan: Plan) -> None:
    task, identities = position["task"], position.get("identities")
    last = [*plan.steps, 0][task] if begun > task else 0
    whole = Whole(-(1 << 63), 1 << 63)
    like = [whole for _ in identities] if isinstance(identities, list) else []
    check(
        position,
        {"task": ANYTHING, "step": Whole(0, last), "ended": FLAG, "identities": like},
        "position",
    )
    check(begun, Whole(task, min(task + 1, plan.tasks)), "found tasks")


def _check_contexts(
    position: Mapping[str, Any],
    found: Mapping[str, Any],
    learner: Mapping[str, Any],
    tasks: int,
    *,
    inferred: bool,
) -> None:
    begun, identities = len(found["tasks"]), len(position["identities"])
    for name in ("identities", "contexts", "curves", "losses", "labels", "samples"):
        check(len(found[name]), Whole(begun, begun), f"found {name}")
    # A context beyond these would be made when it is asked for, whatever its number is.
    books = _books(learner) if inferred else None
    known = identities if books is None else len(books)
    for k in range(begun):
        check(found["identities"][k], Whole(0, identities - 1), "found identities")
        check(found["contexts"][k], Whole(0, known - 1), "found contexts")
    if not inferred:
        active = learner.get("context")
        check(active, None if active is None else Whole(0, tasks), "context")


def _check_tables(found: Mapping[str, Any], task: int, tasks: int) -> None:
    for name in (*TABLES, "density", "availability"):
        check(len(found[name]), Whole(task, task), f"found {name}")
    for name in TABLES:
        for k, row in enumerate(found[name]):
            within = all(value is None or 0 <= value <= 1 for value in row)
            if len(row) != k + 1 or row[k] is None or not within:
                raise ValueError(f"found {name} has gaps, or figures beyond 0 to 1")
    for name in ALONE:
        if found[name] is not None:
            check(len(found[name]), Whole(tasks, tasks), f"found {name}")
            if not all(0 <= value <= 1 for value in found[name]):
                raise ValueError(f"found {name} has figures beyond 0 to 1")


def _check_times(times: Mapping[str, Any], task: int) -> None:
    known = fits(times, dict[str, Any]) and times.keys() == {"trained", "seconds"}
    if not known or not fits(times["seconds"], HINTS["seconds"]):
        raise ValueError("times are of another kind")
    check(times["trained"], values_like(0.0), "times trained")
    check(len(times["seconds"]), Whole(task, task), "times seconds")
    if not are_times(times["seconds"]):
        raise ValueError("times seconds must be at least 0, by the names train and evaluate")


def _books(learner: Mapping[str, Any]) -> list[Any] | None:
    """What a detector knows of its contexts."""
    try:
        books = learner["contexts"]["detector"]["books"]
    except (KeyError, TypeError):
        return None
    return books if isinstance(books, list) else None
