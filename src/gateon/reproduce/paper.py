"""The numbers the paper prints, in percent: table -> row -> stream -> measure. Nothing of ours is in here."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ABLATION", "FED", "INFERRED", "PERMUTED", "ROTATED", "SHUFFLED", "SPLIT", "TABLE_1", "Numbers"]

Numbers = Mapping[str, Mapping[str, Mapping[str, float]]]

PERMUTED, ROTATED, SHUFFLED, SPLIT = "permuted-mnist", "rotated-mnist", "shuffled-mnist", "split-mnist"
MEASURES = ("continual_accuracy", "accuracy_deviation", "forgetting_rate")


def _continual(streams: tuple[str, ...], rows: dict[str, tuple[float | None, ...]]) -> Numbers:
    """Rows of one continual accuracy a stream; None where the paper has a dash."""
    return {
        row: {s: {"continual_accuracy": n} for s, n in zip(streams, numbers, strict=True) if n is not None}
        for row, numbers in rows.items()
    }


def _three_each(rows: dict[str, tuple[float | None, ...]]) -> Numbers:
    """Rows of continual accuracy, accuracy deviation and forgetting rate for permuted, rotated and shuffled."""
    return {
        row: {
            stream: {m: n for m, n in zip(MEASURES, numbers[3 * i : 3 * i + 3], strict=True) if n is not None}
            for i, stream in enumerate((PERMUTED, ROTATED, SHUFFLED))
        }
        for row, numbers in rows.items()
    }


# "Comparison of continual learning models on MNIST": ten tasks. Rotated with two convolutional layers of 256 and 512 channels,
# split with two of 32. The paper puts HAT on permuted and Model Zoo on rotated in parentheses: other tasks than the rest.
TABLE_1 = _continual(
    (PERMUTED, ROTATED, SPLIT),
    {
        "EWC": (96.9, 84.0, None),
        "SI": (97.1, 98.9, None),
        "n-GateON 0": (97.8, 99.2, 99.98),
        "p-GateON 0": (97.3, 99.3, 99.98),
        "RMN": (97.7, None, 99.5),
        "Active dendrites": (97.2, None, None),
        "OGD": (86.4, 88.3, 98.8),
        "HAT": (98.6, None, 99.0),
        "Model Zoo": (97.7, 99.7, 99.97),
        "Isolated": (98.0, 99.4, 99.99),
    },
)

# "Ablation study for GateON on large task families": 100 tasks, contexts inferred. Only these two rows are not in INFERRED as well.
ABLATION = _continual(
    (PERMUTED, ROTATED, SHUFFLED), {"Obstruction only": (18.7, 48.3, 11.1), "Active dendrites": (91.2, None, None)}
)

# Supplement, fully connected, 100 tasks, contexts fed.
FED = _three_each(
    {
        "Vanilla": (26.29, None, 71.57, 69.68, None, 28.53, 13.41, None, 77.44),
        "Gating only": (55.07, 0.24, 41.96, 71.63, 0.94, 25.33, 62.07, 0.6, 35.11),
        "n-GateON 1": (95.96, 0.2, 1.5, 97.46, 1.18, 0.49, 96.38, 1.05, 1.52),
        "n-GateON 0.5": (95.88, -1.39, 0.25, 97.6, 1.08, 0.19, 97.66, 1.01, 0.19),
        "n-GateON 0": (92.38, -5.0, 0.25, 97.39, 0.82, 0.05, 97.72, 0.93, 0.06),
        "p-GateON 0.5": (96.54, -0.05, 0.79, 97.83, 0.67, 0.14, 97.52, 0.31, 0.36),
        "p-GateON 0": (96.56, -0.62, 0.23, 97.8, 0.64, 0.06, 97.69, 0.25, 0.15),
    }
)

# Supplement, fully connected, 100 tasks, contexts inferred; the main text's tables round these.
INFERRED = _three_each(
    {
        "Vanilla": (26.29, None, 71.57, 69.68, None, 28.53, 13.41, None, 77.44),
        "Gating only": (55.07, 0.24, 41.96, 71.63, 0.94, 25.33, 62.07, 0.6, 35.11),
        "n-GateON 1": (95.75, -0.48, 1.12, 97.7, 0.7, 0.24, 96.89, 0.4, 1.09),
        "n-GateON 0.5": (92.86, -1.57, 2.06, 97.6, 0.66, 0.33, 97.35, 0.39, 0.62),
        "n-GateON 0": (73.64, -5.61, 14.82, 97.62, 0.59, 0.35, 97.72, 0.26, 0.12),
        "p-GateON 0.5": (96.48, -0.05, 0.84, 97.76, 0.55, 0.16, 97.51, 0.29, 0.37),
        "p-GateON 0": (96.34, -0.6, 0.48, 97.87, 0.64, 0.14, 97.69, 0.24, 0.13),
    }
)
