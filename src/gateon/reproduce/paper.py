"""The numbers the paper prints, in percent: table -> row -> stream -> measure. Nothing of ours is in here."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "ABLATION",
    "CIFAR",
    "CNN_FED",
    "CNN_INFERRED",
    "FED",
    "INFERRED",
    "LANGUAGE",
    "LANGUAGE_TRANSFER",
    "PERMUTED",
    "PUBLISHED",
    "ROTATED",
    "SHUFFLED",
    "SPLIT",
    "TABLE_1",
    "TABLE_CIFAR",
    "TEXTS",
    "Numbers",
]

Numbers = Mapping[str, Mapping[str, Mapping[str, float]]]

PERMUTED, ROTATED, SHUFFLED, SPLIT = (
    "permuted-mnist",
    "rotated-mnist",
    "shuffled-mnist",
    "split-mnist",
)
CIFAR = "split-cifar100"
MEASURES = ("continual_accuracy", "accuracy_deviation", "forgetting_rate")


def _continual(streams: tuple[str, ...], rows: dict[str, tuple[float | None, ...]]) -> Numbers:
    """Rows of one continual accuracy a stream; None where the paper has a dash."""
    return {
        row: {
            s: {"continual_accuracy": n}
            for s, n in zip(streams, numbers, strict=True)
            if n is not None
        }
        for row, numbers in rows.items()
    }


def _three_each(rows: dict[str, tuple[float | None, ...]]) -> Numbers:
    """Rows of continual accuracy, accuracy deviation and forgetting rate for permuted, rotated and shuffled."""
    return {
        row: {
            stream: {
                m: n
                for m, n in zip(MEASURES, numbers[3 * i : 3 * i + 3], strict=True)
                if n is not None
            }
            for i, stream in enumerate((PERMUTED, ROTATED, SHUFFLED))
        }
        for row, numbers in rows.items()
    }


# "Comparison of continual learning models on MNIST": ten tasks. Rotated with two convolutional
# layers of 256 and 512 channels, split with two of 32. The paper puts HAT on permuted and Model Zoo
# on rotated in parentheses: other tasks than the rest.
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

# "Ablation study for GateON on large task families": 100 tasks, contexts inferred. Only these two
# rows are not in INFERRED as well.
ABLATION = _continual(
    (PERMUTED, ROTATED, SHUFFLED),
    {"Obstruction only": (18.7, 48.3, 11.1), "Active dendrites": (91.2, None, None)},
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

# Supplement, with convolutions, 100 tasks, contexts fed.
CNN_FED = _three_each(
    {
        "Vanilla": (41.32, None, 55.91, 94.06, None, 5.33, 40.15, None, 58.22),
        "Gating only": (50.03, -0.07, 47.15, 88.76, -0.04, 10.1, 48.63, -0.14, 50.65),
        "n-GateON 1": (96.16, -0.58, 0.9, 98.83, 0.43, 0.37, 98.5, -0.12, 0.78),
        "n-GateON 0.5": (96.57, -0.72, 0.37, 98.62, 0.38, 0.36, 98.97, -0.15, 0.28),
        "n-GateON 0": (89.43, -7.91, 0.78, 99.11, 0.25, 0.06, 98.97, -0.26, 0.2),
        "p-GateON 0.5": (94.75, -1.4, 1.62, 99.1, 0.11, 0.21, 98.94, -0.14, 0.34),
        "p-GateON 0": (95.02, -2.34, 0.48, 99.05, 0.09, 0.12, 99.06, -0.14, 0.22),
    }
)

# Supplement, with convolutions, 100 tasks, contexts inferred.
CNN_INFERRED = _three_each(
    {
        "Vanilla": (41.32, None, 55.91, 94.06, None, 5.33, 40.15, None, 58.22),
        "Gating only": (50.03, -0.07, 47.15, 88.76, -0.04, 10.1, 48.63, -0.14, 50.65),
        "n-GateON 1": (89.82, -2.61, 4.03, 98.92, 0.11, 0.45, 98.71, -0.16, 0.55),
        "n-GateON 0.5": (93.22, -1.95, 1.64, 98.79, 0.03, 0.5, 98.92, -0.18, 0.32),
        "n-GateON 0": (76.8, -8.79, 10.56, 98.89, -0.01, 0.37, 99.02, -0.21, 0.2),
        "p-GateON 0.5": (93.4, -1.59, 2.51, 98.92, 0.07, 0.41, 98.91, -0.15, 0.37),
        "p-GateON 0": (93.36, -2.17, 1.71, 98.97, 0.07, 0.36, 99.04, -0.16, 0.22),
    }
)

# "Efficiency of the bio-plausible version of n-GateON on CIFAR-100": 20 tasks.
TABLE_CIFAR = _continual(
    (CIFAR,),
    {
        "EWC": (75.3,),
        "n-GateON 0": (84.6,),
        "p-GateON 0": (82.5,),
        "RMN": (80.1,),
        "Isolated": (85.4,),
    },
)

# Accuracy over ten permuted tasks after the last, by each method's publication or by the comparison
# in that of active dendrites.
PUBLISHED: Numbers = {
    row: {PERMUTED: {"final_accuracy": level}}
    for row, level in {
        "SI": 97.1,
        "EWC": 96.9,
        "XdG": 97.2,
        "XdG + SI": 97.95,
        "Active dendrites": 94.6,
        "Active dendrites + SI": 97.2,
        "HAT": 98.6,
        "RMN": 97.7,
        "OGD": 86.4,
    }.items()
}

TEXTS = ("asc", "dsc", "news20")


def _of_texts(measures: tuple[str, ...], rows: dict[str, tuple[float, ...]]) -> Numbers:
    """Rows of so many measures for each of the three streams of texts."""
    count = len(measures)
    return {
        row: {
            s: dict(zip(measures, numbers[count * i : count * i + count], strict=True))
            for i, s in enumerate(TEXTS)
        }
        for row, numbers in rows.items()
    }


# "Continual learning performance with language models": BERT; continual accuracy and macro-F1.
# Others by Ke et al. 2021.
LANGUAGE = _of_texts(
    ("continual_accuracy", "continual_macro_f1"),
    {
        "MTL": (91.9, 88.1, 89.8, 89.3, 96.8, 96.8),
        "Naive": (49.6, 43.1, 73.1, 71.8, 52.5, 39.2),
        "HAT": (86.7, 78.2, 87.3, 86.1, 93.5, 92.9),
        "LAMOL": (88.9, 80.6, 92.1, 91.7, 66.1, 45.7),
        "B-CL": (88.3, 81.4, 79.8, 76.5, 95.1, 95.0),
        "CTR": (89.5, 83.6, 89.3, 88.7, 95.2, 95.2),
        "n-GateON 0": (89.3, 84.1, 89.3, 88.8, 95.8, 95.9),
        "p-GateON 0": (83.1, 76.7, 87.1, 85.3, 95.9, 96.0),
    },
)

# "Forward transfer in large language model" and "Backward transfer in large language model".
LANGUAGE_TRANSFER = _of_texts(
    ("accuracy_deviation", "macro_f1_deviation", "forgetting_rate", "macro_f1_forgetting_rate"),
    {
        "n-GateON 0": (3.52, 6.28, -0.21, -0.09, 2.34, 2.99, -0.02, 0.03, 0.16, 0.17, 0.08, 0.08),
        "p-GateON 0": (2.24, 1.99, 2.33, 1.16, 2.78, 3.17, 1.56, 2.32, 0.12, 0.13, 0.12, 0.12),
    },
)
