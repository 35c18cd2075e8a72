"""The methods by name. Reading this imports no method and no torch; `load` imports one.

To add a method, write its file and add a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from ..options.declared import Option, declared
from ..options.kinds import nearest

if TYPE_CHECKING:
    from .base import Method

__all__ = [
    "METHODS",
    "PRESETS",
    "Entry",
    "Fact",
    "entry",
    "facts_of",
    "load",
    "make",
    "method_options",
    "needs",
]

Need = Literal["language", "replay", "label", "heads"]
Fact = Literal["steps", "task_steps", "tasks", "inputs", "loss", "language"]


@dataclass(frozen=True)
class Entry:
    """What is known about a method before it is imported.

    Args:
        about: one line.
        home: "module:Class" in this room; of two methods at once, their names "a+b".
        needs: a language model; stored data or samples of past tasks (replay); the label of the
            task at test time; an output layer for every task (heads).
        fixed: fields that the name decides.
        facts: fields that the run decides unless they are given: the steps of one pass over a task,
            those of all passes (task_steps), the number of tasks, the size of an input; and always
            the loss, and whether it learns texts (language).
        norms: how norms with statistics per context learn of a switch: gates tell them, they are
            told (followed), or old and new tasks are learned at once and share them.
    """

    about: str
    home: str
    needs: tuple[Need, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    norms: Literal["gates", "followed", "shared"] = "followed"


PRESETS: dict[str, str] = {
    "room": "freezing that looks after the room left for the tasks to come",
    "best": "what measured best on validation data at a fixed rate; the default",
    "paper": "the equations as printed",
    "released": "the choices of the authors' released code, except model selection on test data",
}

_GATEON: dict[str, Any] = {
    "home": "gateon:GateON",
    "needs": ("label",),
    "facts": {"encoder": "language", "tasks": "tasks"},
    "norms": "gates",
}
_ADAPTERS: dict[str, Any] = {"needs": ("language", "label", "heads"), "facts": {"steps": "steps"}}
_UNIT, _PARAMETER = {"per": "unit", "gating": True}, {"per": "parameter", "gating": True}

METHODS: dict[str, Entry] = {
    "n-gateon": Entry("gates, and availability per unit", **_GATEON, fixed=_UNIT),
    "p-gateon": Entry("gates, and availability per parameter", **_GATEON, fixed=_PARAMETER),
    "gating-only": Entry(
        "gates only, all weights plastic", **_GATEON, fixed={**_UNIT, "rate": 0.0}
    ),
    "obstruction-only": Entry(
        "availability per unit only, all gates open",
        **_GATEON,
        fixed={"per": "unit", "gating": False},
    ),
    "ewc": Entry(
        "elastic weight consolidation: a Fisher penalty (Kirkpatrick et al. 2017)",
        "ewc:EWC",
        fixed={"online": False},
    ),
    "ewc-online": Entry("ewc with one running penalty", "ewc:EWC", fixed={"online": True}),
    "si": Entry("synaptic intelligence: a path integral penalty (Zenke et al. 2017)", "si:SI"),
    "xdg": Entry(
        "fixed random gates, 80 % of the units off (Masse et al. 2018)",
        "xdg:XdG",
        needs=("label",),
        norms="gates",
    ),
    "xdg+si": Entry("xdg and si combined", "xdg+si", norms="gates"),
    "hat": Entry(
        "hard attention to the task: learned masks of units (Serra et al. 2018)",
        "hat:HAT",
        needs=("label",),
        facts={"steps": "steps"},
    ),
    "adahat": Entry(
        "hat with updates that slow down instead of stopping (Wang et al. 2024)",
        "adahat:AdaHAT",
        needs=("label",),
        facts={"steps": "steps"},
    ),
    "rmn": Entry(
        "relevance mapping: learned masks of weights (Kaushik et al. 2021)",
        "rmn:RMN",
        needs=("label",),
        facts={"steps": "task_steps"},
    ),
    "dendrites": Entry(
        "active dendrites; the context is a prototype of the inputs (Iyer et al. 2022)",
        "dendrites:Dendrites",
        facts={"segments": "tasks", "inputs": "inputs"},
    ),
    "dendrites+si": Entry(  # as published, SI holds feed-forward weights
        "dendrites and si combined", "dendrites+si", fixed={"skip": ("*segments",)}
    ),
    "ogd": Entry("orthogonal gradient descent (Farajtabar et al. 2020)", "ogd:OGD"),
    "lwf": Entry(
        "learning without forgetting: distillation (Li and Hoiem 2017)", "lwf:LwF", norms="shared"
    ),
    "replay": Entry(
        "experience replay: stored samples of past tasks",
        "replay:Replay",
        needs=("replay",),
        facts={"loss": "loss"},
        norms="shared",
    ),
    "zoo": Entry(
        "model zoo: an ensemble of small networks with stored data (Ramesh and Chaudhari 2022)",
        "apart:InZoo",
        needs=("replay", "label"),
    ),
    "frozen": Entry(
        "a frozen pretrained encoder; only the head is trained",
        "language.frozen:Frozen",
        needs=("language",),
    ),
    "hat-adapters": Entry(
        "adapters in a frozen encoder, masked as in hat (Ke et al. 2021)",
        "language.adapters:HatAdapters",
        **_ADAPTERS,
    ),
    "bcl": Entry(
        "hat-adapters with knowledge shared through capsules that agree (Ke et al. 2021)",
        "language.bcl:BCL",
        **_ADAPTERS,
    ),
    "ctr": Entry(
        "hat-adapters with knowledge transferred from similar tasks (Ke et al. 2021)",
        "language.ctr:CTR",
        **_ADAPTERS,
    ),
    "lamol": Entry(
        "a language model that generates pseudo-samples of past tasks (Sun et al. 2020)",
        "apart:InLamol",
        needs=("language", "replay", "label"),
    ),
    "ranpac": Entry(
        "frozen after the first task; ridge on random features (McDonnell et al. 2023)",
        "closed_form:RanPAC",
        norms="shared",
    ),
    "ncm": Entry(
        "frozen after the first task; the nearest class mean (Mensink et al. 2013)",
        "closed_form:NCM",
        norms="shared",
    ),
    "joint": Entry(
        "all data of all tasks so far, trained together",
        "joint:Joint",
        needs=("replay",),
        facts={"loss": "loss"},
        norms="shared",
    ),
    "finetune": Entry("one plain network, no protection against forgetting", "finetune:Finetune"),
    "isolated": Entry("a new plain network for each task", "apart:InIsolation", needs=("label",)),
}


def entry(name: str) -> Entry:
    """The entry of a method; an unknown name is an error that lists them all.

    >>> entry("evc")
    Traceback (most recent call last):
    ...
    ValueError: There is no method 'evc', perhaps 'ewc': see gateon list methods.
    """
    if name not in METHODS:
        hint = nearest(name, METHODS)
        raise ValueError(f"There is no method {name!r}{hint}: see gateon list methods.")
    return METHODS[name]


def needs(name: str) -> set[Need]:
    """What a method needs; for two combined, what either needs.

    >>> needs("xdg+si")
    {'label'}
    """
    return {need for part in _parts(name) for need in METHODS[part].needs}


def facts_of(name: str) -> dict[str, Fact]:
    """The fields of a method that the run decides, and from which fact; those of both if combined.

    >>> facts_of("dendrites+si")
    {'segments': 'tasks', 'inputs': 'inputs'}
    """
    return {field: fact for part in _parts(name) for field, fact in METHODS[part].facts.items()}


def load(name: str) -> type[Method]:
    """The class of a method, imported now.

    >>> load("ewc").__name__
    'EWC'
    """
    module, _, kind = entry(name).home.partition(":")
    loaded: type[Method] = getattr(import_module(f".{module}", __package__), kind)
    return loaded


def method_options(name: str) -> dict[str, Option]:
    """The options of a method: the fields of its class that neither its name nor the run decides.

    >>> list(method_options("xdg+si"))
    ['off', 'strength', 'damping', 'skip']
    """
    decided = {"seed", *entry(name).fixed}
    return {
        field: option
        for part in _parts(name)
        for field, option in _own_options(part).items()
        if field not in decided
    }


def make(name: str, options: Mapping[str, Any], facts: Mapping[Fact, Any], seed: int) -> Method:
    """A method.

    Args:
        name: one of `METHODS`.
        options: values of some of its options, by name.
        facts: what is known about the run, see `Entry`.
        seed: of what it draws.

    >>> make("xdg+si", {"off": 0.6, "damping": 0.01}, {}, seed=0).second.damping
    0.01
    """
    known, given = method_options(name), {**options, **entry(name).fixed}
    for option in options:
        if option not in known:
            raise ValueError(f"The method {name} has no option --method.{option}: leave it out.")
    made = [_make_part(part, given, facts, seed) for part in _parts(name)]
    if len(made) == 1:
        return made[0]
    from .both import Both

    return Both(*made)


def _parts(name: str) -> list[str]:
    """A method, or the two it is made of."""
    return [name] if ":" in entry(name).home else entry(name).home.split("+")


def _own_options(part: str) -> dict[str, Option]:
    """The options of one method; numbers that the run decides may be given, and are none if not."""
    line, found = METHODS[part], declared(load(part), without=("seed",))
    counts = {field for field, fact in line.facts.items() if fact not in ("loss", "language")}
    decided = {*line.fixed, *line.facts} - counts
    return {
        field: replace(option, kind=option.kind | None, default=None) if field in counts else option
        for field, option in found.items()
        if field not in decided
    }


def _make_part(part: str, given: Mapping[str, Any], facts: Mapping[Fact, Any], seed: int) -> Method:
    kind, line = load(part), METHODS[part]
    known = {field: facts[fact] for field, fact in line.facts.items() if fact in facts}
    asked = {
        field: value
        for field, value in given.items()
        if field in declared(kind) and not (field in line.facts and value is None)
    }
    values = {**known, **asked, **line.fixed}
    if "seed" in declared(kind):
        values["seed"] = seed
    return kind(**values)
