"""The trials of a search as a plan: Optuna proposes settings and says which trials are poor."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import Any

from ..runs.folder import keep_only
from ..runs.progress import Progress
from ..runs.specification import Specification
from ..runs.specified import learn
from ..workers.plan import Piece
from .asked import AIMS, Search
from .ranges import Choice, Span

__all__ = ["Trials"]

JOURNAL = "trials.journal"
FIRST = 5  # trials that are never ended early: the others are compared with them


class Trials:
    """A plan of trials, kept in a journal in the output directory; it goes on from there.

    Args:
        search: what is searched.
        trials: how many in all; those that a stopped search had begun go on first.
        out: the output directory.
    """

    def __init__(self, search: Search, trials: int, out: Path) -> None:
        self.optuna = _optuna()
        self.search, self.out = search, out
        grid = prod(len(one.ends) for one in search.over.values())
        self.most = min(trials, grid) if search.sampler == "grid" else trials
        optuna, journal = self.optuna, self.optuna.storages.journal
        pruner = (
            optuna.pruners.MedianPruner(n_startup_trials=FIRST)
            if search.prune == "median"
            else optuna.pruners.NopPruner()
        )
        self.study = optuna.create_study(
            storage=optuna.storages.JournalStorage(journal.JournalFileBackend(str(out / JOURNAL))),
            study_name="search",
            direction=AIMS[search.aim],
            pruner=pruner,
            load_if_exists=True,
        )
        self._check_same()
        running = optuna.trial.TrialState.RUNNING
        self.begun = self.study.get_trials(deepcopy=False, states=(running,))
        self.trials: dict[str, Any] = {}  # by the name of their piece
        self.pruned: set[str] = set()

    def next(self) -> Piece | None:
        """One that had begun, or a new one."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Optuna: what is experimental there
            if self.begun:
                number, trial_id = self.begun[0].number, self.begun.pop(0)._trial_id
                trial = self.optuna.trial.Trial(self.study, trial_id)
            elif len(self.study.get_trials(deepcopy=False)) < self.most:
                count = len(self.study.get_trials(deepcopy=False))
                self.study.sampler = self._sampler(count)
                if self.search.sampler == "grid":
                    self.study.enqueue_trial(self._of_grid(count))
                trial = self.study.ask()
                number = trial.number
            else:
                return None
            settings = self._settings(trial)
        name = f"trial-{number:04}"
        self.trials[name] = trial
        do = partial(_one_trial, self.search.specification(settings), name, self.search.aim)
        return Piece(name, self.out / name, do)

    def heard(self, piece: Piece, event: str, told: Sequence[Any]) -> bool:
        """After each task, compare the mean accuracy over the tasks so far with other trials."""
        if event != "task" or piece.name in self.pruned:
            return piece.name not in self.pruned
        trial, task = self.trials[piece.name], told[0]
        known = [value for value in told[2] if value is not None]
        mean = sum(known) / len(known)
        # a trial that went on after a stop may have said so before
        if task not in self.study.get_trials(deepcopy=False)[trial.number].intermediate_values:
            sign = 1 if AIMS[self.search.aim] == "maximize" else -1
            trial.report(sign * mean, task)
        if trial.should_prune():
            self.pruned.add(piece.name)
        return piece.name not in self.pruned

    def finished(self, piece: Piece, result: Any) -> None:
        """Note the result of a trial; of a poor one only its accuracies are kept."""
        trial, state = self.trials.pop(piece.name), self.optuna.trial.TrialState
        if piece.name in self.pruned or result is None:
            if piece.folder.is_dir():
                keep_only(piece.folder, [])
            self.study.tell(trial, state=state.PRUNED)
        elif isinstance(result, str):
            trial.set_user_attr("failed", result)
            self.study.tell(trial, state=state.FAIL)
        else:
            value, summary = result
            trial.set_user_attr("summary", summary)
            self.study.tell(trial, value)

    def __len__(self) -> int:
        """How many trials there are in all."""
        return self.most

    def found(self) -> list[dict[str, Any]]:
        """All trials so far, as JSON has them, best first and those without a figure last."""
        sign = 1 if AIMS[self.search.aim] == "maximize" else -1
        rows = []
        for trial in self.study.get_trials(deepcopy=False):
            seconds = trial.duration.total_seconds() if trial.duration is not None else None
            rows.append(
                {
                    "number": trial.number,
                    "state": trial.state.name.lower(),
                    "value": trial.value if trial.state.name == "COMPLETE" else None,
                    "settings": dict(trial.params),
                    "accuracies": [
                        sign * value for _, value in sorted(trial.intermediate_values.items())
                    ],
                    "summary": trial.user_attrs.get("summary"),
                    "failed": trial.user_attrs.get("failed"),
                    "seconds": None if seconds is None else round(seconds, 1),
                }
            )

        def order(row: Mapping[str, Any]) -> tuple[bool, float, int]:
            value = row["value"]
            return value is None, 0.0 if value is None else -sign * value, row["number"]

        return sorted(rows, key=order)

    def _settings(self, trial: Any) -> dict[str, Any]:
        """Ask for a value of everything that is searched where the trial's method is tried."""
        over = self.search.over
        found: dict[str, Any] = {}
        for name in sorted(over, key=lambda name: name != "method.name"):
            method = found.get("method.name", self.search.base.method.name)
            if not self.search.belongs(name, method):
                continue
            one = over[name]
            if isinstance(one, Choice):
                found[name] = trial.suggest_categorical(name, list(one.words))
            elif one.whole:
                found[name] = trial.suggest_int(name, int(one.low), int(one.high), log=one.log)
            else:
                found[name] = trial.suggest_float(name, one.low, one.high, log=one.log)
        return found

    def _sampler(self, number: int) -> Any:
        """One for each trial, so that a search that was stopped proposes what it would have."""
        samplers, search = self.optuna.samplers, self.search
        kind = samplers.TPESampler if search.sampler == "tpe" else samplers.RandomSampler
        return kind(seed=(search.base.seed * 1_000_003 + number) % (1 << 32))

    def _of_grid(self, number: int) -> dict[str, Any]:
        """Every combination in turn, the last range changing fastest."""
        combinations = product(*(one.ends for one in self.search.over.values()))
        values = next(islice(combinations, number, None))
        return dict(zip(self.search.over, values, strict=True))

    def _check_same(self) -> None:
        """Refuse a directory that holds another search."""
        ranges = {
            name: asdict(one) | {"kind": "span" if isinstance(one, Span) else "choice"}
            for name, one in self.search.over.items()
        }
        for one in ranges.values():
            one |= {"words": list(one["words"])} if "words" in one else {}
        asked = {
            "specification": self.search.base.to_dict(),
            "own": {name: repr(value) for name, value in self.search.own.items()},
            "over": ranges,
            "aim": self.search.aim,
            "sampler": self.search.sampler,
            "prune": self.search.prune,
        }
        held = self.study.user_attrs
        for name, value in asked.items():
            if name not in held:
                self.study.set_user_attr(name, value)
            elif held[name] != value:
                raise ValueError(
                    f"{self.out} holds another search, with another {name}: choose another output "
                    "directory; nothing was changed."
                )


def _one_trial(
    specification: Specification, name: str, aim: str, out: Path, progress: Progress
) -> tuple[float, dict[str, float]] | str:
    """The figure of one run and its summary, or why there is none."""
    try:
        stream = specification.make_stream()
        learner = specification.make_learner(stream)
        record = learn(specification, stream, learner, out / name, progress=progress, keep=False)
    except (FloatingPointError, MemoryError) as reason:  # settings so poor are a result too
        return str(reason) or type(reason).__name__
    return record.summary[aim], record.summary


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as missing:
        raise ImportError("gateon search needs Optuna: pip install 'gateon[search]'.") from missing
    optuna.logging.set_verbosity(logging.WARNING)
    return optuna
