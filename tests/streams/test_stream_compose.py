import json

import pytest
import torch

from gateon import streams
from gateon.streams import Split, Stream, Task


def numbered(sizes, identities=None):
    """A stream whose row r of task k is the number 1000 k + r, so that every sample can be told."""

    def make(k):
        def rows(count, start):
            x = torch.arange(count, dtype=torch.float32)[:, None] + 1000 * k + start
            return Split(x, torch.full((count,), k % 3))

        return Task(
            f"task {k}",
            rows(sizes[k], 0),
            rows(3, 900),
            rows(4, 950),
            (identities or range(len(sizes)))[k],
        )

    return Stream(
        "numbered", len(sizes), 3, (1,), {"stream": "numbered"}, {"name": "numbered"}, make
    )


def test_returning_tasks_are_the_same_task_under_the_same_identity():
    stream = streams.recurring(streams.permuted_mnist(tasks=3, data="mnist-5k"), [2, 0, 2, 1])
    assert [task.identity for task in stream] == [2, 0, 2, 1] and len(stream) == 4
    assert stream.fingerprint(0) == stream.fingerprint(2) != stream.fingerprint(1)
    assert torch.equal(stream.split(3, "test").x, stream[3].test.x)


def test_repeats_go_through_the_whole_stream():
    stream = streams.recurring(numbered([5, 5, 5]), repeats=2)
    assert [task.identity for task in stream] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"order": [0], "repeats": 2},
        {"order": []},
        {"order": [0, 3]},
        {"order": [-1]},
        {"repeats": 0},
    ],
)
def test_bad_orders_are_refused(bad):
    with pytest.raises(ValueError, match=r"order|repeats"):
        streams.recurring(numbered([5, 5, 5]), **bad)


@pytest.mark.parametrize("sizes", [[400, 400, 400], [400, 130, 301, 2], [50], [1, 1]])
@pytest.mark.parametrize("width", [0.1, 0.5, 1.0])
def test_blurring_presents_every_sample_once_and_keeps_the_numbers(sizes, width):
    plain = numbered(sizes)
    stream = streams.blurred(plain, width, seed=1)
    tasks = list(stream)
    assert [len(task.train) for task in tasks] == sizes
    presented = torch.cat([task.train.x[:, 0] for task in tasks])
    assert torch.equal(presented.sort().values, torch.cat([task.train.x[:, 0] for task in plain]))
    for k, task in enumerate(tasks):
        assert task.train.ordered and not task.test.ordered
        owner = (task.train.x[:, 0] // 1000).long()
        assert torch.equal(task.train.origin, owner) and torch.equal(task.train.y, owner % 3)
        assert set(owner.tolist()) <= {k - 1, k, k + 1}
        assert torch.equal(task.test.x, plain[k].test.x) and torch.equal(
            task.validation.x, plain[k].validation.x
        )
        assert torch.equal(stream.split(k, "train").x, task.train.x)


def test_the_mixture_rises_evenly_across_the_boundary_and_nowhere_else():
    first, second, _ = streams.blurred(numbered([10_000, 10_000, 10_000]), width=0.5, seed=0)
    across = torch.cat([first.train.origin[-2500:], second.train.origin[:2500]]).double()
    assert (across.view(10, 500).mean(dim=1) - (torch.arange(10) + 0.5) / 10).abs().max() < 0.06
    assert first.train.origin[:-2500].unique().tolist() == [0]
    assert second.train.origin[2500:-2500].unique().tolist() == [1]


def test_samples_come_shuffled_and_the_seed_decides():
    train = streams.blurred(numbered([300, 300]), 0.1, seed=0)[0].train
    assert (train.x[1:, 0] < train.x[:-1, 0]).double().mean() > 0.3
    assert torch.equal(train.x, streams.blurred(numbered([300, 300]), 0.1, seed=0)[0].train.x)
    assert not torch.equal(train.x, streams.blurred(numbered([300, 300]), 0.1, seed=1)[0].train.x)


def test_origin_speaks_of_identities_where_tasks_return():
    stream = streams.blurred(streams.recurring(numbered([100, 100]), [0, 1, 0]), 0.4)
    assert set(stream[2].train.origin.tolist()) == {0, 1}
    assert (stream[2].train.origin[50:] == 0).all()


def test_that_order_is_time_belongs_to_the_fingerprint():
    def single(ordered):
        split = Split(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64), ordered)
        return Stream("single", 1, 1, (1,), {}, {}, lambda k: Task("only", split, split, split, 0))

    assert single(True).fingerprint(0) != single(False).fingerprint(0)


def test_a_blurred_stream_is_made_again_from_its_settings():
    plain = streams.split_mnist(data="mnist-5k")
    mixed = streams.blurred(plain, 0.1)
    assert mixed.fingerprint(1) != plain.fingerprint(1)
    again = streams.remake(json.loads(json.dumps(mixed.settings)))
    assert again.fingerprint(1) == mixed.fingerprint(1)


@pytest.mark.parametrize("width", [0, -0.1, 1.1, float("nan")])
def test_bad_widths_are_refused(width):
    with pytest.raises(ValueError, match="width must be above 0 and at most 1"):
        streams.blurred(numbered([5, 5]), width)


def test_blurring_comes_last_and_once():
    mixed = streams.blurred(numbered([5, 5]))
    for again in (lambda: streams.blurred(mixed), lambda: streams.recurring(mixed, [0])):
        with pytest.raises(ValueError, match="is blurred already"):
            again()
