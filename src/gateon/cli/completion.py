"""gateon completion.

The options are read from options.json, since asking the commands themselves takes torch. After a
change of the options, `python -m gateon.cli.completion` writes the file again.
"""

from __future__ import annotations

import json
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
    """The options of a command, from the command itself."""
    module = import_module(f".{name}", __package__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        parser = tyro.extras.get_parser(module.command, config=STYLE, registry=KINDS)
    return {
        action.option_strings[-1]: None if action.nargs == 0 else sorted(action.choices or ())
        for action in parser._actions
        if action.option_strings and action.dest != "help"
    }


def _with_options(about: str, options: Options) -> Command:
    """A command that has these options and is only ever completed."""
    fields: list[Any] = []
    for option, choices in options.items():
        name = option.removeprefix("--").replace("-", "_")
        kind: Any = bool if choices is None else Literal[tuple(choices)] if choices else str
        default = False if choices is None else choices[0] if choices else ""
        # Without a help text tyro searches the source for one, option by option.
        told = tyro.conf.arg(help=name.replace("_", " "))
        fields.append((name, Annotated[kind, told], field(default=default)))
    stub = make_dataclass("Completed", fields)
    stub.__doc__ = about
    return cast(Command, stub)


if __name__ == "__main__":
    lines = [f'"{name}": {json.dumps(options_of(name))}' for name in COMMANDS]
    OPTIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
