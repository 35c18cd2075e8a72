"""How many tasks still fit: the room left, continued as it fell so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["FULL", "Forecast", "forecast", "more"]

FULL = 0.05  # share of a layer that is still available when it counts as full


@dataclass(frozen=True)
class Forecast:
    """What runs out first.

    Args:
        site: the layer that fills up first.
        room: what is left of it, from 0 to 1.
        rate: what the last tasks took of it, each.
        tasks: how many more such tasks fit; None if it is not filling up.
    """

    site: str
    room: float
    rate: float
    tasks: int | None


def more(room: Sequence[float]) -> tuple[float, int | None]:
    """What a task takes of a layer, and how many more fit: (rate, tasks).

    The rate is that of the later half of the tasks; before the first of them all was available.

    Args:
        room: mean availability after each task.

    >>> more([0.9, 0.8, 0.7])
    (0.1, 6)
    >>> more([0.9, 0.8, 0.8, 0.8])
    (0.0, None)
    """
    course = [1.0, *room]
    since = len(room) // 2
    rate = round((course[since] - course[-1]) / (len(room) - since), 12) + 0.0
    if rate <= 0:
        return rate, None
    return rate, max(0, int((room[-1] - FULL) / rate + 1e-9))


def forecast(availability: Sequence[Mapping[str, Mapping[str, float]]]) -> Forecast | None:
    """The layer that fills up first, and when; None before two tasks were measured.

    Args:
        availability: after each task, by site {"room": mean availability, ...}.

    >>> forecast([{"1": {"room": 0.95}, "2": {"room": 0.9}}, {"1": {"room": 0.9}, "2": {"room": 0.7}}])
    Forecast(site='2', room=0.7, rate=0.2, tasks=3)
    """
    if len(availability) < 2:
        return None
    found = []
    for site in availability[-1]:
        room = [task[site]["room"] for task in availability if site in task]
        if len(room) == len(availability):
            found.append(Forecast(site, room[-1], *more(room)))
    return min(found, key=lambda one: (one.tasks is None, one.tasks, one.room), default=None)
