"""A specification: everything that decides what a run finds, in one flat dataclass; as a file it is TOML."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LRScheduler

from . import streams
from .checkpoint import whole_file
from .isolated import Isolated
from .learner import Learner
from .methods import Finetune, GateON, Method, gating_only, obstruction_only, preset
from .models import mlp
from .streams import Stream

__all__ = ["METHODS", "Specification"]

MethodName = Literal["n-gateon", "p-gateon", "gating-only", "obstruction-only", "finetune", "isolated"]
METHODS: dict[str, str] = {
    "n-gateon": "gates, and availability per unit",
    "p-gateon": "gates, and availability per parameter",
    "gating-only": "gates, everything plastic",
    "obstruction-only": "availability per unit, every gate open",
    "finetune": "one plain network, nothing done against forgetting",
    "isolated": "a new plain network for every task",
}
PRESETS: dict[str, str] = {
    "best": "what measured best on validation data",
    "paper": "the equations as printed",
    "released": "the choices of the authors' released code, except its choice of models on test data",
}


@dataclass(frozen=True)
class Specification:
    """What to run. Options that are None take the preset's value.

    Args:
        stream: permuted-mnist, rotated-mnist, shuffled-mnist, split-mnist or own:PATH.
        tasks: how many tasks; None for the stream's own number.
        seed: of tasks, network, gates and order of samples.
        method: what is done against forgetting.
        preset: settings of method and training: best, paper or released.
        hidden: units of each hidden layer.
        steps: batches of each task.
        batch: samples in a batch.
        lr: learning rate.
        optimizer: adam or sgd (with momentum 0.9); it starts anew with every task.
        schedule: of the learning rate within a task: cosine to zero, or constant.
        norm: statistics of the batch norms: per context, of the batch at hand, or no norm.
        density: share of units whose gate starts open.
        rate: eta_A, how fast relevance freezes.
        epsilon: relevance below it unfreezes.
        floor: least availability.
        relevance: how the relevance of units is measured.
        apply: use availability at every step, or that of the last switch.
        obstruct_head: give the output layer availabilities too.
        rotation_step: degrees between the tasks of rotated-mnist; None for random angles.
        data: data set to use, such as mnist or mnist-5k (5,000 digits that need no network); None for the best there is.
        evaluate: after each task measure all tasks so far, only at the last, or after every n-th.
        curves: also measure the task being learned every so many steps.
        part: measure on test, or on validation to choose settings.
        precision: float32, or bf16 for autocast with float32 weights.
        device: cpu, cuda, mps ...
        threads: of the processor; None leaves it to torch. Results are the same for the same number.
    """

    stream: str
    tasks: int | None = None
    seed: int = 0
    method: MethodName = "n-gateon"
    preset: Literal["best", "paper", "released"] = "best"
    hidden: tuple[int, ...] = (2000, 2000)
    steps: int = 250
    batch: int = 500
    lr: float = 5e-3
    optimizer: Literal["adam", "sgd"] = "adam"
    schedule: Literal["cosine", "constant"] | None = None
    norm: Literal["context", "batch", "none"] | None = None
    density: float | None = None
    rate: float | None = None
    epsilon: float | None = None
    floor: float | None = None
    relevance: Literal["gradient", "activity", "next-layer", "next-layer-gated"] | None = None
    apply: Literal["step", "switch"] | None = None
    obstruct_head: bool | None = None
    rotation_step: float | None = None
    data: str | None = None
    evaluate: int | Literal["all", "last"] = "all"
    curves: int | None = None
    part: Literal["test", "validation"] = "test"
    precision: Literal["float32", "bf16"] = "float32"
    device: str = "cpu"
    threads: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        for name, hint in get_type_hints(type(self)).items():
            _check_type(name, getattr(self, name), hint)
        for name in ("tasks", "steps", "batch", "curves", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is a whole number of at least 1, not {value}.")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError("hidden is one whole number of at least 1 for every hidden layer.")
        if self.lr <= 0:
            raise ValueError(f"lr is a positive number, not {self.lr}.")

    def make_stream(self) -> Stream:
        """The stream it names."""
        options: dict[str, Any] = {"seed": self.seed}
        if self.tasks is not None:
            options["tasks"] = self.tasks
        if self.data is not None:
            options["data"] = self.data
        if self.rotation_step is not None:
            if self.stream != "rotated-mnist":
                raise ValueError(f"rotation_step is for rotated-mnist, not for {self.stream}: leave it out.")
            options["step"] = self.rotation_step
        return streams.open(self.stream, **options)

    def make_learner(self, stream: Stream) -> Learner | Isolated:
        """The network and what trains it, for the stream's inputs and classes."""
        if self.method == "isolated":
            return Isolated(partial(replace(self, method="finetune")._make_learner, stream))
        return self._make_learner(stream)

    def make_method(self) -> Method:
        """The method, with the preset's settings and what was asked for instead of them."""
        if self.method in ("finetune", "isolated"):
            return Finetune()
        base = preset(self.preset, "parameter" if self.method == "p-gateon" else "unit")
        names = ("density", "rate", "epsilon", "floor", "relevance", "apply", "obstruct_head")
        asked = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        method: GateON = replace(base, **asked, seed=self.seed)
        if self.method == "gating-only":
            return gating_only(method)
        return obstruction_only(method) if self.method == "obstruction-only" else method

    def key(self) -> str:
        """A short name for what it asks for: equal specifications have equal keys."""
        return sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self) | {"hidden": list(self.hidden)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Specification:
        """From names and values; an unknown name is an error that shows the nearest known one."""
        hints = get_type_hints(cls)
        for name in values:
            if name not in hints:
                raise ValueError(f"There is no option {name!r}{_nearest(name, list(hints))}: see gateon run --help.")
        if "stream" not in values:
            raise ValueError(f"The stream is missing: choose {', '.join(streams.STREAMS)} or own:PATH.")
        return cls(**{name: _as_annotated(value, hints[name]) for name, value in values.items()})

    def save(self, path: Path) -> None:
        """Write it as TOML; what is None is left out."""
        values = {name: value for name, value in self.to_dict().items() if value is not None}
        # TOML writes numbers, strings and lists as JSON does, but for one character.
        text = "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items())
        with whole_file(path) as aside:
            aside.write_text(text.replace("\x7f", "\\u007f"), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path) -> Specification:
        """Read what `save` wrote."""
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(f"There is no file {path}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
            raise ValueError(f"{path} is not TOML: {reason}.") from None
        try:
            return cls.from_dict(values)
        except ValueError as reason:
            raise ValueError(f"{path}: {reason}") from None

    def _make_learner(self, stream: Stream) -> Learner:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)
        released = self.preset == "released"
        inputs = int(torch.tensor(stream.shape).prod())
        norm = self.norm or ("batch" if released else "context")
        model = mlp(inputs, self.hidden, stream.classes, norm=norm, unit_length=released).to(_device(self.device))
        schedule = self.schedule or ("cosine" if self.preset == "best" else "constant")
        return Learner(
            model,
            optimizer=_optimizer(self.optimizer, self.lr),
            method=self.make_method(),
            schedule=_cosine(self.steps) if schedule == "cosine" else _constant,
            loss=_twice_softmax if released else F.cross_entropy,
            precision=self.precision,
        )


def _optimizer(name: str, lr: float) -> Callable[[Any], Optimizer]:
    if name == "sgd":
        return partial(torch.optim.SGD, lr=lr, momentum=0.9)
    return partial(torch.optim.Adam, lr=lr)


def _cosine(steps: int) -> Callable[[Optimizer], LRScheduler]:
    return partial(CosineAnnealingLR, T_max=steps)


def _constant(optimizer: Optimizer) -> LRScheduler:
    return ConstantLR(optimizer, factor=1.0, total_iters=0)


def _twice_softmax(output: Tensor, y: Tensor) -> Tensor:
    """The released code's loss: cross-entropy applies softmax to what is one already."""
    return F.cross_entropy(output.softmax(1), y)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as reason:
        raise ValueError(f"There is no device {name!r} here: use cpu.") from reason
    return device


KINDS = {int: "a whole number", float: "a finite number", str: "a string", bool: "true or false", tuple: "a list of whole numbers"}


def _check_type(name: str, value: Any, hint: Any) -> None:
    """Files and callers may give anything: the value must be of the annotated type."""
    parts = _parts(hint)
    if any(_fits(value, part) for part in parts):
        return
    choices = [choice for part in parts if get_origin(part) is Literal for choice in get_args(part)]
    kinds = [KINDS[get_origin(part) or part] for part in parts if (get_origin(part) or part) in KINDS]
    if choices and isinstance(value, str):
        raise ValueError(f"There is no {name} {value!r}{_nearest(value, choices)}: choose {', '.join([*choices, *kinds])}.")
    raise ValueError(f"{name} is {' or '.join(['one of ' + ', '.join(choices)] * bool(choices) + kinds)}, not {value!r}.")


def _parts(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type it is."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(item, int) for item in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _as_annotated(value: Any, hint: Any) -> Any:
    """A list as the tuple, a whole number as the float it stands for."""
    parts = _parts(hint)
    if type(value) is int and float in parts:
        return float(value)
    return tuple(value) if isinstance(value, list) and any(get_origin(part) is tuple for part in parts) else value


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f", perhaps {close[0]!r}" if close else ""
