import gc
import json
import tracemalloc
import weakref

import numpy as np
import pytest
import torch

from gateon import streams
from gateon.streams import pixels
from gateon.streams.data import sources

# texts have tests of their own
IMAGES = [name for name in streams.STREAMS if "mnist" in name or "cifar" in name]
PLAIN_FIRST = ["permuted-mnist", "rotated-mnist", "shuffled-mnist"]


@pytest.fixture(scope="module")
def digits():
    return sources.mnist_5k()


@pytest.mark.parametrize("name", IMAGES)
def test_every_stream_keeps_the_promises_of_its_type(name, digits):
    stream = streams.open(name, tasks=4, seed=3, data=digits)
    assert len(stream) == stream.tasks == 4 and stream.name == name
    for k, task in enumerate(stream):
        assert task.identity == k and task.name
        for part in streams.PARTS:
            split = getattr(task, part)
            assert split.x.dtype == torch.float32 and split.y.dtype == torch.int64
            assert split.x.shape == (len(split), *stream.shape) and len(split.y) == len(split) > 0
            assert "mnist" not in name or (split.x.min() >= 0 and 0.5 < split.x.max() <= 1)
            assert set(split.y.tolist()) == set(range(stream.classes))
            assert not split.ordered and split.origin is None
            alone = stream.split(k, part)
            assert torch.equal(alone.x, split.x) and torch.equal(alone.y, split.y)
    json.dumps([stream.settings, stream.source])
    assert stream.source["embedded"] is True


@pytest.mark.parametrize("name", PLAIN_FIRST)
def test_the_first_task_is_the_plain_data(name, digits):
    task = streams.open(name, tasks=2, data=digits)[0]
    assert torch.equal(task.test.x, pixels.plain(digits.test_x))
    assert torch.equal(task.test.y, torch.from_numpy(digits.test_y).long())


@pytest.mark.parametrize("name", IMAGES)
def test_a_task_depends_on_its_seed_and_number_and_on_nothing_else(name, digits):
    few, many = (streams.open(name, tasks=tasks, seed=5, data=digits) for tasks in (3, 40))
    assert few.fingerprint(2) == many.fingerprint(2) == many.fingerprint(2)
    assert len({many.fingerprint(k) for k in (1, 2, 3)}) == 3
    assert streams.open(name, tasks=3, seed=6, data=digits).fingerprint(2) != few.fingerprint(2)


@pytest.mark.parametrize("name", IMAGES)
def test_settings_make_the_stream_again(name, digits):
    options = (
        {"step": 7}
        if name == "rotated-mnist"
        else {"classes_per_task": 3}
        if name == "split-mnist"
        else {}
    )
    stream = streams.open(name, tasks=3, seed=2, validation=100, data=digits, **options)
    again = streams.remake(json.loads(json.dumps(stream.settings)))
    assert again.settings == stream.settings and again.fingerprint(1) == stream.fingerprint(1)


def rows_as_bytes(split):
    return {row.numpy().tobytes() for row in split.x}


def test_validation_is_held_out_of_train_by_the_seed_and_the_same_in_all_tasks(digits):
    stream = streams.permuted_mnist(tasks=2, seed=1, validation=321, data=digits)
    task = stream[0]
    assert len(task.validation) == 321 and len(task.train) == 4000 - 321
    train, held, test = (rows_as_bytes(getattr(task, part)) for part in streams.PARTS)
    assert not train & held and not train & test and not held & test
    assert train | held == rows_as_bytes(
        streams.Split(pixels.plain(digits.train_x), torch.zeros(4000))
    )
    assert torch.equal(stream[1].validation.y, task.validation.y)
    assert (
        rows_as_bytes(streams.permuted_mnist(seed=2, validation=321, data=digits)[0].validation)
        != held
    )


def test_a_twelfth_is_held_out_by_default_and_none_on_request(digits):
    assert len(streams.permuted_mnist(data=digits)[0].validation) == 4000 // 12
    task = streams.permuted_mnist(validation=0, data=digits)[1]
    assert len(task.validation) == 0 and len(task.train) == 4000
    assert len(streams.permuted_mnist(validation=0, data=digits).fingerprint(1)) == 64


def test_one_permutation_holds_for_all_images_of_a_task(digits):
    stream = streams.permuted_mnist(tasks=3, data=digits)
    for part in streams.PARTS:
        plain, moved = stream.split(0, part).x.flatten(1), stream.split(2, part).x.flatten(1)
        assert not torch.equal(plain, moved)
        assert torch.equal(plain.sort(dim=1).values, moved.sort(dim=1).values)
    # A pixel is known by its values over all images; where two are alike (black everywhere) either
    # may stand for the other.
    plain, moved = ({c.numpy().tobytes() for c in stream[k].train.x.flatten(1).T} for k in (0, 2))
    assert plain == moved and len(plain) > 500


def test_random_angles_fill_the_turn_and_fixed_steps_follow_each_other(digits):
    angles = [
        float(streams.rotated_mnist(tasks=60, data=digits).make(k).name.split()[1])
        for k in range(0, 60, 3)
    ]
    assert (
        angles[0] == 0
        and min(angles[1:]) < 90
        and max(angles) > 270
        and len(set(angles)) == len(angles)
    )
    stepped = streams.rotated_mnist(tasks=6, step=90, data=digits)
    assert torch.equal(stepped[1].test.x, torch.rot90(stepped[0].test.x, 1, (2, 3)))
    assert [task.identity for task in stepped] == [0, 1, 2, 3, 0, 1]
    assert stepped.fingerprint(4) == stepped.fingerprint(0)
    given = streams.rotated_mnist(angles=(0, 90, -90), data=digits)
    assert (
        len(given) == 3
        and torch.equal(given[1].test.x, stepped[1].test.x)
        and torch.equal(given[2].test.x, stepped[3].test.x)
    )


def test_shuffled_labels_are_one_renaming_and_the_images_stay(digits):
    stream = streams.shuffled_mnist(tasks=3, data=digits)
    plain, named = stream[0], stream[2]
    assert torch.equal(plain.train.x, named.train.x)
    names = {(int(a), int(b)) for a, b in zip(plain.train.y, named.train.y, strict=True)}
    assert (
        len(names) == 10
        and sorted(b for _, b in names) == list(range(10))
        and any(a != b for a, b in names)
    )
    assert {(int(a), int(b)) for a, b in zip(plain.test.y, named.test.y, strict=True)} == names


def test_split_deals_each_digit_once_and_labels_within_the_task(digits):
    stream = streams.split_mnist(seed=4, data=digits)
    assert (stream.tasks, stream.classes) == (5, 2)
    dealt = [tuple(map(int, task.name.split()[1:])) for task in stream]
    assert sorted(sum(dealt, ())) == list(range(10))
    for (zero, one), task in zip(dealt, stream, strict=True):
        rows = np.isin(digits.test_y, (zero, one))
        assert torch.equal(task.test.x, pixels.plain(digits.test_x[rows]))
        assert torch.equal(task.test.y, torch.from_numpy(digits.test_y[rows] == one).long())
    assert sum(len(task.train) + len(task.validation) for task in stream) == 4000


def test_split_goes_on_past_the_last_digit_and_in_order(digits):
    names = [task.name for task in streams.split_mnist(tasks=10, seed=4, data=digits)]
    assert sorted(" ".join(names[5:]).replace("digits ", "")) == sorted(
        " ".join(names[:5]).replace("digits ", "")
    )
    assert names[5:] != names[:5]
    ordered = streams.split_mnist(seed=4, in_order=True, data=digits)
    assert [task.name for task in ordered] == [
        "digits 0 1",
        "digits 2 3",
        "digits 4 5",
        "digits 6 7",
        "digits 8 9",
    ]
    assert streams.split_mnist(tasks=2, classes_per_task=5, data=digits).classes == 5


def test_tasks_are_made_anew_and_never_kept(digits):
    stream = streams.permuted_mnist(tasks=100, data=digits)
    task = stream[7]
    task.train.x.zero_(), task.train.y.zero_()
    assert stream[7].train.x.any() and stream[7].train.y.any()
    kept = weakref.ref(task.train.x)
    del task
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("name", IMAGES)
def test_a_hundred_tasks_need_no_more_memory_than_one(name, digits):
    stream = streams.open(name, tasks=100, validation=0, data=digits)
    one = 5000 * 784 * 4
    tracemalloc.start()
    try:
        for k in range(0, 100, 5):
            stream[k]
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < one / 10 and peak < 1.5 * one


def test_tasks_can_be_counted_from_the_end_and_not_past_it(digits):
    stream = streams.permuted_mnist(tasks=3, data=digits)
    assert stream[-1].name == "permutation 2"
    for k in (3, -4):
        with pytest.raises(
            IndexError, match=f"Task {k} does not exist: permuted-mnist has tasks 0 to 2"
        ):
            stream[k]
    with pytest.raises(ValueError, match="no part 'tset'"):
        stream.split(0, "tset")


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("permuted-mnist", {"tasks": 0}, "tasks must be a whole number of at least 1, got 0"),
        ("permuted-mnist", {"tasks": 2.5}, "tasks must be a whole number of at least 1, got 2.5"),
        ("permuted-mnist", {"tasks": True}, "tasks must be"),
        ("permuted-mnist", {"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ("permuted-mnist", {"validation": -1}, "validation must be"),
        ("permuted-mnist", {"validation": 4000}, "validation=4000 leaves nothing to train on"),
        ("rotated-mnist", {"step": 360}, "step must be a number of degrees"),
        ("rotated-mnist", {"step": float("nan")}, "step must be a number of degrees"),
        ("rotated-mnist", {"angles": (0, float("inf"))}, "angles are numbers of degrees"),
        ("rotated-mnist", {"angles": (0, 10), "step": 3}, "no room for a step"),
        (
            "split-mnist",
            {"classes_per_task": 1},
            "classes_per_task must be a whole number of at least 2",
        ),
        ("split-mnist", {"classes_per_task": 11}, "cannot have 11 digits"),
        (
            "split-mnist",
            {"tasks": 6, "in_order": True},
            "In order there are 5 tasks of 2 digits, not 6",
        ),
        ("split-mnist", {"steps": 2}, "split-mnist has no option 'steps'"),
        ("permuted_mnist", {}, "There is no stream 'permuted_mnist', perhaps 'permuted-mnist'"),
        ("own:/nowhere/at/all", {}, "There is no /nowhere/at/all"),
        ("own:/nowhere", {"tasks": 3}, "has no option 'tasks'"),
    ],
)
def test_bad_options_are_one_sentence(name, options, sentence):
    data = {} if name.startswith("own:") else {"data": "mnist-5k"}
    with pytest.raises((ValueError, FileNotFoundError), match=sentence) as caught:
        streams.open(name, **data, **options)
    assert "\n" not in str(caught.value)


def test_an_unknown_data_set_is_named_with_the_nearest():
    with pytest.raises(ValueError, match="no data set 'mnist5k', perhaps 'mnist-5k'"):
        streams.permuted_mnist(data="mnist5k")
