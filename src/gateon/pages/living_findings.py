"""The answers at the top of the page of a living model, and what is at risk. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from .words import Facts, Mood, count, finding, percent, points

__all__ = ["findings_of", "risks_of"]

FEW = 30  # held-out rows that say little
CONFUSED = 0.03  # what is lost where the task is not told, and worth a word
FELL = 0.01
SCARCE = 3  # more tasks that fit


def findings_of(
    tasks: Sequence[Facts],
    risks: Sequence[Facts],
    more: int | None,
    room: Mapping[str, float],
    lessons: Sequence[Facts],
) -> list[Facts]:
    """What the model comes down to.

    Args:
        tasks: see `facts_of_model`.
        risks: what is at risk.
        more: how many more tasks fit.
        room: what is left by layer.
        lessons: those in force.
    """
    found = [_answers(tasks), _untold(tasks), _kept(tasks), _risks(risks), _room(more, room, tasks)]
    found.append(_last(lessons))
    return [one for one in found if one is not None]


def risks_of(tasks: Sequence[Facts], more: int | None, room: Mapping[str, float]) -> list[Facts]:
    """What to look after, the most pressing first.

    Args:
        tasks: see `facts_of_model`.
        more: how many more tasks fit.
        room: what is left by layer.
    """
    found = [_risk(*one) for task in tasks for one in _risks_of_task(task)]
    if more is not None and more < SCARCE and room:
        site = min(room, key=lambda name: room[name])
        says = (
            f"Layer {site} has {percent(room[site], 0)} of its room left: about "
            f"{count(more, 'more task')} like these will fit, and later ones make do with what "
            "others learned. Begin another model for what is to come, or try it and undo."
        )
        found.append(_risk("", "room is scarce", says, "warn"))
    return sorted(found, key=lambda risk: risk["mood"] != "bad")


def _risk(task: str, head: str, says: str, mood: Mood) -> Facts:
    return {"task": task, "head": head, "says": says, "mood": mood}


def _risks_of_task(task: Facts) -> list[tuple[str, str, str, Mood]]:
    name, now, then, untold, held = (task[key] for key in ("name", "now", "then", "untold", "held"))
    if now is None:
        says = "Nothing of it was held out, so nobody knows how well it is still answered."
        return [(name, "not measured", says, "warn")]
    found: list[tuple[str, str, str, Mood]] = []
    error = task["error"]
    if then is not None and then - now > max(FELL, error):
        says = (
            f"Right after it was learned {percent(then)} of its held-out rows were answered right, "
            f"now {percent(now)}, over {count(held, 'row')} (good to ± {points(error)}). "
            "Teach it again with rows of today, or undo the lesson that did it."
        )
        found.append((name, "forgotten", says, "bad"))
    if untold is not None and now - untold > max(CONFUSED, error):
        says = (
            f"{percent(now)} right where the task is told, {percent(untold)} where it must be found: "
            "some of its rows are taken for those of another task. Say --task where you know it."
        )
        found.append((name, "mistaken for others", says, "warn"))
    if held < FEW:
        says = f"Only {count(held, 'row')} measure it: its accuracy is good to ± {points(error)}."
        found.append((name, "hardly measured", says, "warn"))
    return found


def _answers(tasks: Sequence[Facts]) -> Facts | None:
    now = [task["now"] for task in tasks if task["now"] is not None]
    if not now:
        return None
    says = f"of held-out rows are answered right, mean over {count(len(now), 'task')}, task told."
    return finding(percent(statistics.fmean(now)), says, "tasks")


def _untold(tasks: Sequence[Facts]) -> Facts | None:
    both = [
        (t["now"], t["untold"]) for t in tasks if t["now"] is not None and t["untold"] is not None
    ]
    if len(both) < 2:
        return None
    told, untold = (statistics.fmean(values) for values in zip(*both, strict=True))
    mood: Mood = "warn" if told - untold > CONFUSED else "good"
    says = "right where nobody says which task a row belongs to, and the model finds out."
    return finding(percent(untold), says, "tasks", mood)


def _kept(tasks: Sequence[Facts]) -> Facts | None:
    lost = {
        task["name"]: task["then"] - task["now"]
        for task in tasks
        if task["then"] is not None and task["now"] is not None
    }
    if len(lost) < 2:
        return None
    worst = max(lost, key=lambda name: lost[name])
    error = next(task["error"] for task in tasks if task["name"] == worst)
    if lost[worst] <= max(FELL, error):
        says = (
            f"No task lost more than its held-out rows can tell; at most {points(max(0, lost[worst]))}"
            f", {worst}."
            if lost[worst] > 0
            else "No task has lost anything since it was learned."
        )
        return finding("nothing forgotten", says, "lessons", "good")
    return finding(f"−{points(lost[worst])}", f"is what {worst} lost, the most.", "lessons", "bad")


def _risks(risks: Sequence[Facts]) -> Facts:
    if not risks:
        return finding(
            "nothing at risk", "Every task is measured, kept and told apart.", "risks", "good"
        )
    names = list(dict.fromkeys(risk["task"] for risk in risks if risk["task"]))
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    mood: Mood = "bad" if any(risk["mood"] == "bad" for risk in risks) else "warn"
    heads = ", ".join(dict.fromkeys(risk["head"] for risk in risks))
    says = f"{heads}: {some}." if names else f"{heads}."
    return finding(f"{len(risks)} to look after", says, "risks", mood)


def _room(more: int | None, room: Mapping[str, float], tasks: Sequence[Facts]) -> Facts | None:
    if more is None or not room:
        return None
    site = min(room, key=lambda name: room[name])
    mood: Mood = "good" if more >= len(tasks) else "warn" if more else "bad"
    head = f"≈ {more:,} more" if more else "full"
    says = f"Layer {site} has the least room left, {percent(room[site], 0)}."
    return finding(head, f"tasks like these fit. {says}" if more else says, "room", mood)


def _last(lessons: Sequence[Facts]) -> Facts | None:
    if not lessons:
        return None
    last = lessons[-1]
    accuracy = "" if last["accuracy"] is None else f", {percent(last['accuracy'])} right"
    when = str(last["when"] or "")[:16].replace("T", " ")
    return finding(
        str(last["task"]), f"was learned last: {last['rows']:,} rows{accuracy}; {when}.", "history"
    )
