"""How well switches were found, counted by hand."""

import pytest

from gateon.runs.switches import compared


def test_all_found_at_once():
    found = compared([0, 1, 2], [0, 1, 2], [[1, 0, 1], [2, 0, 2]])
    assert (found.switches, found.missed, found.delays, found.false_alarms, found.collapses) == (
        2,
        0,
        [1, 1],
        0,
        0,
    )


def test_a_missed_switch_is_no_false_alarm_and_shares_a_context():
    found = compared([0, 1, 2], [0, 0, 1], [[2, 3, 1]])
    assert (found.switches, found.missed, found.delays, found.collapses) == (2, 1, [4], 1)


def test_switches_in_the_first_task_or_where_the_task_goes_on_are_false_alarms():
    found = compared([0, 0, 1], [1, 1, 2], [[0, 9, 1], [1, 5, 0], [1, 6, 1], [2, 2, 2]])
    assert (found.false_alarms, found.delays, found.missed) == (3, [3], 0)


def test_returns_are_recognised_by_the_context_they_ended_in():
    found = compared([0, 1, 0, 1], [0, 1, 0, 2], [[1, 2, 1], [2, 2, 0], [3, 2, 2]])
    assert (found.returns, found.recognised, found.collapses) == (2, 1, 0)


def test_a_return_into_a_strange_context_is_not_recognised():
    assert compared([0, 1, 2, 0], [0, 1, 2, 1], [[1, 0, 1], [2, 0, 2], [3, 0, 1]]).recognised == 0


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="2 tasks and 1 contexts"):
        compared([0, 1], [0], [])
