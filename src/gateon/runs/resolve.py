"""From the options given to a value for every option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

from ..detection.section import Detector, detector_defaults, detector_options
from ..learners.section import Training
from ..methods.registry import METHODS, entry, method_options
from ..methods.section import ChosenMethod, Preset, is_gateon, method_defaults
from ..networks.section import KINDS, Language, Network
from ..options.declared import Option, declared
from ..options.kinds import Within, checked, flag, nearest
from ..streams import registry as streams
from ..streams.section import ChosenStream
from . import legacy
from .measuring import Measuring

__all__ = ["SECTIONS", "Resolved", "dotted", "options_for", "resolve"]

SECTIONS = ("stream", "network", "training", "method", "detector", "measuring")
Seed = Annotated[int, Within(0, (1 << 63) - 1)]  # what generators take
# How pretrained language models are usually fine-tuned.
TEXTS: Mapping[str, Any] = {
    "steps": None,
    "epochs": 3,
    "batch": 32,
    "lr": 1e-4,
    "optimizer": "adamw",
    "schedule": "linear",
    "warm_up": 0.1,
    "label_smoothing": 0.0,
}


class Resolved(NamedTuple):
    """A value for every option, by section."""

    seed: int
    stream: ChosenStream
    network: Network
    training: Training
    method: ChosenMethod
    detector: Detector
    measuring: Measuring


def dotted(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under dotted names, from dotted, nested or old flat ones.

    >>> dotted({"seed": 1, "method": {"name": "ewc"}, "training.lr": 0.1})
    {'seed': 1, 'method.name': 'ewc', 'training.lr': 0.1}
    """
    if legacy.is_flat(options):
        return legacy.nested(options)
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name in SECTIONS:
            if not isinstance(value, Mapping):
                raise ValueError(f"[{name}] must be a section of options, got {value!r}.")
            found |= {f"{name}.{option}": held for option, held in value.items()}
        elif name == "seed" or name.partition(".")[0] in SECTIONS:
            found[name] = value
        else:
            known = ["seed", *(f"{s}.{o}" for s, o in _common())]
            short = [one for one in known if one.endswith(f".{name}")]
            hint = f", perhaps {short[0]!r}" if short else nearest(name, known)
            raise ValueError(f"There is no option {name!r}{hint}: see gateon run --help.")
    return found


def resolve(options: Mapping[str, Any]) -> Resolved:
    """Fill in every option that was not given, and refuse those without effect.

    The stream decides the kind of network; method and preset decide the rest of the defaults.

    Args:
        options: dotted, nested or old flat names and their values.

    >>> resolve({"stream.name": "permuted-mnist", "method.preset": "paper"}).training.schedule
    'constant'
    """
    given = _by_section(dotted(options))
    seed = checked("seed", given["top"].get("seed", 0), Seed)
    stream = _stream(given["stream"])
    name, preset = _method_name(given["method"], stream)
    kind = _network_kind(given["network"], stream)
    released = (
        preset == "released"
        and kind != "language"
        and (is_gateon(name) or name in ("finetune", "isolated"))
    )
    network = _network(given["network"], kind, stream, name, released)
    training = _training(given["training"], kind, name, preset, released)
    method = _method(given["method"], name, preset, kind)
    detector = _detector(given["detector"], stream)
    measuring = Measuring(**_settled("measuring", given["measuring"], declared(Measuring), {}))
    if name == "zoo" and (detector.contexts == "inferred" or training.precision != "float32"):
        raise ValueError(
            "The method zoo needs known contexts and precision float32: "
            "leave --contexts and --training.precision out."
        )
    return Resolved(seed, stream, network, training, method, detector, measuring)


def options_for(stream: str, method: str, kind: str | None = None) -> dict[str, dict[str, Option]]:
    """The options that a run of a stream by a method has, by section.

    Args:
        stream: its name.
        method: its name.
        kind: of the network; by default the stream's own.

    >>> list(options_for("permuted-mnist", "xdg")["method"])
    ['name', 'preset', 'off']
    """
    own = declared(ChosenStream, without=("options",))
    name = Option("name", str, stream, "name of the stream.")
    of_method = declared(ChosenMethod, without=("options",))
    of_method["name"] = replace(of_method["name"], kind=Literal[tuple(METHODS)])
    return {
        "stream": {"name": name, **own, **streams.stream_options(stream)},
        "network": {
            "kind": Option("kind", Literal[tuple(KINDS)], None, "kind of network."),
            **declared(KINDS[kind or streams.entry(stream).network]),
        },
        "training": declared(Training),
        "method": {**of_method, **method_options(method)},
        "detector": {**declared(Detector, without=("options",)), **detector_options()},
        "measuring": declared(Measuring),
    }


def _common() -> list[tuple[str, str]]:
    """Names of options that most runs have, for hints."""
    usual = options_for("permuted-mnist", "n-gateon")
    return [(section, option) for section, options in usual.items() for option in options]


def _by_section(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {section: {} for section in ("top", *SECTIONS)}
    for name, value in options.items():
        section, dot, option = name.partition(".")
        found[section if dot else "top"][option if dot else name] = value
    return found


def _settled(
    section: str,
    given: Mapping[str, Any],
    known: Mapping[str, Option],
    defaults: Mapping[str, Any],
    owner: str = "",
) -> dict[str, Any]:
    """A checked value for every option of a section."""
    for name in given:
        if name not in known:
            hint = nearest(name, known)
            where = f"{owner} has" if owner else "There is"
            none = "There are none" if not known else "its options are" if owner else "choose among"
            raise ValueError(
                f"{where} no option {flag(f'{section}.{name}')}{hint}: "
                f"{none}{' ' + ', '.join(known) if known else ''}."
            )
    return {
        name: checked(
            f"{section}.{name}", given.get(name, defaults.get(name, option.default)), option.kind
        )
        for name, option in known.items()
    }


def _without(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


def _stream(given: Mapping[str, Any]) -> ChosenStream:
    if "name" not in given:
        raise ValueError(
            f"The stream is missing: choose {', '.join(streams.STREAMS)}, own:PATH or text:PATH."
        )
    name = checked("stream.name", given["name"], str)
    every = declared(ChosenStream, without=("options",))
    own = streams.stream_options(name)
    values = _settled("stream", _without(given, "name"), {**every, **own}, {}, name)
    options = {option: values.pop(option) for option in own}
    return ChosenStream(name, **values, options=options)


def _method_name(given: Mapping[str, Any], stream: ChosenStream) -> tuple[str, Preset]:
    name = checked("method.name", given.get("name", "n-gateon"), Literal[tuple(METHODS)])
    if not stream.is_text and "language" in entry(name).needs:
        raise ValueError(
            f"The method {name} needs a language model, and {stream.name} has no texts: "
            "choose another method, or a stream of texts."
        )
    preset: Preset = checked("method.preset", given.get("preset", "best"), Preset)
    return name, preset


def _network_kind(given: Mapping[str, Any], stream: ChosenStream) -> str:
    usual = streams.entry(stream.name).network
    kind: str = checked("network.kind", given.get("kind", usual), Literal[tuple(KINDS)])
    if stream.is_text and kind != "language":
        raise ValueError(
            f"{stream.name} is learned by a language model: "
            "leave --network.kind out, and choose one with --network.model."
        )
    if kind == "language" and not stream.is_text:
        raise ValueError(f"A language model needs texts, and {stream.name} has none.")
    return kind


def _network(
    given: Mapping[str, Any], kind: str, stream: ChosenStream, method: str, released: bool
) -> Network:
    known = declared(KINDS[kind])
    defaults: dict[str, Any] = {"norm": "batch", "unit_length": True} if released else {}
    if kind == "language":
        usual = declared(streams.load(stream.name))["model"].default or Language.model
        model = given.get("model", usual)
        defaults |= {"model": model, "pooling": Language.usual_pooling(str(model))}
    if method in METHODS and "heads" in entry(method).needs:
        defaults["heads"] = "per-task"
    values = _settled("network", _without(given, "kind"), known, defaults, f"A network {kind}")
    if defaults.get("heads") == "per-task" and values["heads"] != "per-task":
        raise ValueError(
            f"The method {method} has a head for every task: leave --network.heads out."
        )
    return KINDS[kind](**values)


def _training(
    given: Mapping[str, Any], kind: str, method: str, preset: str, released: bool
) -> Training:
    best = preset in ("room", "best")
    defaults: dict[str, Any] = {
        "schedule": "cosine" if best or kind == "wide-resnet" else "constant",
        "label_smoothing": 0.1 if best else 0.0,
        "loss": "released" if released else "cross-entropy",
    }
    if preset == "room":
        defaults["lr"] = 0.02
    if kind == "language":
        defaults |= TEXTS
    if method == "ogd":
        defaults["optimizer"] = "plain"
    if given.get("loss", defaults["loss"]) == "released":
        defaults["label_smoothing"] = 0.0
    for one, other in (("steps", "epochs"), ("epochs", "steps")):
        if given.get(one) not in (None, "none"):
            defaults[other] = None
    values = _settled("training", given, declared(Training), defaults)
    if (values["steps"] is None) == (values["epochs"] is None):
        raise ValueError("Give either --training.steps or --training.epochs, not both.")
    if values["loss"] == "released" and (values["label_smoothing"] or values["class_weights"]):
        raise ValueError(
            "The loss of the preset released has no label smoothing and no class weights: "
            "leave --training.label-smoothing and --training.class-weights out."
        )
    if method == "ogd" and values["optimizer"] != "plain":
        raise ValueError(
            "The method ogd is for plain gradient descent: leave --training.optimizer out."
        )
    return Training(**values)


def _method(given: Mapping[str, Any], name: str, preset: Preset, kind: str) -> ChosenMethod:
    known, defaults = method_options(name), method_defaults(name, preset, kind)
    asked = _without(given, "name", "preset")
    return ChosenMethod(
        name, preset, _settled("method", asked, known, defaults, f"The method {name}")
    )


def _detector(given: Mapping[str, Any], stream: ChosenStream) -> Detector:
    kinds = declared(Detector)
    contexts = checked("detector.contexts", given.get("contexts", "known"), kinds["contexts"].kind)
    if contexts == "known":
        for name in _without(given, "contexts"):
            raise ValueError(
                f"{flag(f'detector.{name}')} does nothing where contexts are known: "
                "leave it out, or give --contexts inferred."
            )
        return Detector(contexts)
    preset = checked("detector.preset", given.get("preset", "best"), kinds["preset"].kind)
    defaults = detector_defaults(preset, stream.name)
    asked = _without(given, "contexts", "preset")
    values = _settled("detector", asked, detector_options(), defaults, "The detector")
    return Detector(contexts, preset, values)
