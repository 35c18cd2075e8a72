"""Arguments to function calls, with tyro."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

try:
    import rich  # noqa: F401 (the commands need it; here its absence is one sentence)
    import tyro
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo
except ImportError as missing:
    sys.exit(f"The program gateon needs {missing.name}: pip install 'gateon[program]'.")

from ..options.declared import descriptions
from ..storage.files import printable
from ..storage.remote import is_url
from .commands import EXAMPLES, GROUPS

__all__ = [
    "JSON",
    "Command",
    "Directory",
    "Names",
    "Out",
    "Sites",
    "gigabytes",
    "hint_of",
    "names_in",
    "parse",
]

Command = Callable[..., None]
# --trace alone is all sites; words and commas separate patterns.
Sites = Annotated[
    tuple[str, ...] | None,
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="[SITES]",
        instance_from_str=lambda words: (
            tuple(one for word in words for one in word.split(",") if one) or ("*",)
        ),
        is_instance=lambda value: value is None or isinstance(value, tuple),
        str_from_instance=lambda value: [] if value is None else list(value),
    ),
]
Names = Annotated[str, tyro.conf.arg(metavar="NAME,...")]
# A directory, or what is like one at a URL.
Out = Annotated[
    Path | str | None,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH|URL",
        instance_from_str=lambda words: words[0] if is_url(words[0]) else _full_path(words[0]),
        is_instance=lambda value: value is None or isinstance(value, Path | str),
        str_from_instance=lambda value: [str(value)],
    ),
]
JSON = Annotated[bool, tyro.conf.arg(name="json")]
Directory = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
STYLE = (tyro.conf.PositionalRequiredArgs, tyro.conf.FlagCreatePairsOff)
ABOUT = (
    "Continual learning without replay: learn task after task, and keep what was learned.\n\n"
    + "\n\n".join(f"{group}: {', '.join(names)}." for group, names in GROUPS.items())
    + f"\n\nStart with: {EXAMPLES['compare'][0]}"
)


def parse(words: list[str], commands: Mapping[str, Command]) -> None:
    """Call the command that the words name, with their options.

    Errors quote words: those with control characters are parsed silently, and again as they are
    shown if that fails.
    """
    shown = [printable(word) for word in words]
    try:
        _parse(words, commands, tells=words == shown)
    except SystemExit:
        if words == shown:
            raise
        _parse(shown, commands, tells=True)


def _parse(words: list[str], commands: Mapping[str, Command], *, tells: bool) -> None:
    tyro.extras.subcommand_cli_from_dict(
        {name: _described(name, command) for name, command in commands.items()},
        prog="gateon",
        description=ABOUT,
        args=words,
        console_outputs=tells,
        config=STYLE,
        registry=KINDS,
    )


def bound(command: Callable[..., None], name: str, value: Any) -> Command:
    """A command with one of its arguments decided, so that it is no option any more.

    >>> bound(lambda given, scale="quick": print(given, scale), "given", 1)()
    1 quick
    """

    def call(*args: Any, **named: Any) -> None:
        command(*args, **{name: value}, **named)

    every = inspect.signature(command, eval_str=True)
    rest = [one for one in every.parameters.values() if one.name != name]
    vars(call)["__signature__"] = every.replace(parameters=rest)
    call.__annotations__ = {one.name: one.annotation for one in rest}
    call.__doc__ = command.__doc__
    return call


def own_options(command: Callable[..., None]) -> list[str]:
    """The options of a command as they are written.

    >>> own_options(lambda name, allow_dirty=False: None)
    ['--help', '--allow-dirty']
    """
    parameters = inspect.signature(command).parameters.values()
    named = [one.name for one in parameters if one.default is not one.empty]
    return ["--help", *("--" + name.replace("_", "-") for name in named)]


def gigabytes(data_limit: float | None) -> int | None:
    """Gigabytes as bytes; None stays None."""
    if data_limit is not None and not 0 < data_limit <= 1 << 20:
        raise ValueError(f"--data-limit must be a number of gigabytes above 0, got {data_limit}.")
    return None if data_limit is None else int(data_limit * (1 << 30))


def names_in(words: str) -> list[str]:
    """Names that are separated by commas.

    >>> names_in("ewc, si,")
    ['ewc', 'si']
    """
    return [name.strip() for name in words.split(",") if name.strip()]


def _described(of: str, command: Command) -> Command:
    """A command with examples, whose options are described in a paragraph without empty defaults."""
    about, signature = descriptions(command), inspect.signature(command, eval_str=True)

    def call(*args: Any, **named: Any) -> None:
        command(*args, **named)

    options = [
        one.replace(annotation=Annotated[one.annotation, _shown(about[name], one.default)])
        if name in about and one.default is not one.empty
        else one
        for name, one in signature.parameters.items()
    ]
    vars(call)["__signature__"] = signature.replace(parameters=options)
    call.__annotations__ = {one.name: one.annotation for one in options}
    call.__doc__ = _with_examples(inspect.cleandoc(command.__doc__ or ""), EXAMPLES.get(of, ()))
    return call


def _with_examples(text: str, examples: Sequence[str]) -> str:
    """A docstring with examples after what it says, before its arguments.

    >>> _with_examples("Run.\\n\\nArgs:\\n    x: one.", ["gateon run"]).splitlines()
    ['Run.', '', 'For example: gateon run', '', 'Args:', '    x: one.']
    """
    about, args, rest = text.partition("\nArgs:\n")
    shown = "".join(f"For example: {one}\n\n" for one in examples)
    return f"{about.rstrip()}\n\n{shown.rstrip()}\n" + args + rest


def _shown(about: str, default: Any) -> Any:
    return tyro.conf.arg(help=about, help_behavior_hint=hint_of(default))


def hint_of(default: Any) -> str | None:
    """What help adds to a description: nothing where nothing is the default, the usual otherwise."""
    empty = default is None or default is False or (hasattr(default, "__len__") and not default)
    return "" if empty else None


KINDS = ConstructorRegistry()


@KINDS.primitive_rule
def _optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Show an optional value by its type (INT), not as {None}|INT."""
    kinds = [kind for kind in get_args(info.type) if kind is not NoneType]
    if len(kinds) == len(get_args(info.type)) or any(
        kind not in (int, float, str, Path) for kind in kinds
    ):
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="|".join(kind.__name__.upper() for kind in kinds),
        instance_from_str=lambda words: (
            None if words[0] == "None" else _first_that_fits(words[0], kinds)
        ),
        is_instance=lambda value: value is None or isinstance(value, tuple(kinds)),
        str_from_instance=lambda value: [str(value)],
    )


@KINDS.primitive_rule
def _path(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Refuse an empty path, which Path takes for the working directory."""
    if info.type is not Path:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=lambda words: _full_path(words[0]),
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    )


def _full_path(word: str) -> Path:
    if not word:
        raise ValueError("it is empty, expected a path")
    if is_url(word):
        raise ValueError(
            "it is a URL, expected a path (compare, reproduce and search take URLs, with --on ray)"
        )
    return Path(word)


def _first_that_fits(word: str, kinds: list[Any]) -> Any:
    kinds = [_full_path if kind is Path else kind for kind in kinds]
    for kind in kinds[:-1]:
        with suppress(ValueError):
            return kind(word)
    return kinds[-1](word)
