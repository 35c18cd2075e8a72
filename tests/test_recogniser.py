"""Recogniser: the task of single samples, and the literal twin of its equations."""

from __future__ import annotations

import pytest
import torch

import reference
from gateon.detection.recogniser import Recogniser
from rounding import assert_same

numeric = pytest.mark.numeric


def samples(count=240, inputs=8, rows=6, seed=0, noise=0.3):
    """Two tasks of three rows: row r of task r // 3."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(9))
    row = torch.arange(count) % rows
    return centres[row] + noise * torch.randn(count, inputs, generator=generator), row


def learned(order=(0, 1), **settings):
    recogniser = Recogniser(8, width=100, strength=1.0, **settings)
    x, row = samples()
    for task in order:
        own = row // 3 == task
        recogniser.add(x[own], row[own], task)
    return recogniser


@numeric
def test_it_is_what_its_equations_say():
    recogniser = learned()
    x, row = samples(seed=1, noise=0.8)
    logits = torch.randn(len(x), 6, generator=torch.Generator().manual_seed(3))
    recogniser.calibrate(x, row, logits)
    scores, scales = recogniser.scores(x), (recogniser.a, recogniser.b, recogniser.c)
    for said in (logits, None):
        wanted = reference.recognised(scores, said, [0, 0, 0, 1, 1, 1], *scales)
        seen = recogniser.recognise(x, said)
        assert_same(seen.rows, wanted.float())
        tasks = torch.stack([wanted[:, :3].sum(1), wanted[:, 3:].sum(1)], 1)
        assert_same(recogniser.tasks(scores), tasks.float())
        assert torch.equal(seen.task, tasks.argmax(1))


def test_single_samples_are_recognised_and_strange_ones_are_not_known():
    recogniser = learned()
    x, row = samples(seed=1)
    recogniser.calibrate(x, row)
    x, row = samples(seed=2)
    seen = recogniser.recognise(x)
    assert (seen.task == row // 3).float().mean() > 0.95
    assert (seen.rows.argmax(1) == row).float().mean() > 0.95
    assert seen.known.float().mean() > 0.85
    strange = torch.randn(200, 8, generator=torch.Generator().manual_seed(5))
    assert recogniser.recognise(strange).known.float().mean() < 0.6


def test_certainty_is_as_often_right_as_it_says():
    recogniser = learned()
    recogniser.calibrate(*samples(count=1200, seed=1, noise=1.0))
    x, row = samples(count=1200, seed=2, noise=1.0)
    seen = recogniser.recognise(x)
    right = (seen.task == row // 3).float()
    assert 0.5 < right.mean() < 0.99  # so that there is something to be unsure of
    assert abs(seen.certainty.mean() - right.mean()) < 0.05


def test_a_network_decides_where_the_ridge_cannot():
    recogniser = learned()
    x, row = samples(seed=1, noise=1.0)
    logits = 9.0 * torch.nn.functional.one_hot(row, 6).float()
    recogniser.calibrate(x, row, logits)
    alone, both = recogniser.recognise(x), recogniser.recognise(x, logits)
    assert torch.equal(alone.task, both.task)
    right = [(seen.rows.argmax(1) == row).float().mean() for seen in (alone, both)]
    assert right[1] > right[0]


@numeric
def test_the_order_of_tasks_does_not_matter():
    x, _ = samples(seed=1)
    assert_same(learned((1, 0)).scores(x), learned((0, 1)).scores(x))


def test_a_task_gets_new_labels_after_others_came():
    recogniser = learned()
    strange = torch.randn(40, 8, generator=torch.Generator().manual_seed(5)) / 10
    strange[:, 0] += 8
    recogniser.add(strange, torch.full((40,), 7), task=0)  # row 6 is still nobody's
    assert recogniser.owner.tolist() == [0, 0, 0, 1, 1, 1, -1, 0]
    recogniser.calibrate(strange, torch.full((40,), 7))
    seen = recogniser.recognise(strange)
    assert (seen.task == 0).all() and (seen.rows.argmax(1) == 7).all()
    assert (seen.rows[:, 6] == 0).all()
    torch.testing.assert_close(seen.rows.sum(1), torch.ones(40))


def test_a_state_goes_on_in_another_process():
    recogniser, other = learned(), Recogniser(8, width=100, strength=1.0)
    x, row = samples(seed=1)
    recogniser.calibrate(x, row)
    other.load_state_dict(recogniser.state_dict())
    ours, theirs = recogniser.recognise(x), other.recognise(x)
    assert torch.equal(ours.rows, theirs.rows) and torch.equal(ours.known, theirs.known)


def test_bad_input_changes_nothing():
    recogniser = learned()
    before = recogniser.scores(samples()[0])
    with pytest.raises(ValueError, match="Row 0 belongs to task 0, not to 1"):
        recogniser.add(torch.ones(1, 8), torch.tensor([0]), task=1)
    with pytest.raises(ValueError, match=r"Samples must be \(N, 8\)"):
        recogniser.add(torch.ones(1, 7), torch.tensor([0]), task=0)
    with pytest.raises(ValueError, match="must be finite"):
        recogniser.add(torch.full((1, 8), torch.nan), torch.tensor([0]), task=0)
    with pytest.raises(ValueError, match="count from 0"):
        recogniser.add(torch.ones(1, 8), torch.tensor([-1]), task=0)
    with pytest.raises(ValueError, match="Some rows have no sample yet"):
        recogniser.calibrate(torch.ones(1, 8), torch.tensor([6]))
    with pytest.raises(ValueError, match="other random features"):
        recogniser.load_state_dict(Recogniser(8, width=50).state_dict())
    with pytest.raises(ValueError, match="damaged"):
        recogniser.load_state_dict({**recogniser.state_dict(), "a": float("nan")})
    assert torch.equal(recogniser.scores(samples()[0]), before)
    with pytest.raises(ValueError, match="Nothing was added yet"):
        Recogniser(8, width=10).recognise(torch.ones(1, 8))
    with pytest.raises(ValueError, match="accepted must be above 0"):
        Recogniser(8, accepted=0)
