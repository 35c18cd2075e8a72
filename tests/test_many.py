"""The progress of many runs: one table on a terminal, lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gateon.report.many import ManyLines, ManyLive, many_for


def follow(board):
    board.open(3)
    board.told("ewc-0", "begin", ("permuted-mnist ewc", [10, 10], 0))
    board.told("si-0", "begin", ("permuted-mnist si", [10, 10], 13))
    board.told("ewc-0", "step", (0, 5, 1.25))
    board.told("ewc-0", "task", (0, "zero", [0.5], 2.0))
    board.told("ewc-0", "task", (1, "one", [None, 0.75], 2.0))
    board.told("unknown", "step", (0, 5, 1.25))  # from before its node was lost
    board.ended("ewc-0", "done")
    board.ended("si-0", "lost")
    board.note("Stopping: waiting until 1 runs are saved.")


def test_lines(capsys):
    board = many_for(Console(file=io.StringIO()))
    assert isinstance(board, ManyLines)
    follow(board)
    board.close()
    told = capsys.readouterr().err.splitlines()
    assert told[:2] == [
        "ewc-0 begins: permuted-mnist ewc: 2 tasks of 10 steps",
        "si-0 begins: permuted-mnist si: 2 tasks of 10 steps, resuming at task 2, step 3",
    ]
    assert told[2].startswith("ewc-0: task 1/2, accuracy 50.00, mean so far 50.00, ")
    assert told[4:] == [
        "ewc-0 finished (1 of 3 over)",
        "si-0 its node is gone: begins again where it was saved (1 of 3 over)",
        "Stopping: waiting until 1 runs are saved.",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_a_table(width):
    screen = io.StringIO()
    board = many_for(Console(file=screen, force_terminal=True, width=width))
    assert isinstance(board, ManyLive)
    board.open(30)
    for n in range(25):
        board.told(f"p-gateon-{n}", "begin", ("permuted-mnist p-gateon", [10] * 100, 0))
    board.told("p-gateon-0", "task", (0, "zero", [0.5], 2.0))
    board.told("p-gateon-0", "step", (1, 5, 1.25))
    plain = Console(file=io.StringIO(), width=width, record=True)
    plain.print(board._table())
    lines = plain.export_text().splitlines()
    assert lines[0].split() == ["0", "of", "30", "over", "task", "step", "loss", "accuracy", "left"]
    assert lines[1].split()[:5] == ["p-gateon-0", "2/100", "15/1000", "1.250", "50.00"]
    assert "and 5 more" in lines[-1] and len(lines) == 22 and max(map(len, lines)) <= width
    board.ended("p-gateon-0", "done")
    board.close()
    assert "p-gateon-0 finished, accuracy 50.00" in screen.getvalue()


def test_a_closed_terminal_is_nothing(capsys):
    screen = io.StringIO()
    board = ManyLive(Console(file=screen, force_terminal=True))
    follow(board)
    screen.write = lambda text: (_ for _ in ()).throw(OSError("gone"))
    follow(board)
    board.close()
