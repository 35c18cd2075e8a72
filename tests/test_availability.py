"""Availability against its literal twin, and the properties the paper states of it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from gateon.availability import rule as availability

pytestmark = pytest.mark.numeric

double = torch.float64
shares = st.lists(st.floats(0, 1), min_size=2, max_size=20)
rates, epsilons = st.floats(0, 0.5), st.floats(0, 2)


def tensors(A, mu):
    size = min(len(A), len(mu))
    return torch.tensor(A[:size], dtype=double), torch.tensor(mu[:size], dtype=double)


@settings(deadline=None)
@given(
    shares, st.lists(st.floats(0, 50), min_size=2, max_size=20), rates, epsilons, st.floats(0, 0.2)
)
def test_update_equals_its_twin_and_stays_in_bounds(A, mu, rate, epsilon, floor):
    A, mu = tensors(A, mu)
    if not (mu > 0).any():
        mu[0] = 1.0
    new = availability.update(A, mu, rate, epsilon, floor)
    torch.testing.assert_close(new, reference.availability(A, mu, rate, epsilon, floor))
    assert (new >= floor).all() and (new <= 1).all()


@settings(deadline=None)
@given(shares, st.lists(st.floats(0, 50), min_size=2, max_size=20), rates)
def test_without_epsilon_nothing_ever_rises(A, mu, rate):
    A, mu = tensors(A, mu)
    assert (availability.update(A, mu, rate) <= A).all()


@settings(deadline=None)
@given(shares, rates, epsilons)
def test_irrelevant_units_rise_and_relevant_ones_fall(A, rate, epsilon):
    A = torch.tensor(A, dtype=double)
    mu = torch.where(torch.arange(len(A)) % 2 == 0, epsilon / 2, epsilon + 1.0).double()
    new = availability.update(A, mu, rate, epsilon)
    # of a product of two factors
    rounding = 4 * torch.finfo(double).eps * A + torch.finfo(double).tiny
    assert (new[::2] >= (A - rounding)[::2]).all() and (new[1::2] <= (A + rounding)[1::2]).all()


def test_a_frozen_unit_recovers_only_above_a_floor():
    A, relevant, idle = torch.tensor([0.5, 0.5]), torch.tensor([2.0, 0.0]), torch.tensor([0.0, 2.0])
    for floor, recovers in ((0.0, False), (0.01, True)):
        B = A
        for _ in range(5):
            B = availability.update(B, relevant, rate=0.9, epsilon=0.5, floor=floor)
        assert B[0] == floor
        for _ in range(20):
            B = availability.update(B, idle, rate=0.9, epsilon=0.5, floor=floor)
        assert (B[0] > 0.5) == recovers


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_relevance_that_is_not_finite_changes_nothing(bad):
    A = torch.tensor([0.3, 0.9])
    assert torch.equal(availability.update(A, torch.tensor([bad, 1.0]), 0.1, 0.5), A)


def test_relevance_that_is_zero_everywhere_changes_nothing():
    A = torch.tensor([0.3, 0.9])
    assert torch.equal(availability.update(A, torch.zeros(2), 0.1, 0.5), A)


@pytest.mark.parametrize(
    "a, b, rate, epsilon", [(3.0, 0.0, 0.01, 1.0), (2.0, 0.2, 0.02, 0.5), (10.0, 0.9, 0.01, 1.0)]
)
def test_recovery_takes_the_time_of_the_supplement(a, b, rate, epsilon):
    predicted = availability.recovery_time(50, a, b, rate, epsilon)
    assert reference.steps_until_recovered(50, a, b, rate, epsilon) == pytest.approx(
        predicted, abs=1
    )
    # The dynamics themselves, in the package's own update: two units so that the relevances have
    # mean one or less.
    A = torch.tensor([0.5], dtype=double)
    for _ in range(50):
        A = availability.update(A, torch.tensor([a], dtype=double), rate, epsilon)
    for _ in range(math.floor(predicted) - 1):
        A = availability.update(A, torch.tensor([b or 1e-300], dtype=double), rate, epsilon)
    assert A < 0.5
    for _ in range(2):
        A = availability.update(A, torch.tensor([b or 1e-300], dtype=double), rate, epsilon)
    assert A >= 0.5 - 1e-9


def test_recovery_is_endless_without_epsilon_or_from_zero():
    assert availability.recovery_time(10, 2.0, 0.0, 0.01, 0.0) == math.inf
    assert availability.recovery_time(10, 200.0, 0.0, 0.01, 1.0) == math.inf
    assert availability.recovery_time(10, 1.0, 0.5, 0.01, 1.0) == 0
    with pytest.raises(ValueError, match="irrelevant afterwards"):
        availability.recovery_time(10, 0.5, 2.0, 0.01, 1.0)


def test_saturation_counts_what_is_below_the_threshold():
    A = torch.tensor([0.0, 0.04, 0.05, 0.5])
    assert availability.saturation(A) == 0.5 and availability.saturation(A, 0.6) == 1.0
    assert availability.room(A) == pytest.approx(0.1475)
