"""Settings of every method that measured best on validation data: written by benchmarks/search_methods.py, not by hand.

The trials are in results/search-methods/record.json: as many for every method, each on the first three tasks of two streams. What
is chosen on permuted digits holds for rotated and shuffled ones too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CHOSEN"]

CHOSEN: dict[str, dict[str, Mapping[str, Any]]] = {
    "p-gateon": {
        "split-mnist": {"lr": 0.02, "rate": 0.03, "density": 0.4},
    },
    "si": {
        "permuted-mnist": {"strength": 100.0, "lr": 0.002, "norm": "context"},
    },
    "xdg+si": {
        "permuted-mnist": {"lr": 0.005, "strength": 100.0, "settings": "off=0.6"},
    },
    "rmn": {
        "permuted-mnist": {"lr": 0.01},
    },
    "dendrites": {
        "permuted-mnist": {"lr": 0.003, "norm": "none", "settings": "on=0.25"},
    },
    "ogd": {
        "permuted-mnist": {"memory": 20, "optimizer": "plain", "lr": 0.1, "norm": "context"},
    },
    "hat": {
        "permuted-mnist": {"lr": 1.0, "optimizer": "plain"},
    },
    "lwf": {
        "permuted-mnist": {"strength": 3.0, "lr": 0.003, "norm": "none"},
    },
    "finetune": {
        "split-mnist": {"lr": 0.01, "norm": "context"},
    },
}
