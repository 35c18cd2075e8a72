"""The options of run and compare: those of a specification, by section.

Which options there are depends on the stream, the method and the network. So these are looked for
among the words first; then the words are parsed with the options and defaults of that choice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from ..methods.registry import method_options
from ..methods.section import method_defaults
from ..options.declared import Option
from ..options.kinds import flag, flag_off, item_of, members, read, words_of
from ..runs import legacy
from ..runs.resolve import SECTIONS, options_for
from ..runs.specification import Specification
from ..streams.registry import FROM_FILES, STREAMS
from .parse import Command, hint_of

__all__ = ["Asked", "short_name", "specified"]

# The most used options have a short name as well.
SHORT = {
    **{f"stream.{name}": name for name in ("tasks", "data", "limit", "augment")},
    **{f"network.{name}": name for name in ("hidden", "model")},
    **{f"training.{name}": name for name in ("steps", "epochs", "batch", "lr", "optimizer")},
    **{f"training.{name}": name for name in ("device", "threads")},
    "stream.data_limit": "data-limit",
    "method.preset": "preset",
    "method.density": "density",
    "network.kind": "network",
    "method.name": "method",
    "detector.contexts": "contexts",
    "measuring.evaluate": "evaluate",
}
# Options that decide which others there are, or their defaults.
FIRST = (
    *("method.name", "method.preset", "network.kind", "network.model", "training.loss"),
    *("detector.contexts", "detector.preset"),
)
FILES = ("--save-spec", "--out")  # the words that follow these name no stream
USUAL = "permuted-mnist"  # its options are shown where no stream is named


@dataclass(frozen=True)
class Asked:
    """What the words ask for.

    Args:
        start: the stream, or the .toml file, with what decides the other options.
        given: the options that were given, by dotted name.
    """

    start: Specification
    given: Mapping[str, Any]

    def specification(self) -> Specification:
        """The specification."""
        return self.start.with_options(self.given)


def specified(
    command: Callable[..., None], words: list[str], methods: Sequence[str] = ()
) -> tuple[Command, list[str]]:
    """A command with the options of the stream and method that the words name.

    Args:
        command: takes `asked`, an `Asked`, and options of its own.
        words: that follow the name of the command.
        methods: instead of the one in the words, when several are compared.

    Returns:
        The command and the words to parse with it.
    """
    _refuse_old_names(words)
    place = _place_of_stream(words)
    word = USUAL if place is None else words[place]
    rest = words if place is None else [*words[:place], *words[place + 1 :]]
    first = {name: found for name in FIRST if (found := _find(rest, name)) is not None}
    if methods:
        first["method.name"] = methods[0]
    if word.endswith(".toml") and not word.startswith("own:"):
        start = Specification.load(Path(word)).with_options(first)
    else:
        start = Specification.from_options({"stream.name": word, **first})
    kind = _options_kind(start, methods, named=place is not None)
    _refuse_idle(rest, start, kind, methods)

    def run(options: Any, **own: Any) -> None:
        values = _values(options)
        given = {name: values[name] for name in _given(rest, values)}
        named = {} if place is not None else {"stream.name": values["stream.name"]}
        command(Asked(start, named | given), **own)

    return _like(run, command, kind), rest


def short_name(stream: str) -> str:
    """A stream's name as part of a directory's name."""
    kind, colon, path = stream.partition(":")
    return f"{kind}-{Path(path).resolve().name}" if colon else stream


def _place_of_stream(words: Sequence[str]) -> int | None:
    """Where the stream or a .toml file is among the words."""
    kinds = tuple(f"{kind}:" for kind in FROM_FILES)
    for place, word in enumerate(words):
        named = word in STREAMS or word.startswith(kinds)
        file = word.endswith(".toml") and not word.startswith("-")
        if (named or file) and not (place and words[place - 1] in FILES):
            return place
    return None


def _spellings(name: str) -> list[str]:
    """How an option may be written.

    >>> _spellings("training.lr")
    ['--training.lr', '--lr']
    """
    return [flag(name)] + ([flag(SHORT[name])] if name in SHORT else [])


def _find(words: Sequence[str], name: str) -> str | None:
    """The value of an option among the words.

    >>> _find(["--method=ewc", "--tasks", "3"], "method.name")
    'ewc'
    """
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in _spellings(name):
            return value if equals else words[place + 1] if place + 1 < len(words) else None
    return None


def _given(words: Sequence[str], names: Mapping[str, Any]) -> list[str]:
    """The options that are among the words."""
    written = {word.partition("=")[0].replace("_", "-") for word in words}
    return [name for name in names if written.intersection([*_spellings(name), flag_off(name)])]


def _refuse_old_names(words: Sequence[str]) -> None:
    """Options that have moved into a section since."""
    short = {flag(name) for name in SHORT.values()} | {"--seed"}
    for word in words:
        option = word.partition("=")[0].replace("_", "-")
        name = option.removeprefix("--").replace("-", "_")
        if option.startswith("--") and option not in short and name in legacy.NAMES:
            raise ValueError(f"The option {option} is called {flag(legacy.NAMES[name])} now.")
        if option == "--settings":
            raise ValueError(
                "The option --settings is gone: give each one by its name, as in --method.damping."
            )


def _refuse_idle(
    words: Sequence[str], start: Specification, kind: type, methods: Sequence[str]
) -> None:
    """Options that the chosen stream, method or network does not have."""
    sections: dict[str, Any] = {one.name: one.type for one in fields(kind)}
    known = {f"{name}.{one.name}" for name in SECTIONS for one in fields(sections[name])}
    long = {flag(short): name for name, short in SHORT.items()}
    for word in words:
        option = word.partition("=")[0]
        name = long.get(option, option.removeprefix("--").replace("-", "_"))
        section = name.partition(".")[0]
        off = name.replace(".no_", ".")
        if not option.startswith("--") or section not in SECTIONS or {name, off} & known:
            continue
        if section == "method" and methods:
            raise ValueError(f"None of {', '.join(methods)} has the option {option}: leave it out.")
        start.with_options({name: None})  # says which options there are


def _options_kind(start: Specification, methods: Sequence[str], *, named: bool) -> type:
    """A dataclass with a section for every room, for tyro."""
    known = options_for(start.stream.name, start.method.name, start.network.kind)
    values, sections = start.flat(), []
    for name in methods:  # all of theirs; each takes those it has
        known["method"] |= {
            option: found
            for option, found in method_options(name).items()
            if option not in known["method"]
        }
    for section in SECTIONS:
        shown: list[Any] = []
        for option in known[section].values():
            dotted = f"{section}.{option.name}"
            if dotted == "stream.name":
                if not named:
                    shown.append((option.name, Annotated[str, tyro.conf.arg(metavar="STREAM")]))
                continue
            if section == "detector" and dotted not in values:
                continue  # contexts are known
            if dotted == "method.name" and methods:
                continue
            default = values.get(dotted, option.default)
            hint = hint_of(default)
            if section == "method" and methods:
                hint = _defaults(option, methods, start)
            kind = _parsed(dotted, option, hint)
            shown.append((option.name, kind, field(default_factory=_always(default))))
        shown.sort(key=lambda one: len(one))  # what has no default goes first
        sections.append((section, make_dataclass(section, shown)))
    seed = Annotated[
        int,
        tyro.conf.arg(help="seed of the tasks, the network, its gates and the order of samples."),
    ]
    return make_dataclass("Options", [*sections, ("seed", seed, start.seed)])


def _defaults(option: Option, methods: Sequence[str], start: Specification) -> str:
    """What help says of an option of several methods: the default of each that has it."""
    values = {
        name: defaults[option.name]
        for name in methods
        if option.name
        in (defaults := method_defaults(name, start.method.preset, start.network.kind))
    }
    if all(hint_of(value) == "" for value in values.values()):
        return ""
    words = {name: " ".join(words_of(value, option.kind)) for name, value in values.items()}
    told = set(words.values())
    return f"(default: {told.pop() if len(told) == 1 else ', '.join(map(' '.join, words.items()))})"


def _parsed(name: str, option: Option, hint: str | None) -> Any:
    """An annotation by which tyro shows and reads an option."""
    told = tyro.conf.arg(
        help=option.about,
        aliases=_spellings(name)[1:] or None,
        help_behavior_hint=hint,
    )
    kinds = [kind for kind in members(option.kind) if kind is not NoneType]
    if option.kind is bool or (len(kinds) == 1 and get_origin(option.kind) is Literal):
        return Annotated[option.kind, told]
    item = item_of(option.kind)

    def from_words(words: list[str]) -> Any:
        if item is None or words == ["none"]:
            return read(words[0], option.kind)
        return tuple(read(word, item) for word in words)

    spec: PrimitiveConstructorSpec[Any] = PrimitiveConstructorSpec(
        nargs=1 if item is None else "*",
        metavar="|".join(dict.fromkeys(_metavar(kind) for kind in kinds)),
        instance_from_str=from_words,
        is_instance=lambda value: True,
        str_from_instance=lambda value: words_of(value, option.kind),
    )
    return Annotated[Any, spec, told]


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _metavar(kind: Any) -> str:
    """How the value of an option is shown.

    >>> _metavar(tuple[int, ...]), _metavar(Literal["all", "last"])
    ('INT ...', 'all|last')
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _metavar(arguments[0])
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin is tuple:
        return f"{_metavar(arguments[0])} ..." if ... in arguments else "FALL,RISE"
    if origin is None:
        return str(kind.__name__).upper()
    return "PATTERN=VALUE,..."


def _values(options: Any) -> dict[str, Any]:
    """What was parsed, by dotted name."""
    found = {"seed": options.seed}
    for section in SECTIONS:
        held = vars(getattr(options, section))
        found |= {f"{section}.{name}": value for name, value in held.items()}
    return found


def _like(run: Callable[..., None], command: Callable[..., None], kind: type) -> Command:
    """`run` with the options of `command`, and `kind` for what it asks for."""
    own = inspect.signature(command, eval_str=True).parameters
    first = inspect.Parameter(
        "options",
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        annotation=Annotated[kind, tyro.conf.arg(name="")],
    )
    rest = [parameter for name, parameter in own.items() if name != "asked"]
    vars(run)["__signature__"] = inspect.Signature([first, *rest])
    run.__annotations__ = {one.name: one.annotation for one in [first, *rest]}
    run.__doc__ = command.__doc__
    return run
