"""A trace: what chosen units did over time, in bounded memory, and the file it is kept in."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..anatomy.sites import matching
from ..storage.checkpoint import whole_file
from ..storage.files import is_regular

__all__ = ["EVERY", "QUANTITIES", "Trace", "sampled"]

QUANTITIES = ("gain", "activity", "relevance", "availability")
EVERY = 20  # steps between samples, by default
MOST = 1000  # samples; twice the distance from there on
PER_SITE, IN_ALL = 64, 512  # units
LIBRARIES = ("pandas", "polars")
FORMAT = 1
LARGEST = 1 << 28  # bytes of a file

Values = NDArray[np.float32]


def sampled(layers: Mapping[str, int], sites: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Units of every chosen site, all of them or as many as are watched, evenly spaced.

    Args:
        layers: how many units each site has.
        sites: patterns of the names of sites.

    >>> {site: len(units) for site, units in sampled({"a": 10, "b": 500}, ["*"]).items()}
    {'a': 10, 'b': 64}
    """
    chosen = {name for pattern in sites for name in matching(pattern, layers, "site")}
    most = max(1, min(PER_SITE, IN_ALL // max(1, len(chosen))))
    found = {}
    for name, units in layers.items():
        if name in chosen:
            count = min(most, units)
            found[name] = np.arange(count, dtype=np.int64) * units // count
    return found


class Trace:
    """Gain, activity, relevance and availability of units over steps and contexts.

    `gain` is sigma(v) of the context being learned; `activity` the mean size |x| of the gated
    activity over the batch; `relevance` mu in units of the layer's mean; `availability` A after the
    step. Per parameter the last two are means over the weights that a unit reads with. What was not
    measured is NaN. A unit outside the sub-network at work has gain, activity and relevance 0.

    Args:
        layers: how many units each site has.
        units: of each site, those that are watched.
        every: steps between samples. Whenever there are `most`, every second one is dropped and the
            distance doubles, so that memory is bounded.
        most: samples that are kept.

    >>> kept = Trace({"0": 8}, {"0": [1, 5]}, every=2)
    >>> kept.add(0, 0, {"0": np.ones((4, 2))})
    >>> kept.availability["0"].shape, kept.frame("list")[1]["unit"]
    ((1, 2), 5)
    """

    def __init__(
        self,
        layers: Mapping[str, int],
        units: Mapping[str, Sequence[int] | NDArray[np.int64]],
        *,
        every: int = EVERY,
        most: int = MOST,
    ) -> None:
        if every < 1 or most < 2:
            raise ValueError(f"every must be at least 1 and most at least 2, got {every}, {most}.")
        self.layers = dict(layers)
        self.units = {name: np.asarray(chosen, dtype=np.int64) for name, chosen in units.items()}
        for name, chosen in self.units.items():
            if name not in self.layers:
                raise ValueError(f"There is no site {name!r}: choose {', '.join(self.layers)}.")
            if chosen.ndim != 1 or not ((chosen >= 0) & (chosen < self.layers[name])).all():
                raise ValueError(
                    f"Units of site {name!r} are numbers from 0 to {self.layers[name] - 1}."
                )
        self.asked = self.every = every
        self.most = most
        self.starts: list[int] = []  # the step at which each task begins, in a run
        self._steps: list[int] = []
        self._contexts: list[int] = []
        self._values: list[dict[str, Values]] = []

    def is_due(self, step: int) -> bool:
        """Whether a step is to be kept."""
        return step % self.every == 0

    def add(self, step: int, context: int, values: Mapping[str, Any]) -> None:
        """Keep a step.

        Args:
            step: its number.
            context: the one being learned; -1 where samples differ.
            values: by site, the quantities of its units, (4, units).
        """
        while len(self._steps) >= self.most:
            self._keep_only(lambda kept: kept % (2 * self.every) == 0)
            self.every *= 2
        if self.is_due(step):
            self._steps.append(step)
            self._contexts.append(context)
            self._values.append({name: np.asarray(v, np.float32) for name, v in values.items()})

    def begin_task(self, task: int, step: int) -> None:
        """Note that a task begins at a step, unless that is known."""
        self.starts += [step] * (task + 1 - len(self.starts))

    def forget_from(self, step: int) -> None:
        """Forget this step and all later ones: learning goes on from there."""
        self.starts = [start for start in self.starts if start <= step]
        self._keep_only(lambda kept: kept < step)

    def _keep_only(self, wanted: Callable[[int], bool]) -> None:
        at = [n for n, step in enumerate(self._steps) if wanted(step)]
        self._steps = [self._steps[n] for n in at]
        self._contexts = [self._contexts[n] for n in at]
        self._values = [self._values[n] for n in at]

    # What was seen.

    @property
    def sites(self) -> list[str]:
        """The names of the sites."""
        return list(self.units)

    @property
    def steps(self) -> NDArray[np.int64]:
        """The number of every step that was kept."""
        return np.array(self._steps, dtype=np.int64)

    @property
    def contexts(self) -> NDArray[np.int64]:
        """The context being learned in each of them."""
        return np.array(self._contexts, dtype=np.int64)

    @property
    def tasks(self) -> NDArray[np.int64]:
        """The task each of them belongs to; -1 in a loop that names no tasks."""
        return np.searchsorted(np.array(self.starts, dtype=np.int64), self.steps, side="right") - 1

    @property
    def gain(self) -> dict[str, Values]:
        """By site, (steps, units)."""
        return self._of(0)

    @property
    def activity(self) -> dict[str, Values]:
        """By site, (steps, units)."""
        return self._of(1)

    @property
    def relevance(self) -> dict[str, Values]:
        """By site, (steps, units)."""
        return self._of(2)

    @property
    def availability(self) -> dict[str, Values]:
        """By site, (steps, units)."""
        return self._of(3)

    def _of(self, place: int) -> dict[str, Values]:
        return {name: table[:, place] for name, table in self._tables().items()}

    def _tables(self) -> dict[str, Values]:
        """By site, (steps, quantities, units)."""
        shape = (len(self._steps), len(QUANTITIES))
        return {
            name: np.array([v[name] for v in self._values], np.float32).reshape(*shape, len(units))
            for name, units in self.units.items()
        }

    def frame(self, kind: Literal["pandas", "polars", "list"] | None = None) -> Any:
        """A tidy table: a row for every step and unit.

        Args:
            kind: of the table; "list" is a list of dicts. By default pandas or polars, whichever
                is installed.
        """
        columns = self._columns()
        installed = (name for name in LIBRARIES if find_spec(name))
        chosen: str = next(installed, "list") if kind is None else kind
        if chosen != "list":
            return import_module(chosen).DataFrame(columns)
        plain = {name: column.tolist() for name, column in columns.items()}
        return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]

    def _columns(self) -> dict[str, NDArray[Any]]:
        times = {"step": self.steps, "task": self.tasks, "context": self.contexts}
        parts = []
        for name, table in self._tables().items():
            units, steps = self.units[name], len(table)
            part: dict[str, NDArray[Any]] = {
                key: np.repeat(column, len(units)) for key, column in times.items()
            }
            part |= {"site": np.full(steps * len(units), name), "unit": np.tile(units, steps)}
            parts.append(part | {q: table[:, n].ravel() for n, q in enumerate(QUANTITIES)})
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def __len__(self) -> int:
        """How many steps were kept."""
        return len(self._steps)

    def __repr__(self) -> str:
        """How much it holds."""
        units = sum(map(len, self.units.values()))
        return f"Trace of {units} units of {', '.join(self.units)}: {len(self)} steps, every {self.every}"

    # Files.

    def save(self, path: Path) -> None:
        """Write it as an npz file of plain arrays, whole or not at all."""
        about = {"format": FORMAT, "layers": self.layers, "starts": self.starts}
        about |= {"asked": self.asked, "every": self.every, "most": self.most}
        arrays: dict[str, NDArray[Any]] = {"about": np.array(json.dumps(about))}
        arrays |= {"steps": self.steps, "contexts": self.contexts}
        for name, table in self._tables().items():
            arrays[f"units {name}"] = self.units[name]
            arrays |= {f"{q} {name}": table[:, n] for n, q in enumerate(QUANTITIES)}
        with whole_file(path) as aside, open(aside, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Trace:
        """Read what `save` wrote; anything else is a ValueError."""
        try:
            return cls._from(_arrays(path))
        except (ValueError, KeyError, TypeError, zipfile.BadZipFile, RecursionError) as reason:
            raise ValueError(f"{path} is no trace, or a damaged one: move it away.") from reason

    @classmethod
    def _from(cls, arrays: Mapping[str, NDArray[Any]]) -> Trace:
        about = json.loads(str(arrays["about"]))
        units = {
            name.removeprefix("units "): array
            for name, array in arrays.items()
            if name.startswith("units ")
        }
        kept = cls(about["layers"], units, every=int(about["asked"]), most=int(about["most"]))
        kept.every = int(about["every"])
        kept.starts = [int(start) for start in about["starts"]]
        kept._steps, kept._contexts = arrays["steps"].tolist(), arrays["contexts"].tolist()
        count = len(kept._steps)
        columns = {
            name: np.stack([arrays[f"{q} {name}"] for q in QUANTITIES], axis=1) for name in units
        }
        fits = all(
            columns[name].shape == (count, len(QUANTITIES), len(own))
            and columns[name].dtype == np.float32
            for name, own in kept.units.items()
        )
        whole = all(isinstance(n, int) for n in (*kept._steps, *kept._contexts))
        if not fits or not whole or len(kept._contexts) != count or about["format"] != FORMAT:
            raise ValueError
        kept._values = [{name: table[n] for name, table in columns.items()} for n in range(count)]
        return kept


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    if not is_regular(path):
        raise ValueError("it is not a regular file")
    with zipfile.ZipFile(path) as held:
        if sum(one.file_size for one in held.infolist()) > LARGEST:
            raise ValueError("it is too large")
    with np.load(path, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}
