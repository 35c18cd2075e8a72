"""How near two ways of computing the same numbers must come, whatever the processor.

Processors, libraries and numbers of threads take sums in different orders. Two ways that are equal
on paper are then about n G eps apart, relative to the largest numbers involved: n roundings follow
one another, and later steps enlarge each of them G times. Neither can be read off one machine, so
`assert_same` does not try to be tight: it allows the square root of eps, half of the digits. That
leaves room for an n G of 7e7 in float64 and of 3,000 in float32, while a mistake in the mathematics
shows in the first digits. All it asks for is that G is moderate:

- Training is compared in float64, over tens of steps.
- The step of an optimizer is Lipschitz in the gradient. Adam's is lr m / (sqrt(v) + eps), which has
  a slope of lr / eps where the gradient is near zero. With the usual eps of 1e-8 that is 5e5:
  rounding alone then moves a parameter that has hardly any gradient. `SMOOTH_ADAM` has a slope of
  5, SGD with momentum 0.9 one of 10 lr.
- What is divided by a sum of nothing but rounding is left out: a bias before a norm has no
  gradient, so that its normalised relevance is noise.

One pass through a small network (n about 100, G about 1) may use the defaults of `torch.testing`.
Where a bound is of another kind, because something is exact to first order only or because shares
of random draws are counted, it stands where it is used.

What training ends with, an accuracy or how much is forgotten, is not compared but bounded, and such
a bound has to hold for any run of its kind: another rounding may be another draw. It leaves room
for several times the scatter between runs.

Equality to the bit is asked for in three cases only:

- Nothing is rounded: numbers are copied, left alone, or multiplied by 0, 1 or a power of two.
  This holds on every processor.
- Whole numbers decide, as in the tasks of streams and their golden hashes. This holds on every
  processor.
- The same code runs on the same numbers in the same shapes: saved and resumed, copied, run twice.
  This holds within one processor and one number of threads. The numbers themselves differ from one
  processor to the next, and are written down nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

SMOOTH_ADAM = partial(torch.optim.Adam, lr=5e-3, eps=1e-3)


def half_of_the_digits(dtype=torch.float64):
    """What may differ, relative to the largest of the numbers."""
    return torch.finfo(dtype).eps ** 0.5


def assert_same(actual, expected, name=""):
    """Equal but for rounding: half of the digits of the largest number of a tensor; what is not floating point must be equal."""
    if isinstance(expected, Mapping):
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(actual[key], value, f"{name}{key}: ")
    elif isinstance(expected, torch.Tensor) and expected.is_floating_point() and expected.numel():
        allowed = half_of_the_digits(expected.dtype) * expected.detach().abs().max().item()
        torch.testing.assert_close(actual, expected, rtol=0, atol=allowed, msg=lambda m: name + m)
    else:
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, msg=lambda m: name + m)
