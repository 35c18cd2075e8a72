"""What is read off a finished run: measures, courses over tasks and steps, memory, open gates."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..gating.gates import gates_of
from ..learners.learner import Learner
from ..learners.protocol import AnyLearner
from ..learners.zoo import Zoo
from ..runs import metrics
from ..runs.record import Record
from ..runs.specification import Specification
from ..runs.switches import compared
from ..storage.checkpoint import whole_file
from ..streams import Stream

__all__ = [
    "INSIDE",
    "MEASURES",
    "SERIES",
    "keep_inside",
    "measures",
    "peak_bytes",
    "reset_peak",
    "state_bytes",
]

# Measure -> how a table calls it, and what it is multiplied with there.
MEASURES: dict[str, tuple[str, float]] = {
    "continual_accuracy": ("continual accuracy (%)", 100),
    "final_accuracy": ("final accuracy (%)", 100),
    "immediate_accuracy": ("immediate accuracy (%)", 100),
    "accuracy_deviation": ("accuracy deviation (%)", 100),
    "forgetting_rate": ("forgetting rate (points)", 100),
    "continual_macro_f1": ("continual macro-F1 (%)", 100),
    "final_macro_f1": ("final macro-F1 (%)", 100),
    "immediate_macro_f1": ("immediate macro-F1 (%)", 100),
    "macro_f1_deviation": ("macro-F1 deviation (%)", 100),
    "macro_f1_forgetting_rate": ("forgetting rate of macro-F1 (points)", 100),
    "seconds": ("seconds to train", 1),
    "peak_bytes": ("peak memory (MB)", 1e-6),
    "state_bytes": ("kept between tasks (MB)", 1e-6),
    "extra_bytes": ("kept beyond a plain network (MB)", 1e-6),
    "missed": ("switches missed (%)", 100),
    "false_alarms": ("false alarms", 1),
    "delay": ("longest delay (batches)", 1),
    "recognised": ("returns recognised (%)", 100),
    "reactivated": ("last task in the first one's context (%)", 100),
    "batches_recognised": ("unlabelled batches of 100 recognised (%)", 100),
    "samples_recognised": ("single samples recognised (%)", 100),
}
INSIDE = "inside.npz"
Course = NDArray[np.float64]


def measures(
    record: Record, folder: Path, isolated: Mapping[str, Sequence[float]]
) -> dict[str, float]:
    """Every measure of a run that is known.

    Deviations are from networks that learned one of the first tasks each.

    Args:
        record: of the run.
        folder: where it is kept.
        isolated: "accuracy" and "macro_f1" of those networks, where they are known.
    """
    found = {
        name: value for name, value in record.summary.items() if not name.endswith("_deviation")
    }
    found["seconds"] = sum(seconds["train"] for seconds in record.seconds)
    for of, values in isolated.items():
        alone = float(np.mean(values))
        found[f"{of}_deviation"] = (found[f"immediate_{of}"] - alone) / alone
    inside = _inside(folder)
    kept = ("peak_bytes", "state_bytes", "batches_recognised", "samples_recognised")
    return (
        found | _detected(record) | {name: float(inside[name]) for name in kept if name in inside}
    )


def _detected(record: Record) -> dict[str, float]:
    """How well inferred contexts followed the tasks."""
    if Specification.from_options(record.specification).detector.contexts != "inferred":
        return {}
    found = compared(record.identities, record.contexts, record.switches)
    measured = {
        "false_alarms": float(found.false_alarms),
        "reactivated": float(record.contexts[-1] == record.contexts[0]),
    }
    if found.switches:
        measured["missed"] = found.missed / found.switches
    if found.delays:
        measured["delay"] = float(max(found.delays))
    if found.returns:
        measured["recognised"] = found.recognised / found.returns
    return measured


def _over_tasks(of: Callable[[list[list[float]]], Course]) -> Callable[[Record, Path], Course]:
    return lambda record, folder: of(
        [[np.nan if a is None else a for a in row] for row in _square(record.accuracy)]
    )


def _room(record: Record, folder: Path) -> Course:
    """Mean availability over the layers after every task."""
    return np.array(
        [
            np.mean([site["room"] for site in sites.values()]) if sites else 1.0
            for sites in record.availability
        ]
    )


def _task_locked(record: Record, folder: Path) -> Course:
    """[[step, accuracy], ...] of the mean course of learning after a switch."""
    curves = np.array(record.curves)
    return np.stack([curves[0, :, 0], metrics.task_locked_accuracy(curves[:, :, 1])], axis=1)


def _correlation(record: Record, folder: Path) -> Course:
    """Correlations of tasks' gates, (layers, tasks, tasks); rotated tasks in order of angle."""
    angles = [re.fullmatch(r"rotation ([\d.]+)", name) for name in record.tasks]
    order = (
        np.argsort([float(a[1]) for a in angles if a]) if all(angles) else np.arange(len(angles))
    )
    tasks = np.array(record.contexts)[order]
    layers = [is_open for name, is_open in _inside(folder).items() if name.startswith("gates")]
    if not layers:
        raise ValueError(
            f"The gates of the run in {folder} were not kept: "
            "delete that directory to run it again."
        )
    return np.stack([metrics.context_correlation(is_open[tasks]) for is_open in layers]).round(2)


def _contexts(record: Record, folder: Path) -> Course:
    """How many contexts there are after every task."""
    highest = [
        max((c for task, _, c in record.switches if task <= k), default=0)
        for k in range(len(record.tasks))
    ]
    return np.array(highest, dtype=float) + 1


def _missed(record: Record, folder: Path) -> Course:
    """The share of switches missed so far, after every task but the first."""
    counts = [
        compared(record.identities[:k], record.contexts[:k], record.switches)
        for k in range(2, len(record.tasks) + 1)
    ]
    return np.array([found.missed / max(1, found.switches) for found in counts])


SERIES: dict[str, Callable[[Record, Path], Course]] = {
    "immediate": _over_tasks(metrics.immediate_accuracies),
    "continual": _over_tasks(metrics.continual_accuracies),
    "room": _room,
    "task_locked": _task_locked,
    "correlation": _correlation,
    "contexts": _contexts,
    "missed": _missed,
}


def keep_inside(learner: AnyLearner, stream: Stream, contexts: Sequence[int], folder: Path) -> None:
    """Keep beside a run which gates were open in which context, and how much memory it needs.

    Where contexts are inferred, also how well those of unlabelled test data are recognised.
    """
    gates = gates_of(learner.model)
    kept: dict[str, Any] = {
        "state_bytes": state_bytes(learner) * (len(stream) if learner.separate else 1)
    }
    if isinstance(learner, Learner) and learner.contexts is not None:
        kept["batches_recognised"], kept["samples_recognised"] = _recognition(
            learner, stream, contexts
        )
    if (peak := peak_bytes()) is not None:
        kept["peak_bytes"] = peak
    if gates is not None:
        for site, gate in gates.gates.items():
            if gate.weight is not None:
                kept[f"gates {site}"] = (gate.rows_of("weight") > 0).cpu().numpy()
    with whole_file(folder / INSIDE) as aside, open(aside, "wb") as file:
        np.savez_compressed(file, **kept)


def state_bytes(learner: AnyLearner) -> int:
    """What must be kept to go on with the next task: the network, and what the method remembers."""
    stored = learner.stored if isinstance(learner, Zoo) else {}
    method = learner.method.state_dict() if isinstance(learner, Learner) else {}
    return _size(learner.model.state_dict()) + _size(method) + _size(stored)


def _recognition(learner: Learner, stream: Stream, contexts: Sequence[int]) -> tuple[float, float]:
    """Shares of unlabelled batches of 100, and of single samples, whose context is recognised."""
    batches, samples = [], []
    for task in range(min(10, len(stream))):
        x = stream.split(task, "test").x[:1000]
        samples.append(
            (learner.recognise(x, each=True).context == contexts[task]).float().mean().item()
        )
        batches += [int(learner.recognise(some).context) == contexts[task] for some in x.split(100)]
    return float(np.mean(batches)), float(np.mean(samples))


def reset_peak() -> None:
    """Reset the peak of memory, where the system can; memory left unused is given back first."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another system, another C library
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int | None:
    """The most memory this process had since `reset_peak`; None where the system does not tell."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _size(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(_size(item) for item in value.values())
    return sum(_size(item) for item in value) if isinstance(value, list | tuple) else 0


def _square(rows: list[list[float | None]]) -> list[list[float | None]]:
    return [[*row, *[None] * (len(rows) - len(row))] for row in rows]


def _inside(folder: Path) -> dict[str, NDArray[Any]]:
    path = folder / INSIDE
    if not path.exists():
        return {}
    with np.load(path) as kept:
        return {name: kept[name] for name in kept.files}
