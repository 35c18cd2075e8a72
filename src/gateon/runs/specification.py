"""A specification: everything that determines a run's results, in sections; stored as TOML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..detection.section import Detector
from ..learners.protocol import AnyLearner
from ..learners.section import Training
from ..methods import Method
from ..methods.section import ChosenMethod
from ..networks.section import Language, Network
from ..options.kinds import as_plain, flag, flag_off, words_of
from ..options.toml import from_toml, to_toml
from ..storage.checkpoint import whole_file
from ..storage.files import content_of
from ..streams.base import Stream
from ..streams.section import ChosenStream
from . import build
from .identity import key_of
from .measuring import Measuring
from .resolve import dotted, options_for, resolve

__all__ = ["Specification"]

LARGEST = 1 << 20  # bytes of a file of options
# Options that decide the defaults of others, so that these are left out first.
DECISIVE = (
    *("stream.name", "method.name", "method.preset", "network.kind", "network.model"),
    *("training.loss", "training.steps", "training.epochs", "detector.contexts", "detector.preset"),
)


@dataclass(frozen=True)
class Specification:
    """What to run, with a value for every option; made by `from_options` or `load`.

    Args:
        seed: of tasks, network, gates and order of samples.
        stream: see `gateon.streams.section`.
        network: see `gateon.networks.section`.
        training: see `gateon.learners.section`.
        method: see `gateon.methods.section`.
        detector: see `gateon.detection.section`.
        measuring: see `gateon.runs.measuring`.

    >>> asked = Specification.from_options({"stream.name": "split-mnist", "method.name": "ewc"})
    >>> asked.training.batch, asked["method.strength"]
    (500, 100.0)
    """

    seed: int
    stream: ChosenStream
    network: Network
    training: Training
    method: ChosenMethod
    detector: Detector
    measuring: Measuring

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Specification:
        """From options by dotted name or by section; old flat names are understood too.

        An unknown option, or one that does nothing for what was chosen, is an error.

        Args:
            options: such as {"stream.name": "permuted-mnist", "training.lr": 1e-3}.

        >>> Specification.from_options({"stream": {"name": "asc"}}).training.epochs
        3
        """
        return cls(*resolve(options))

    def with_options(self, changes: Mapping[str, Any]) -> Specification:
        """The same with other options.

        What was left at its default stays so: it follows another method, preset or stream. Options
        that these lack are dropped.

        Args:
            changes: options by dotted name or by section.

        >>> small = {"stream.name": "split-mnist", "network.hidden": [9]}
        >>> asked = Specification.from_options(small)
        >>> other = asked.with_options({"method.name": "ewc", "seed": 1})
        >>> other.network.hidden, other.method.name, other.seed
        ((9,), 'ewc', 1)
        """
        new = dotted(changes)
        kept = {name: value for name, value in self.chosen().items() if name not in new}
        for one, other in (("steps", "epochs"), ("epochs", "steps")):
            if new.get(f"training.{one}") is not None:
                kept.pop(f"training.{other}", None)
        stream, method = (str(new.get(name, self[name])) for name in ("stream.name", "method.name"))
        if "stream.name" in new and "network.kind" not in new:
            kept.pop("network.kind", None)
        kind = new.get("network.kind", kept.get("network.kind"))
        known = options_for(stream, method, kind)
        fits = {f"{section}.{option}" for section, found in known.items() for option in found}
        if new.get("detector.contexts", self.detector.contexts) == "known":
            fits -= {f"detector.{option}" for option in known["detector"] if option != "contexts"}
        return self.from_options(
            {name: value for name, value in kept.items() if name == "seed" or name in fits} | new
        )

    def chosen(self) -> dict[str, Any]:
        """The options that differ from what would be taken without them, by dotted name.

        >>> asked = Specification.from_options({"stream.name": "asc", "training.batch": 16})
        >>> asked.chosen()
        {'stream.name': 'asc', 'method.name': 'n-gateon', 'training.batch': 16}
        """
        mine = self.flat()
        names = {name: mine[name] for name in ("stream.name", "method.name")}
        usual = _flat(self.from_options(names).to_dict())
        decisive = {
            name: mine[name]
            for name in DECISIVE
            if name in mine and mine[name] != usual.get(name, ...)
        }
        base = _flat(self.from_options(names | decisive).to_dict())
        rest = {
            name: value
            for name, value in mine.items()
            if name not in DECISIVE and value != base.get(name, ...)
        }
        return names | decisive | rest

    def __getitem__(self, name: str) -> Any:
        """The value of an option by its dotted name.

        >>> Specification.from_options({"stream.name": "split-mnist"})["training.lr"]
        0.005
        """
        return self.flat()[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an option by its dotted name, or `default` if the run has no such option."""
        return self.flat().get(name, default)

    def flat(self) -> dict[str, Any]:
        """Every option by its dotted name."""
        return _flat(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """All options by section, as JSON-able values."""
        detector: dict[str, Any] = {"contexts": self.detector.contexts}
        if self.detector.contexts == "inferred":
            detector |= {"preset": self.detector.preset, **self.detector.options}
        stream, method = self.stream, self.method
        sections = {
            "seed": self.seed,
            "stream": {
                "name": stream.name,
                "repeats": stream.repeats,
                "augment": stream.augment,
                **stream.options,
            },
            "network": {"kind": self.network.kind, **asdict(self.network)},
            "training": asdict(self.training),
            "method": {"name": method.name, "preset": method.preset, **method.options},
            "detector": detector,
            "measuring": asdict(self.measuring),
        }
        plain: dict[str, Any] = as_plain(sections)
        return plain

    def save(self, path: Path) -> None:
        """Write all options as TOML."""
        with whole_file(path) as aside:
            aside.write_text(to_toml(self.to_dict()), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path) -> Specification:
        """Read a TOML file with sections, or an old flat one."""
        options = read_options(path)
        try:
            return cls.from_options(options)
        except ValueError as reason:
            raise ValueError(f"{path}: {reason}") from None

    def key(self) -> str:
        """A short name of the run: equal for equal options and numerics; see `identity`."""
        return key_of(self.to_dict())

    def command(self) -> str:
        """The command that runs it.

        >>> asked = Specification.from_options({"stream.name": "split-mnist", "training.lr": 0.1})
        >>> asked.command()
        'gateon run split-mnist --method n-gateon --training.lr 0.1'
        """
        chosen = self.chosen()
        known = options_for(self.stream.name, self.method.name, self.network.kind)
        words = ["gateon", "run", chosen.pop("stream.name"), "--method", chosen.pop("method.name")]
        for name, value in chosen.items():
            if value is None and name in ("training.steps", "training.epochs"):
                continue  # the other one says it
            section, _, option = name.partition(".")
            kind = known[section][option].kind if option else int
            if kind is bool:
                words.append(flag(name) if value else flag_off(name))
            else:
                words += [flag(name), *words_of(value, kind)]
        return shlex.join(words)

    def make_stream(self) -> Stream:
        """The stream."""
        model = self.network.model if isinstance(self.network, Language) else None
        return self.stream.make(self.seed, model)

    def make_learner(self, stream: Stream) -> AnyLearner:
        """The network and what trains it, for the stream's inputs and classes."""
        return build.make_learner(self, stream)

    def make_method(self, stream: Stream | None = None) -> Method:
        """The method; without a stream, what the stream decides is left at its default."""
        return build.make_method(self, stream)

    def needs_label(self) -> bool:
        """Whether the task must be told at prediction: by the method, its heads or its norms."""
        return build.needs_label(self)


def read_options(path: Path) -> dict[str, Any]:
    """The options in a TOML file, as they are written there."""
    try:
        return from_toml(content_of(path, LARGEST).decode())
    except FileNotFoundError:
        raise ValueError(f"There is no file {path}.") from None
    except (ValueError, RecursionError) as reason:  # of TOML, of UTF-8, or of what is no plain file
        raise ValueError(f"{path} is not TOML: {reason}.") from None


def _flat(sections: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for section, values in sections.items():
        if isinstance(values, Mapping):
            found |= {f"{section}.{name}": value for name, value in values.items()}
        else:
            found[section] = values
    return found
