"""Ridge: classes in closed form, in any order, with nothing stored."""

from __future__ import annotations

import pytest
import torch

import reference
from gateon.detection.ridge import Ridge

numeric = pytest.mark.numeric
CLOSE = {"rtol": 1e-3, "atol": 1e-4}  # sums of a hundred products in float32, solved in float64


def samples(count=200, inputs=6, classes=4):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(count) % classes
    centres = 2 * torch.randn(classes, inputs, generator=generator)
    return centres[y] + torch.randn(count, inputs, generator=generator), y


def made(parts, classes=4):
    ridge = Ridge(6, width=40, strength=5.0, seed=1)
    for x, y in parts:
        ridge.add(x, y, classes)
    return ridge


@numeric
def test_weights_are_those_of_the_regression_over_all_samples():
    x, y = samples()
    ridge = made([(x, y)])
    wanted = reference.ridge(ridge.features(x), y, 4, 5.0)
    torch.testing.assert_close(ridge.weights().double(), wanted, **CLOSE)
    assert (ridge.scores(x).argmax(1) == y).float().mean() > 0.9


@numeric
def test_the_order_of_tasks_does_not_matter():
    x, y = samples()
    by_class = [(x[y == k], y[y == k]) for k in range(4)]
    forward, backward = made(by_class), made(by_class[::-1])
    torch.testing.assert_close(forward.weights(), backward.weights(), **CLOSE)
    assert forward.counts.tolist() == [50] * 4


@numeric
def test_a_class_that_comes_later_leaves_what_earlier_ones_contributed():
    x, y = samples()
    early, late = y < 2, y >= 2
    ridge = Ridge(6, width=40, strength=5.0, seed=1)
    ridge.add(x[early], y[early], classes=2)
    before = ridge.C.clone()
    ridge.add(x[late], y[late], classes=4)
    assert torch.equal(ridge.C[:, :2], before)
    torch.testing.assert_close(ridge.weights(), made([(x, y)]).weights(), **CLOSE)


def test_a_state_goes_on_in_another_process():
    x, y = samples()
    ridge, other = made([(x, y)]), made([])
    other.load_state_dict(ridge.state_dict())
    assert torch.equal(other.scores(x), ridge.scores(x))
    assert ridge.state_dict()["G"].numel() == 40 * 41 // 2


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        Ridge(6, width=0)
    with pytest.raises(ValueError, match="strength must be positive and finite"):
        Ridge(6, strength=0)
    ridge = made([samples()])
    with pytest.raises(ValueError, match="Classes must be from 0 to 3"):
        ridge.add(torch.zeros(1, 6), torch.tensor([4]), classes=4)
    with pytest.raises(ValueError, match="none may go away"):
        ridge.add(torch.zeros(1, 6), torch.tensor([0]), classes=2)
    with pytest.raises(ValueError, match="other random features than 40"):
        ridge.load_state_dict(Ridge(6, width=30).state_dict())
