"""The rule by which the other tests compare numbers, and that another rounding is one."""

from __future__ import annotations

import os

import pytest
import torch

from rounding import SMOOTH_ADAM, assert_same, half_of_the_digits

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_half_of_the_digits_of_the_largest_number_must_agree(dtype):
    x = torch.tensor([1e-9, 1.0, -300.0], dtype=dtype)
    off = 300 * half_of_the_digits(dtype)
    assert_same(x + 0.9 * off, x)
    with pytest.raises(AssertionError, match="weight: "):
        assert_same({"weight": x + 1.1 * off}, {"weight": x})


@pytest.mark.parametrize(
    "actual, expected",
    [({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), (torch.tensor([1, 2]), torch.tensor([1, 3]))],
)
def test_what_is_not_floating_point_must_be_equal(actual, expected):
    assert_same(expected, expected)
    with pytest.raises(AssertionError):
        assert_same(actual, expected)


def test_a_step_of_adam_enlarges_rounding_unless_it_is_smooth():
    def apart(optimizer):
        theta = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        theta.grad = torch.tensor([0.0, 1e-12], dtype=torch.float64)
        optimizer([theta]).step()
        return (theta[0] - theta[1]).item()

    assert apart(SMOOTH_ADAM) < 1e-11 < 1e-7 < apart(lambda p: torch.optim.Adam(p, lr=5e-3))


def test_the_kernels_that_were_asked_for_are_taken():
    asked = os.environ.get("ATEN_CPU_CAPABILITY")
    if asked is None:
        pytest.skip("this run takes the kernels of its processor")
    assert torch.backends.cpu.get_cpu_capability().lower() == asked
