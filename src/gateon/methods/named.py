"""The methods by their names on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .adahat import AdaHAT
from .base import Method
from .both import Both
from .dendrites import Dendrites
from .ewc import EWC
from .finetune import Finetune
from .hat import HAT
from .joint import Joint
from .language.adapters import HatAdapters
from .language.bcl import BCL
from .language.ctr import CTR
from .language.frozen import Frozen
from .lwf import LwF
from .ogd import OGD
from .replay import Replay
from .rmn import RMN
from .si import SI
from .xdg import XdG

__all__ = ["InIsolation", "InLamol", "InZoo", "named"]

Loss = Callable[[Tensor, Tensor], Tensor]


class InIsolation(Method):
    """Isolated networks, which need no protection; see `gateon.learners.isolated`."""

    name = "isolated"
    label_at_test = True

    def __repr__(self) -> str:
        """As in a record."""
        return "Isolated()"


class InZoo(Method):
    """The networks of a model zoo, none of which is protected; see `gateon.learners.zoo`."""

    name = "zoo"
    replay = True
    label_at_test = True


class InLamol(Method):
    """LAMOL, which learns past tasks again from generated texts; see `gateon.learners.lamol`."""

    name = "lamol"
    replay = True  # of pseudo-samples: no data are stored
    label_at_test = True

    def prepare(self, model: nn.Module) -> None:
        """A Learner would only fine-tune."""
        raise ValueError(
            "LAMOL has its own learner and a causal language model: "
            "use gateon.learners.lamol.Lamol."
        )


def named(
    name: str,
    *,
    steps: int,
    tasks: int,
    epochs: int = 1,
    inputs: int | None = None,
    loss: Loss = F.cross_entropy,
    seed: int = 0,
    strength: float | None = None,
    memory: int | None = None,
    settings: Mapping[str, float] | None = None,
) -> Method:
    """A method that is no GateON, with the settings of its publication.

    Args:
        name: one of `names.ABOUT`.
        steps: batches of one pass over a task, for methods with a course within a task.
        tasks: how many there will be, for methods that must know.
        epochs: how many such passes a task has.
        inputs: numbers in a sample, for methods that must know.
        loss: of outputs and labels, for methods that learn stored samples.
        seed: of what it draws.
        strength: of its penalty, where it has one.
        memory: samples it stores, where it does.
        settings: other numbers among its fields, by name; of two methods each takes those it has.

    >>> named("ewc", steps=100, tasks=10, strength=50.0).strength
    50.0
    >>> named("xdg+si", steps=100, tasks=10, strength=1.0, settings={"off": 0.6, "damping": 0.01})
    Both(XdG(off=0.6, seed=0), SI(strength=1.0, damping=0.01, skip=()))
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
        "rmn": lambda: RMN(steps=epochs * steps, seed=seed),
        "dendrites": lambda: Dendrites(segments=tasks, inputs=inputs, seed=seed),
        "ogd": lambda: OGD(seed=seed),
        "lwf": LwF,
        "replay": lambda: Replay(loss=loss, seed=seed),
        "joint": lambda: Joint(loss=loss, seed=seed),
        "zoo": InZoo,
        "frozen": Frozen,
        "hat-adapters": lambda: HatAdapters(steps=steps, seed=seed),
        "bcl": lambda: BCL(steps=steps, seed=seed),
        "ctr": lambda: CTR(steps=steps, seed=seed),
        "lamol": InLamol,
    }
    asked = dict(settings or {}) | {
        o: v for o, v in (("strength", strength), ("memory", memory)) if v is not None
    }
    parts = [makers[part]() for part in name.split("+")]
    known = {option for part in parts for option in _kinds(part)}
    for option in asked:
        if option not in known:
            raise ValueError(f"The method {name} has no {option}: leave it out.")
    changed = [_with(part, asked) for part in parts]
    if name == "dendrites+si":  # as published, SI holds feed-forward weights
        changed[1] = replace(changed[1], skip=("*segments",))  # type: ignore[type-var]
    return changed[0] if len(changed) == 1 else Both(*changed)


def _kinds(method: Method) -> dict[str, type]:
    """The fields of a method that are numbers, and whether they are whole."""
    if not is_dataclass(method):
        return {}
    words = {f.name: str(f.type).split(" ")[0] for f in fields(method) if f.init}
    return {
        name: int if word == "int" else float
        for name, word in words.items()
        if word in ("int", "float")
    }


def _with(method: Any, asked: Mapping[str, float]) -> Method:
    """The method with those of the numbers asked for that it has."""
    values: dict[str, float] = {}
    for option, kind in _kinds(method).items():
        if option in asked:
            if kind is int and asked[option] != int(asked[option]):
                raise ValueError(
                    f"{option} of the method {method.name} is a whole number, not {asked[option]}."
                )
            values[option] = kind(asked[option])
    changed: Method = replace(method, **values) if values else method
    return changed
