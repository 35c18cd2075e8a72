"""gateon completion.

The options are read from options.json, since asking the commands themselves takes torch. After a
change of the options, `python -m gateon.cli.completion` writes the file again.
"""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import field, make_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import tyro

from .commands import COMMANDS
from .parse import KINDS, STYLE, Command, parse

__all__ = ["command", "known_options", "options_of"]

OPTIONS = Path(__file__).with_name("options.json")
# By option its choices: none if any value will do, None if it takes no value.
Options = dict[str, list[str] | None]


def command(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print a script that completes gateon's commands and options on Tab.

    For this shell only: eval "$(gateon completion bash)". To keep it, put that line into ~/.bashrc.

    Args:
        shell: bash, zsh or fish.
    """
    known = known_options()
    commands = {name: _with_options(about, known.get(name, {})) for name, about in COMMANDS.items()}
    parse(["--tyro-print-completion", shell], commands)


def known_options() -> dict[str, Options]:
    """The options of all commands, without importing the commands."""
    read: dict[str, Options] = json.loads(OPTIONS.read_text())
    return read


def options_of(name: str) -> Options:
    """The options of a command, from the command itself; of all streams, methods and networks."""
    module = import_module(f".{name}", __package__)
    if not hasattr(module, "prepare"):
        return _parsed(module.command)
    found: Options = {}
    for words in _choices("--methods" if name == "compare" else "--method"):
        found |= _parsed(module.prepare(words)[0])
    return found


def _choices(method: str) -> list[list[str]]:
    """Words of commands that together have every option."""
    from ..methods.registry import METHODS, needs
    from ..streams.registry import FROM_FILES, STREAMS

    one = next(iter(STREAMS))
    return [
        *([stream] for stream in STREAMS),
        *([f"{kind}:."] for kind in FROM_FILES),
        *(["asc" if "language" in needs(name) else one, method, name] for name in METHODS),
        *([one, "--network", kind] for kind in ("cnn", "wide-resnet")),
        [one, "--contexts", "inferred"],
    ]


def _parsed(command: Command) -> Options:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        parser = tyro.extras.get_parser(command, config=STYLE, registry=KINDS)
    return {
        option: None if action.nargs == 0 else sorted(action.choices or ())
        for action in parser._actions
        if action.dest != "help"
        for option in action.option_strings
    }


def _with_options(about: str, options: Options) -> Command:
    """A command that has these options and is only ever completed."""
    fields: list[Any] = []
    for option, choices in options.items():
        name = option.removeprefix("--")
        kind: Any = bool if choices is None else Literal[tuple(choices)] if choices else str
        default = False if choices is None else choices[0] if choices else ""
        # Without a help text tyro searches the source for one, option by option.
        told = tyro.conf.arg(name=name, help=name.replace("-", " "))
        place = re.sub("[-.]", "_", f"option {name}".replace(" ", "_"))
        fields.append((place, Annotated[kind, told], field(default=default)))
    stub = make_dataclass("Completed", fields)
    stub.__doc__ = about
    return cast(Command, stub)


if __name__ == "__main__":
    lines = [f'"{name}": {json.dumps(options_of(name))}' for name in COMMANDS]
    OPTIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
