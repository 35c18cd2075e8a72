"""The methods by their names on the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor

from .adahat import AdaHAT
from .base import Method
from .both import Both
from .dendrites import Dendrites
from .ewc import EWC
from .finetune import Finetune
from .hat import HAT
from .joint import Joint
from .lwf import LwF
from .ogd import OGD
from .replay import Replay
from .rmn import RMN
from .si import SI
from .xdg import XdG

__all__ = ["ABOUT", "InIsolation", "InZoo", "MethodName", "named"]

Loss = Callable[[Tensor, Tensor], Tensor]
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
    "joint",
    "finetune",
    "isolated",
]
ABOUT: dict[MethodName, str] = {
    "n-gateon": "gates, and availability per unit",
    "p-gateon": "gates, and availability per parameter",
    "gating-only": "gates, everything plastic",
    "obstruction-only": "availability per unit, every gate open",
    "ewc": "elastic weight consolidation: a quadratic penalty by the Fisher information (Kirkpatrick et al. 2017)",
    "ewc-online": "the same with one running quadratic",
    "si": "synaptic intelligence: a quadratic penalty by path integrals (Zenke et al. 2017)",
    "xdg": "fixed random gates, 80 % of the units off (Masse et al. 2018)",
    "xdg+si": "both",
    "hat": "hard attention to the task: learned masks of units (Serra et al. 2018)",
    "adahat": "the same, with updates that slow down instead of stopping (Wang et al. 2024)",
    "rmn": "relevance mapping: learned masks of weights (Kaushik et al. 2021)",
    "dendrites": "active dendrites, their context a prototype of the inputs (Iyer et al. 2022)",
    "dendrites+si": "both",
    "ogd": "orthogonal gradient descent (Farajtabar et al. 2020)",
    "lwf": "learning without forgetting: distillation (Li and Hoiem 2017)",
    "replay": "experience replay: stored samples of past tasks",
    "zoo": "model zoo: an ensemble of small networks, with stored data (Ramesh and Chaudhari 2022)",
    "joint": "all data of all tasks so far, at once",
    "finetune": "one plain network, nothing done against forgetting",
    "isolated": "a new plain network for every task",
}


class InIsolation(Method):
    """What isolated networks do against forgetting: nothing; see `gateon.isolated`."""

    name = "isolated"
    label_at_test = True

    def __repr__(self) -> str:
        """As in a record."""
        return "Isolated()"


class InZoo(Method):
    """What the networks of a model zoo do against forgetting: nothing each; see `gateon.zoo`."""

    name = "zoo"
    replay = True
    label_at_test = True


def named(
    name: str,
    *,
    steps: int,
    tasks: int,
    inputs: int | None = None,
    loss: Loss = F.cross_entropy,
    seed: int = 0,
    strength: float | None = None,
    memory: int | None = None,
) -> Method:
    """A method that is no GateON, with the settings of its publication.

    Args:
        name: one of `ABOUT`.
        steps: batches of each task, for methods with a course within a task.
        tasks: how many there will be, for methods that must know.
        inputs: numbers in a sample, for methods that must know.
        loss: of outputs and labels, for methods that learn stored samples.
        seed: of what it draws.
        strength: of its penalty, where it has one.
        memory: samples it stores, where it does.

    >>> named("ewc", steps=100, tasks=10, strength=50.0).strength
    50.0
    """
    makers: dict[str, Callable[[], Method]] = {
        "finetune": Finetune,
        "isolated": InIsolation,
        "ewc": lambda: EWC(seed=seed),
        "ewc-online": lambda: EWC(online=True, seed=seed),
        "si": SI,
        "xdg": lambda: XdG(seed=seed),
        "hat": lambda: HAT(steps=steps, seed=seed),
        "adahat": lambda: AdaHAT(steps=steps, seed=seed),
        "rmn": lambda: RMN(steps=steps, seed=seed),
        "dendrites": lambda: Dendrites(segments=tasks, inputs=inputs, seed=seed),
        "ogd": lambda: OGD(seed=seed),
        "lwf": LwF,
        "replay": lambda: Replay(loss=loss, seed=seed),
        "joint": lambda: Joint(loss=loss, seed=seed),
        "zoo": InZoo,
    }
    first, _, second = name.partition("+")
    if second:
        plain = named(first, steps=steps, tasks=tasks, inputs=inputs, seed=seed)
        return Both(plain, named(second, steps=steps, tasks=tasks, seed=seed, strength=strength, memory=memory))
    asked = {option: value for option, value in (("strength", strength), ("memory", memory)) if value is not None}
    return _with(makers[name](), asked)


def _with(method: Any, asked: dict[str, float | int]) -> Method:
    known = {field.name for field in fields(method) if field.init} if asked and hasattr(method, "__dataclass_fields__") else set()
    for option in asked:
        if option not in known:
            raise ValueError(f"The method {method.name} has no {option}: leave it out.")
    changed: Method = replace(method, **asked) if asked else method
    return changed
