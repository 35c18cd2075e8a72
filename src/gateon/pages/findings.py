"""The answers at the top of the page of runs, in plain words. Pure functions of its facts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from .words import Facts, Mood, count, finding, percent, points, several, size, time

__all__ = ["of_comparison", "of_run"]

BOUNDS = ("joint", "isolated")  # they see all data at once, or no task after another
LITTLE, MUCH = 0.01, 0.05  # forgetting that is hardly worth a word, and that is


def of_run(run: Facts) -> list[Facts]:
    """What a run comes down to, the most important first.

    Args:
        run: its facts, see `facts_of_run`.
    """
    found = [_end(run), _forgotten(run), _later(run), _transfer(run), _room(run), _frozen(run)]
    found += [_detected(run), _cost(run)]
    return [one for one in found if one is not None]


def of_comparison(methods: Sequence[Facts]) -> list[Facts]:
    """What a comparison of methods comes down to.

    Args:
        methods: with their measures.
    """
    rivals = [method for method in methods if method["name"] not in BOUNDS]
    found = [_winner(rivals), _least_forgetting(rivals), _fastest(rivals), _smallest(rivals)]
    return [one for one in found if one is not None]


# One run.


def _end(run: Facts) -> Facts | None:
    last = [value for value in (run["accuracy"] or [[]])[-1] if value is not None]
    if not last:
        return finding("begun", "The first task is being learned; nothing is measured yet.")
    mean, tasks = statistics.fmean(last), len(run["accuracy"])
    if len(last) < tasks:
        return finding(percent(mean), "on the task learned last.", "retained")
    if tasks == 1:
        return finding(percent(mean), "accuracy on the only task.", "retained")
    worst = min(range(tasks), key=lambda task: last[task])
    when = "at the end" if run["whole"] else "learned so far"
    says = (
        f"accuracy on all {tasks} tasks {when}, their mean. "
        f"The lowest is {percent(last[worst])}, on task {worst + 1}."
    )
    return finding(percent(mean), says, "retained")


def _forgotten(run: Facts) -> Facts | None:
    rows = run["forgetting"][:-1]  # the last had no time to forget
    if not rows:
        return None
    lost = [then - now for _, then, now in rows]
    mean, most = statistics.fmean(lost), max(range(len(rows)), key=lambda n: lost[n])
    name = f"task {rows[most][0] + 1}"
    if mean < 0 and lost[most] <= 0:
        says = f"gained by a task since it was learned, on average; at least {points(-lost[most])}, {name}."
        return finding(points(-mean), says, "forgetting", "good")
    if mean <= LITTLE and lost[most] <= MUCH:
        says = f"lost by a task since it was learned, on average; at most {points(lost[most])}, {name}."
        return finding(points(mean), says, "forgetting", "good")
    if mean <= LITTLE:
        average = f"loses {points(mean)}" if mean > 0 else f"gains {points(-mean)}"
        says = f"lost by {name}, the most; on average a task {average}."
        return finding(points(lost[most]), says, "forgetting", "warn")
    mood: Mood = "bad" if mean > MUCH else "warn"
    says = f"forgotten of a task on average; most of {name}, which lost {points(lost[most])}."
    return finding(points(mean), says, "forgetting", mood)


def _later(run: Facts) -> Facts | None:
    first = [row[k] for k, row in enumerate(run["accuracy"]) if row[k] is not None]
    third = len(first) // 3
    if third < 1:
        return None
    early, late = statistics.fmean(first[:third]), statistics.fmean(first[-third:])
    fell = early - late
    both = f"{percent(early)} for the first third of the tasks, {percent(late)} for the last."
    if fell <= LITTLE:
        return finding(
            "keeps learning", f"New tasks are learned as well as ever: {both}", "retained"
        )
    mood: Mood = "bad" if fell > MUCH else "warn"
    return finding(f"−{points(fell)}", f"New tasks are learned less well: {both}", "retained", mood)


def _transfer(run: Facts) -> Facts | None:
    alone = run["isolated"]
    first = [row[k] for k, row in enumerate(run["accuracy"])]
    pairs = [(a, b) for a, b in zip(first, alone or [], strict=False) if a is not None]
    if not pairs:
        return None
    gained = statistics.fmean(a - b for a, b in pairs)
    how = "better" if gained >= 0 else "worse"
    says = f"{how} than networks that learned one task each: what earlier tasks did for later ones."
    return finding(points(abs(gained)), says, "forgetting", "good" if gained > 0 else "plain")


def _room(run: Facts) -> Facts | None:
    left = run["forecast"]
    if left is None:
        return None
    where = f"Layer {left['site']} has the least room left, {percent(left['room'], 0)}"
    if left["tasks"] is None:
        return finding("room", f"{where}, and the last tasks took none of it.", "room", "good")
    learned = len(run["accuracy"])
    mood: Mood = "good" if left["tasks"] >= learned else "warn" if left["tasks"] else "bad"
    head = f"≈ {left['tasks']:,} more" if left["tasks"] else "full"
    says = f"tasks like these fit. {where}; a task takes {points(left['rate'])} of it."
    return finding(head, says if left["tasks"] else f"{where}.", "room", mood)


def _frozen(run: Facts) -> Facts | None:
    if not run["availability"]:
        return None
    now = run["availability"][-1]
    site = max(now, key=lambda name: now[name]["frozen"])
    says = (
        f"of layer {site} is frozen, the most of all layers: availability below 0.05, which no "
        "longer changes."
    )
    return finding(percent(now[site]["frozen"], 0), says, "raster" if run["raster"] else "room")


def _detected(run: Facts) -> Facts | None:
    found = run["detector"]
    if found is None or not found["real"]:
        return None
    seen = found["real"] - found["missed"]
    late = "" if found["delay"] is None else f", typically in batch {found['delay']:.0f} of a task"
    alarms = found["false_alarms"]
    wrong = "no false alarm" if not alarms else count(alarms, "false alarm")
    taken = found["collapses"]
    if taken:
        wrong += f"; {several(taken, 'new task was', 'new tasks were')} taken for old ones"
    mood: Mood = "good" if not found["missed"] and not alarms and not taken else "warn"
    says = f"switches of the task were noticed{late}; {wrong}. Nobody told when a task ended."
    return finding(f"{seen} of {found['real']}", says, "detector", mood)


def _cost(run: Facts) -> Facts | None:
    if not run["seconds"]:
        return None
    total = sum(train for train, _ in run["seconds"])
    kept = "" if run["bytes"] is None else f"; {size(run['bytes'])} are kept between tasks"
    tasks = count(len(run["seconds"]), "task")
    return finding(time(total), f"of training for {tasks}{kept}.", "cost")


# Several methods.


def _ranked(methods: Sequence[Facts], measure: str, *, highest: bool) -> list[Facts]:
    known = [method for method in methods if measure in method["measures"]]
    return sorted(known, key=lambda m: m["measures"][measure]["mean"], reverse=highest)


def _winner(methods: Sequence[Facts]) -> Facts | None:
    ranked = _ranked(methods, "final_accuracy", highest=True)
    if len(ranked) < 2:
        return None
    (first, one), (second, other) = ((m, m["measures"]["final_accuracy"]) for m in ranked[:2])
    ahead = one["mean"] - other["mean"]
    says = f"keeps most: {_spread(one)} on all tasks at the end, {points(ahead)} ahead of {second['name']}"
    return finding(first["name"], f"{says}{_certainty(one, other)}.", "methods", "good")


def _certainty(one: Facts, other: Facts) -> str:
    """Whether a lead is more than chance between seeds, as far as their spread tells."""
    if min(one["count"], other["count"]) < 2:
        return " (one seed, so chance is not ruled out)"
    error = math.sqrt(sum(m["spread"] ** 2 / m["count"] for m in (one, other)))
    clear = one["mean"] - other["mean"] > 2 * error
    return ", more than seeds differ" if clear else ", no more than seeds differ"


def _spread(found: Facts) -> str:
    spread = f" ± {100 * found['spread']:.1f}" if found["count"] > 1 else ""
    return f"{100 * found['mean']:.1f}{spread} %"


def _least_forgetting(methods: Sequence[Facts]) -> Facts | None:
    ranked = _ranked(methods, "forgetting_rate", highest=False)
    if len(ranked) < 2:
        return None
    least, most = ranked[0], ranked[-1]
    small, large = (m["measures"]["forgetting_rate"]["mean"] for m in (least, most))
    says = f"is forgotten by {least['name']}, the least; {most['name']} forgets {points(large)}."
    return finding(points(small), says, "methods")


def _fastest(methods: Sequence[Facts]) -> Facts | None:
    ranked = _ranked(methods, "seconds", highest=False)
    best = _ranked(methods, "final_accuracy", highest=True)
    if len(ranked) < 2 or ranked[0]["measures"]["seconds"]["mean"] <= 0:
        return None
    fastest, leader = ranked[0], best[0]
    quick, slow = (m["measures"]["seconds"]["mean"] for m in (fastest, leader))
    others = (
        "and it is the one that keeps most."
        if fastest is leader
        else f"{leader['name']}, which keeps most, takes {slow / quick:.1f} times as long."
    )
    return finding(
        time(quick), f"of training for {fastest['name']}, the fastest; {others}", "methods"
    )


def _smallest(methods: Sequence[Facts]) -> Facts | None:
    ranked = _ranked(methods, "bytes", highest=False)
    best = _ranked(methods, "final_accuracy", highest=True)
    if len(ranked) < 2:
        return None
    least, most = (m["measures"]["bytes"]["mean"] for m in (ranked[0], ranked[-1]))
    leader = best[0]["measures"].get("bytes")
    says = f"kept between tasks by {ranked[0]['name']}, the least; {ranked[-1]['name']} keeps {size(most)}"
    if leader is not None and best[0] not in (ranked[0], ranked[-1]):
        says += f", {best[0]['name']} {size(leader['mean'])}"
    return finding(size(least), f"{says}.", "methods")
