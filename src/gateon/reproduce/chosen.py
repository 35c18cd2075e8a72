"""Settings of every method that measured best on validation data: written by benchmarks/search_methods.py, not by hand.

The trials are in results/search/methods/record.json: as many for every method, each on the first
three tasks of two streams. What is chosen on permuted digits holds for rotated and shuffled ones
too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CHOSEN"]

CHOSEN: dict[str, dict[str, Mapping[str, Any]]] = {
    "n-gateon": {
        "permuted-mnist": {"lr": 0.04, "rate": 0.01, "density": 0.4},
        "split-mnist": {"lr": 0.04, "rate": 0.01, "density": 0.4},
    },
    "p-gateon": {
        "permuted-mnist": {"lr": 0.04, "rate": 0.03, "density": 0.4},
        "split-mnist": {"lr": 0.02, "rate": 0.03, "density": 0.4},
    },
    "ewc": {
        "permuted-mnist": {"strength": 100.0, "lr": 0.005, "norm": "context"},
        "split-mnist": {"strength": 1000.0, "lr": 0.002, "norm": "context"},
    },
    "ewc-online": {
        "permuted-mnist": {"strength": 200.0, "lr": 0.005, "norm": "context"},
        "split-mnist": {"strength": 1000.0, "lr": 0.002, "norm": "context"},
    },
    "si": {
        "permuted-mnist": {"strength": 100.0, "lr": 0.002, "norm": "context"},
        "split-mnist": {"strength": 1000.0, "lr": 0.002, "norm": "context"},
    },
    "xdg": {
        "permuted-mnist": {"lr": 0.005, "settings": "off=0.7"},
        "split-mnist": {"lr": 0.02},
    },
    "xdg+si": {
        "permuted-mnist": {"lr": 0.01, "strength": 100.0, "settings": "off=0.6"},
        "split-mnist": {"lr": 0.01, "strength": 100.0, "settings": "off=0.6"},
    },
    "rmn": {
        "permuted-mnist": {"lr": 0.04, "settings": "high=0.8"},
        "split-mnist": {"lr": 0.02, "settings": "high=0.8"},
    },
    "dendrites": {
        "permuted-mnist": {"lr": 0.003, "norm": "none", "settings": "on=0.25"},
        "split-mnist": {"lr": 0.0003, "norm": "none"},
    },
    "dendrites+si": {
        "permuted-mnist": {"lr": 0.005, "norm": "none", "strength": 10.0, "settings": "on=0.25"},
        "split-mnist": {"lr": 0.003, "norm": "none", "strength": 1000.0, "settings": "on=0.25"},
    },
    "ogd": {
        "permuted-mnist": {"memory": 20, "optimizer": "plain", "lr": 0.2, "norm": "context"},
        "split-mnist": {"memory": 20, "optimizer": "plain", "lr": 1.0, "norm": "context"},
    },
    "hat": {
        "permuted-mnist": {"lr": 1.0, "optimizer": "plain"},
        "split-mnist": {"lr": 0.3, "optimizer": "plain", "strength": 0.1},
    },
    "adahat": {
        "permuted-mnist": {"lr": 1.0, "optimizer": "plain"},
        "split-mnist": {"lr": 0.01},
    },
    "lwf": {
        "permuted-mnist": {"strength": 3.0, "lr": 0.006, "norm": "none"},
        "split-mnist": {"strength": 3.0, "lr": 0.001, "norm": "none"},
    },
    "zoo": {
        "permuted-mnist": {"lr": 0.003, "norm": "context"},
        "split-mnist": {"lr": 0.002, "norm": "context"},
    },
    "replay": {
        "permuted-mnist": {"lr": 0.002, "norm": "context"},
        "split-mnist": {"lr": 0.008, "norm": "none"},
    },
    "joint": {
        "permuted-mnist": {"lr": 0.005, "norm": "context"},
        "split-mnist": {"lr": 0.008, "norm": "none"},
    },
    "finetune": {
        "permuted-mnist": {"lr": 0.001, "norm": "none"},
        "split-mnist": {"lr": 0.01, "norm": "context"},
    },
    "isolated": {
        "permuted-mnist": {"lr": 0.003, "norm": "context"},
        "split-mnist": {"lr": 0.002, "norm": "context"},
    },
}
