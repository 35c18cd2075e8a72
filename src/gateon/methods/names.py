"""The methods and presets by name, each described in a line."""

from __future__ import annotations

from typing import Literal

__all__ = ["ABOUT", "LANGUAGE", "PRESETS", "MethodName"]

MethodName = Literal[
    "n-gateon",
    "p-gateon",
    "gating-only",
    "obstruction-only",
    "ewc",
    "ewc-online",
    "si",
    "xdg",
    "xdg+si",
    "hat",
    "adahat",
    "rmn",
    "dendrites",
    "dendrites+si",
    "ogd",
    "lwf",
    "replay",
    "zoo",
    "frozen",
    "hat-adapters",
    "bcl",
    "ctr",
    "lamol",
    "joint",
    "finetune",
    "isolated",
]
ABOUT: dict[MethodName, str] = {
    "n-gateon": "gates, and availability per unit",
    "p-gateon": "gates, and availability per parameter",
    "gating-only": "gates only, all weights plastic",
    "obstruction-only": "availability per unit only, all gates open",
    "ewc": "elastic weight consolidation: a Fisher penalty (Kirkpatrick et al. 2017)",
    "ewc-online": "ewc with one running penalty",
    "si": "synaptic intelligence: a path integral penalty (Zenke et al. 2017)",
    "xdg": "fixed random gates, 80 % of the units off (Masse et al. 2018)",
    "xdg+si": "xdg and si combined",
    "hat": "hard attention to the task: learned masks of units (Serra et al. 2018)",
    "adahat": "hat with updates that slow down instead of stopping (Wang et al. 2024)",
    "rmn": "relevance mapping: learned masks of weights (Kaushik et al. 2021)",
    "dendrites": "active dendrites; the context is a prototype of the inputs (Iyer et al. 2022)",
    "dendrites+si": "dendrites and si combined",
    "ogd": "orthogonal gradient descent (Farajtabar et al. 2020)",
    "lwf": "learning without forgetting: distillation (Li and Hoiem 2017)",
    "replay": "experience replay: stored samples of past tasks",
    "zoo": "model zoo: an ensemble of small networks with stored data (Ramesh and Chaudhari 2022)",
    "frozen": "a frozen pretrained encoder; only the head is trained",
    "hat-adapters": "adapters in a frozen encoder, masked as in hat (Ke et al. 2021)",
    "bcl": "hat-adapters with knowledge shared through capsules that agree (Ke et al. 2021)",
    "ctr": "hat-adapters with knowledge transferred from similar tasks (Ke et al. 2021)",
    "lamol": "a language model that generates pseudo-samples of past tasks (Sun et al. 2020)",
    "joint": "all data of all tasks so far, trained together",
    "finetune": "one plain network, no protection against forgetting",
    "isolated": "a new plain network for each task",
}
# These need a pretrained language model.
LANGUAGE: tuple[MethodName, ...] = ("frozen", "hat-adapters", "bcl", "ctr", "lamol")
PRESETS: dict[str, str] = {
    "best": "what measured best on validation data",
    "paper": "the equations as printed",
    "released": "the choices of the authors' released code, except model selection on test data",
}
