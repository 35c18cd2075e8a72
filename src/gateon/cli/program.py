"""The program: find the command, call it, turn errors into sentences and exit codes."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from ..parallel.lost import LostError, RefusedError
from ..runs.stopping import Interrupted, Terminated, stop_once
from ..storage.files import CheckpointWarning, check_utf8, printable
from ..tracking.tracker import TrackerWarning
from .commands import COMMANDS
from .early import is_program
from .parse import Command, parse

__all__ = ["ProblemsError", "main"]

RESUMABLE = 75  # EX_TEMPFAIL: try again later
TOGETHER = ("run", "resume")  # what several processes can do as one
EXPECTED = (
    *(ValueError, OSError, IndexError, FloatingPointError, ImportError),
    *(MemoryError, RuntimeError),
)


class ProblemsError(ValueError):
    """Several problems, one sentence each."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__(*sentences)


def main(arguments: list[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: the command and its options; those of the process by default.

    Returns:
        The exit code. 0: done; 2: the user must change something; 75 and 130: a run was stopped by
        SIGTERM or Ctrl-C and saved, and the same command continues it; 1: nobody reads the output.
    """
    words = sys.argv[1:] if arguments is None else arguments
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            for word in words:
                check_utf8(word)
            commands, words = _load(list(words))
            with stop_once(ends=is_program()):
                parse(words, commands)
                sys.stdout.flush()
        except Interrupted as stopped:
            if _talks():
                _tell("\nStopped and saved. Run the same command to continue.")
            return RESUMABLE if isinstance(stopped, Terminated) else 130
        except KeyboardInterrupt:
            _tell("\nStopped.")
            return 130
        except BrokenPipeError:  # the reader has had enough, as in gateon list streams | head -1
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except LostError as lost:
            _tell(f"gateon: {lost}")
            if is_program():  # what is left of the connection may abort the process as it ends
                os._exit(RESUMABLE)
            return RESUMABLE
        except RefusedError:  # the first process says why
            return 2
        except EXPECTED as error:
            if _talks() or not isinstance(error, ValueError):
                for sentence in _sentences(error):
                    _tell(f"gateon: {printable(sentence)}")
            return 2
    return 0


def _load(words: list[str]) -> tuple[dict[str, Command], list[str]]:
    """All commands, of which only the one asked for is imported, and the words to parse.

    A module whose options depend on the words has `prepare`, which returns its command and words.
    """
    commands = {name: _named(about) for name, about in COMMANDS.items()}
    if words and words[0] in commands and words[0] not in TOGETHER and _is_one_of_several():
        raise ValueError(
            f"gateon {words[0]} is for one process, and torchrun has started several (WORLD_SIZE): "
            "give it to gateon run or gateon resume only."
        )
    if words and words[0] in commands:
        name, *rest = words
        module = import_module(f".{name}", __package__)
        command, rest = (
            module.prepare(rest) if hasattr(module, "prepare") else (module.command, rest)
        )
        commands[name], words = command, [name, *rest]
    return commands, words


def _named(about: str) -> Command:
    """A command as `gateon --help` shows it."""

    def command() -> None: ...

    command.__doc__ = about
    return command


def _tell(text: str) -> None:
    """Print to standard error; a terminal may have been closed."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _talks() -> bool:
    """Whether this process is the first of those on its machine that torchrun has started."""
    return not _is_one_of_several() or os.environ.get("LOCAL_RANK", "0") == "0"


def _is_one_of_several() -> bool:
    return os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1")


def _sentences(error: Exception) -> Sequence[str]:
    """What went wrong, without the number of an operating system's error."""
    if isinstance(error, ProblemsError):
        return error.args
    if isinstance(error, OSError) and error.strerror:
        return [f"{error.filename}: {error.strerror}." if error.filename else error.strerror]
    if isinstance(error, RuntimeError):
        from ..runs.failures import is_out_of_memory  # here: it needs torch

        if not is_out_of_memory(error):
            raise error
        return ["There is not enough memory: choose a smaller network or a smaller batch."]
    return [str(error)]


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """A sentence about the user's files; any other warning as Python shows it."""
    text = (
        f"gateon: {printable(message)}"
        if issubclass(category, (CheckpointWarning, TrackerWarning))
        else warnings.formatwarning(message, category, filename, lineno, line)
    )
    print(text, file=sys.stderr)
