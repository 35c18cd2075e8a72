"""The page of a living model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateon.cli import main
from gateon.life.task import Part, Task
from gateon.pages.kinds import facts
from gateon.pages.living import error_of, lessons_of
from gateon.pages.page import page
from page_records import HOSTILE, TASKS, held, living


def found(folder, **changes):
    """The facts of a model of two tasks, of which the second has other numbers."""
    measured = {"then": 0.95, "now": 0.95, "untold": 0.94}
    tasks = [replace(TASKS["banking"], **measured), replace(TASKS["travel"], **measured | changes)]
    return facts([living(folder, tasks)])


def test_the_tasks_and_lessons_of_a_model_are_there(tmp_path):
    shown = found(tmp_path / "support")
    assert shown["title"] == "support" and "2 tasks, 4 labels, version 2" in shown["about"]
    assert [task["name"] for task in shown["tasks"]] == ["banking", "travel"]
    assert [lesson["now"] for lesson in shown["lessons"]] == [[0.95, None], [0.95, 0.95]]
    assert shown["lessons"][1]["room"] == {"1": pytest.approx(0.8)} and shown["more"] == 24
    assert shown["gates"]["names"] == ["banking", "travel"]
    assert [v["version"] for v in shown["versions"]] == [2, 1] and shown["versions"][0]["current"]


def test_nothing_at_risk_is_said_first(tmp_path):
    shown = found(tmp_path)
    assert shown["risks"] == []
    assert {"nothing at risk", "nothing forgotten", "95.0 %", "≈ 24 more"} <= {
        one["head"] for one in shown["findings"]
    }


@pytest.mark.parametrize(
    ("changes", "head"),
    [
        ({"now": 0.85}, "forgotten"),
        ({"untold": 0.8}, "mistaken for others"),
        ({"now": None, "untold": None, "held": 0}, "not measured"),
        ({"held": 12}, "hardly measured"),
    ],
)
def test_what_is_at_risk_is_named(changes, head, tmp_path):
    shown = found(tmp_path, **changes)
    assert [(risk["task"], risk["head"]) for risk in shown["risks"]] == [("travel", head)]
    assert any(one["head"] == "1 to look after" for one in shown["findings"])


def test_a_fall_within_the_error_of_few_rows_is_no_alarm(tmp_path):
    assert found(tmp_path / "few", held=40, now=0.90)["risks"] == []
    assert found(tmp_path / "many", held=1000, now=0.90)["risks"][0]["head"] == "forgotten"
    assert error_of(Task("a", held=400, now=1.0)) > 0, "even all right may be off"


def test_little_room_is_a_risk(tmp_path):
    shown = facts([living(tmp_path, room=0.06)])
    assert [risk["head"] for risk in shown["risks"]] == ["room is scarce"]


def test_undone_lessons_are_left_out():
    learned = [{"what": "learn", "version": n, "lessons": [{"task": f"t{n}"}]} for n in (1, 2, 3)]
    undone = {"what": "undo", "undone": 3, "version": 2}
    again = {"what": "learn", "version": 4, "lessons": [{"task": "t4"}]}
    names = [lesson["task"] for lesson in lessons_of([*learned, undone, again])]
    assert names == ["t1", "t2", "t4"]


def test_a_history_of_before_has_no_room_and_a_page(tmp_path):
    living(tmp_path)
    path = tmp_path / "history.jsonl"
    path.write_text(path.read_text().replace('"room"', '"other"'))
    shown = facts([tmp_path])
    assert all(lesson["room"] == {} for lesson in shown["lessons"]) and page(shown)


def test_a_context_that_a_task_got_later_has_its_name(tmp_path):
    twice = replace(TASKS["banking"], parts=(Part(0, ("a",), (0,)), Part(1, ("b",), (1,))))
    living(tmp_path, [replace(TASKS["banking"], then=0.9, now=0.9), twice])
    assert facts([tmp_path])["gates"]["names"] == ["banking", "banking (2)"]


def test_hostile_names_of_tasks_are_text(tmp_path):
    task = replace(TASKS["banking"], name=HOSTILE, then=0.9, now=0.9)
    text = page(facts([living(tmp_path, [task])]))
    assert "<script>alert" not in text and text.count("</script>") == 2
    assert held(text)["tasks"][0]["name"].startswith("</script>")


def test_the_command_writes_it(tmp_path, capsys):
    assert main(["report", str(living(tmp_path / "m"))]) == 0
    assert (tmp_path / "m" / "report.html").exists(), capsys.readouterr()
