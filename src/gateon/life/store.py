"""The directory of a living model: immutable versions, and a pointer to the current one.

    support/
      current                     the number of the current version
      versions/000007.safetensors everything the model is, one file a version
      history.jsonl               what happened, one line an event
      README.md                   the model card of the current version

A change writes a whole new version aside and then replaces the pointer, one rename: a process that
is killed leaves the old model or the new one. Readers take no lock; they follow the pointer to a
version that nobody changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..storage import checkpoint
from ..storage.files import content_of
from ..storage.lock import alone_in

__all__ = ["FORMAT", "KEPT", "Store"]

FORMAT = 1  # of a version; raise it when an older gateon could no longer read a new one
KEPT = 4  # versions on disk: the current one and three to go back to
LARGEST = 1 << 26  # bytes of history.jsonl that are read
NAME = re.compile(r"([0-9]{6,})\.safetensors")

State = dict[str, Any]


@dataclass(frozen=True)
class Store:
    """Reads and writes the versions of one living model.

    A version is a state of named parts, as `storage.checkpoint` keeps them. Its part "about" is
    plain JSON that can be read without the tensors: format, version, parent, and the event that
    made it.

    Args:
        folder: the directory of the model.
        card: writes README.md from the part "about".

    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()), card=lambda about: f"# {about['name']}")
    >>> with store.changing():
    ...     store.commit({"about": {"name": "support"}, "network": {}}, {"what": "learned"})
    1
    >>> store.about()["name"], store.history()[-1]["what"]
    ('support', 'learned')
    """

    folder: Path
    card: Callable[[Mapping[str, Any]], str]

    @property
    def exists(self) -> bool:
        """Whether the directory holds a living model."""
        return (self.folder / "current").exists()

    def current(self) -> int:
        """The number of the current version."""
        path = self.folder / "current"
        try:
            return int(content_of(path, 100))
        except FileNotFoundError:
            self._refuse_if_lost()
            raise ValueError(
                f"{self.folder} holds no living model: begin one with gateon learn."
            ) from None
        except ValueError as reason:
            raise ValueError(f"{path} is damaged: {self._advice()}.") from reason

    def about(self) -> State:
        """The part "about" of the current version, without reading its tensors."""
        about: State = self._read(only=["about"])["about"]
        return about

    def part(self, name: str, wanted: Callable[[str], bool]) -> Any:
        """One part of the current version.

        Args:
            name: of the part.
            wanted: whether to read the tensors of a name; the others come as mere shapes.
        """
        return self._read(only=[name], wanted=wanted)[name]

    def load(self) -> State:
        """The whole current version."""
        return self._read(only=None)

    def history(self) -> list[State]:
        """All events, the oldest first."""
        path = self.folder / "history.jsonl"
        try:
            lines = content_of(path, LARGEST).decode().split("\n")  # labels may hold other breaks
            return [json.loads(line) for line in lines if line]
        except FileNotFoundError:
            return []
        except ValueError as reason:
            raise ValueError(f"{path} cannot be read ({reason}): move it away.") from reason

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lock the directory for one change at a time; a second process is refused."""
        if not self.exists:
            self._refuse_to_overwrite()
        try:
            (self.folder / "versions").mkdir(parents=True, exist_ok=True)
        except OSError as reason:
            raise ValueError(
                f"{self.folder} cannot be written ({reason.strerror}): choose another directory."
            ) from reason
        with alone_in(self.folder):
            if self.exists:
                self._complete()
            yield

    def commit(self, state: Mapping[str, Any], event: Mapping[str, Any]) -> int:
        """Make a state the current version, atomically.

        Args:
            state: named parts, "about" among them.
            event: what to add to the history, plain JSON.

        Returns:
            The number of the new version.
        """
        parent = self.current() if self.exists else None
        version = max(self._numbers(), default=0) + 1
        about = dict(state["about"]) | {
            "format": FORMAT,
            "version": version,
            "parent": parent,
            "event": {"version": version, **event},
        }
        checkpoint.save({**state, "about": about}, self._path(version))
        self._point_at(version)
        self._complete()
        self._forget_old()
        return version

    def undo(self, event: Mapping[str, Any]) -> tuple[int, int]:
        """Make the previous version current again.

        Returns:
            The version that was current and the one that now is.
        """
        last = self.about()
        version, parent = int(last["version"]), last["parent"]
        if parent is None:
            raise ValueError(
                f"{self.folder} has learned once only, and there is nothing before that: "
                "delete the directory to begin anew."
            )
        if not self._path(parent).exists():
            raise ValueError(
                f"The version before {version} is no longer kept: the last {KEPT - 1} changes "
                "can be undone."
            )
        self._point_at(parent)
        self._log({"version": parent, "undone": version, **event})
        self._write_card()
        return version, int(parent)

    def _read(
        self, only: list[str] | None, wanted: Callable[[str], bool] = lambda name: True
    ) -> State:
        for attempt in range(3):  # a change may drop a version between these two lines
            path = self._path(self.current())
            try:
                state = checkpoint.load(path, only=only, wanted=wanted)
                break
            except FileNotFoundError:
                if attempt == 2:
                    raise ValueError(self._lost(path, "missing")) from None
            except checkpoint.DamagedError as reason:
                raise ValueError(self._lost(path, "damaged")) from reason
        if state.get("about", {}).get("format", 0) > FORMAT:
            raise ValueError(f"{self.folder} was made by a newer gateon: update gateon to use it.")
        return state

    def _lost(self, path: Path, how: str) -> str:
        """What to do about a current version that cannot be read."""
        others = [number for number in self._numbers() if self._path(number) != path]
        way = f", or write {others[-1]} into {self.folder / 'current'}" if others else ""
        return f"{path} is {how}: put back a copy of it{way}."

    def _refuse_to_overwrite(self) -> None:
        """A new model takes no files for its own that were there before it."""
        self._refuse_if_lost()
        for name in ("README.md", "history.jsonl"):
            if (self.folder / name).exists():
                raise ValueError(
                    f"{self.folder} holds no living model but other files, and its {name} would be "
                    "lost: choose a new directory."
                )

    def _refuse_if_lost(self) -> None:
        """A model whose pointer was deleted is not begun anew, which would lose its versions."""
        if (self.folder / "history.jsonl").exists() and self._numbers():
            raise ValueError(f"{self.folder / 'current'} is missing: {self._advice()}.")

    def _advice(self) -> str:
        """How to choose the version in force by hand."""
        return f"write into it the number of one of {[self._path(n).name for n in self._numbers()]}"

    def _complete(self) -> None:
        """Write what follows from the current version, in case a killed process left it out."""
        event = self.about().get("event")
        if event and not any(line.get("version") == event["version"] for line in self.history()):
            self._log(event)
        self._write_card()

    def _log(self, event: Mapping[str, Any]) -> None:
        lines = [json.dumps(line, ensure_ascii=False) for line in [*self.history(), event]]
        _write(self.folder / "history.jsonl", "\n".join(lines) + "\n")

    def _write_card(self) -> None:
        _write(self.folder / "README.md", self.card(self.about()))

    def _point_at(self, version: int) -> None:
        _write(self.folder / "current", f"{version}\n")

    def _forget_old(self) -> None:
        """Delete what can no longer be reached by undo."""
        kept, version = set[int](), self.current()
        while len(kept) < KEPT and self._path(version).exists():
            kept.add(version)
            try:
                parent = checkpoint.load(self._path(version), only=["about"])["about"]["parent"]
            except checkpoint.DamagedError:
                break  # nobody can go back beyond it
            if parent is None:
                break
            version = parent
        for number in self._numbers():
            if number not in kept:
                with suppress(OSError):
                    self._path(number).unlink()

    def _numbers(self) -> list[int]:
        folder = self.folder / "versions"
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return sorted(int(found[1]) for name in names if (found := NAME.fullmatch(name)))

    def _path(self, version: int) -> Path:
        return self.folder / "versions" / f"{version:06}.safetensors"


def _write(path: Path, text: str) -> None:
    with checkpoint.whole_file(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")
