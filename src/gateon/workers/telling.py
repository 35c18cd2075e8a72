"""What a worker does with a piece: it reports, and its end is one of five words."""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal

from ..runs.progress import Progress
from ..runs.stopping import Interrupted
from ..storage.lock import BusyError

__all__ = ["Dropped", "End", "Telling", "outcome"]

# done: with its result. dropped: no longer wanted. stopped: saved, to be resumed.
# busy: another process has its directory. failed: with the error.
End = Literal["done", "dropped", "stopped", "busy", "failed"]
OFTEN = 0.2  # seconds between two reports of steps


class Dropped(KeyboardInterrupt):
    """The piece is not wanted any more."""


class Telling:
    """Progress that is passed on.

    Args:
        send: takes the name of a call of `Progress` and its arguments, and returns whether the
            piece should go on.
        often: least seconds between two reports of steps.

    >>> def show(event, told):
    ...     print(event, told)
    ...     return event != "task"
    >>> telling = Telling(show)
    >>> telling.begin("demo", [2], 0)
    begin ('demo', [2], 0)
    >>> try:
    ...     telling.task(0, "zero", [0.9], 1.5)
    ... except Dropped:
    ...     print("dropped")
    task (0, 'zero', [0.9], 1.5)
    dropped
    """

    def __init__(self, send: Callable[[str, Sequence[Any]], bool], often: float = OFTEN) -> None:
        self.send, self.often, self.last = send, often, 0.0

    def begin(self, name: str, steps: Sequence[int], at: int) -> None:
        """The run starts or goes on."""
        self._tell("begin", name, list(steps), at)

    def step(self, task: int, step: int, loss: float) -> None:
        """A batch was learned; told a few times a second."""
        if time.monotonic() - self.last >= self.often:
            self._tell("step", task, step, loss)

    def found(self, task: int, step: int, context: int, new: bool) -> None:
        """A context was inferred."""
        self._tell("found", task, step, context, new)

    def task(self, task: int, name: str, accuracies: list[float | None], seconds: float) -> None:
        """A task was learned and measured."""
        self._tell("task", task, name, accuracies, seconds)

    def end(self) -> None:
        """The run is over; how it ended is told by the outcome."""

    def _tell(self, event: str, *told: Any) -> None:
        self.last = time.monotonic()
        if not self.send(event, told):
            raise Dropped


def outcome(do: Callable[[Progress], Any], progress: Progress) -> tuple[End, Any]:
    """Do a piece; return how it ended, and its result or its error."""
    try:
        return "done", do(progress)
    except Dropped:
        return "dropped", None
    except Interrupted:
        return "stopped", None
    except BusyError as reason:
        return "busy", str(reason)
    except Exception as reason:
        return "failed", _portable(reason)


def _portable(reason: Exception) -> Exception:
    """An error that another process can be told, with where it came from as a note."""
    told = "".join(traceback.format_exception(reason))
    try:
        copy = pickle.loads(pickle.dumps(reason))
        found: Exception = copy if type(copy) is type(reason) else RuntimeError(str(reason))
    except Exception:  # whatever a class of errors does when it is pickled
        found = RuntimeError(str(reason))
    found.add_note(f"In a worker:\n{told}")
    return found
