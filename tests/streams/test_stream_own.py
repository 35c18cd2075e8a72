import json
import sys
import tracemalloc

import numpy as np
import pytest
import torch

from gateon import streams


def arrays(rows=20, shape=(3,), classes=2, seed=0):
    generator = np.random.default_rng(seed)
    return generator.random((rows, *shape), dtype=np.float32), np.arange(rows) % classes


def save(folder, name, **changes):
    """TASK.npz with train and test parts; a change of None takes an array away."""
    x, y = arrays()
    held = {"x_train": x, "y_train": y, "x_test": x[:6], "y_test": y[:6]} | changes
    folder.mkdir(exist_ok=True)
    np.savez(
        folder / f"{name}.npz", **{key: value for key, value in held.items() if value is not None}
    )


def test_one_file_a_task(tmp_path):
    for task in ("task10", "task2", "task1"):
        save(tmp_path, task)
    (tmp_path / ".hidden").write_text("")
    (tmp_path / "README.txt").write_text("about")
    stream = streams.open(f"own:{tmp_path}", seed=1)
    assert [task.name for task in stream] == ["task1", "task2", "task10"]
    assert [task.identity for task in stream] == [0, 1, 2]
    assert (stream.classes, stream.shape) == (2, (3,)) and stream.source["embedded"] is False
    x, y = arrays()
    task = stream[0]
    assert torch.equal(task.test.x, torch.from_numpy(x[:6])) and torch.equal(
        task.test.y, torch.from_numpy(y[:6])
    )
    assert len(task.train) == 18 and len(task.validation) == 2
    together = torch.cat([task.train.x, task.validation.x])
    assert torch.equal(together.sort(dim=0).values, torch.from_numpy(x).sort(dim=0).values)
    assert streams.remake(json.loads(json.dumps(stream.settings))).fingerprint(
        2
    ) == stream.fingerprint(2)
    assert not torch.equal(streams.own(tmp_path, seed=2)[0].validation.x, task.validation.x)


def test_given_validation_is_used_as_it_is(tmp_path):
    x, y = arrays(5, seed=9)
    save(tmp_path, "a", x_validation=x, y_validation=y)
    task = streams.own(tmp_path)[0]
    assert torch.equal(task.validation.x, torch.from_numpy(x)) and len(task.train) == 20


def test_one_file_a_split(tmp_path):
    x, y = arrays()
    for task in ("b", "a"):
        (tmp_path / task).mkdir()
        for name, rows in (("train", 20), ("val", 4), ("test", 5)):
            np.savez(tmp_path / task / f"{name}.npz", x=x[:rows], y=y[:rows])
    stream = streams.own(tmp_path)
    assert [
        (task.name, len(task.train), len(task.validation), len(task.test)) for task in stream
    ] == [
        ("a", 20, 4, 5),
        ("b", 20, 4, 5),
    ]


def test_eight_bit_images_are_scaled_and_grey_ones_get_a_channel(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (20, 5, 6), dtype=np.uint8)
    save(tmp_path, "a", x_train=x, x_test=x[:6])
    stream = streams.own(tmp_path)
    assert stream.shape == (1, 5, 6)
    assert torch.equal(
        stream[0].test.x, torch.from_numpy(x[:6, None].astype(np.float32) / np.float32(255))
    )


def test_only_one_task_is_in_memory_at_a_time(tmp_path):
    x, y = arrays(2000, (50,))
    for task in range(8):
        save(tmp_path, str(task), x_train=x, y_train=y, x_test=x[:6])
    tracemalloc.start()
    try:
        stream = streams.own(tmp_path)
        assert sum(len(task.train) for task in stream) == 8 * 1800
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < x.nbytes and peak < 6 * x.nbytes


POISON = arrays()[0].copy()
POISON[7, 1] = np.nan
INFINITE = arrays()[0].astype(np.float64)
INFINITE[3, 0] = 1e300


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"x_train": POISON}, "NaN or an infinity in the train part of task 'second' .* row 7"),
        ({"x_train": INFINITE}, "NaN or an infinity in the train part of task 'second' .* row 3"),
        (
            {"y_train": arrays()[1] - 1},
            "labels in the train part of task 'second' .* whole number from 0 up",
        ),
        ({"y_train": arrays()[1] + 0.5}, "whole number from 0 up"),
        ({"y_train": arrays()[1][:, None]}, "whole number from 0 up"),
        ({"y_train": arrays()[1].astype(str)}, "whole number from 0 up"),
        (
            {"y_train": np.where(np.arange(20) == 4, 7, arrays()[1])},
            "Label 7, in the train part of task 'second' .* out of range.* 2 has none",
        ),
        (
            {"y_test": np.array([0, 1, 2, 0, 1, 0])},
            "Label 2, in the test part of task 'second' .* out of range",
        ),
        (
            {"x_train": arrays(20, (4,))[0], "x_test": arrays(6, (4,))[0]},
            r"'second' .* train inputs of shape \(4,\), others \(3,\)",
        ),
        ({"x_test": arrays(6, (4,))[0]}, r"'second' .* test inputs of shape \(4,\), others \(3,\)"),
        (
            {"x_test": np.empty((0, 3)), "y_test": np.empty(0, int)},
            "and some, in the test part of task 'second'",
        ),
        ({"y_train": arrays()[1][:-1]}, "as many inputs as labels.* 20 and 19"),
        ({"x_test": None, "y_test": None}, "Task 'second' .* has no test part"),
        ({"x_train": None, "y_train": None}, "Task 'second' .* has no train part"),
        ({"y_test": None}, "second.npz holds no array y_test"),
        ({"x_train": np.array([[object()] * 3] * 20)}, "second.npz cannot be read as arrays"),
        ({"x_train": arrays()[0].astype(complex)}, "must be numbers of shape"),
        ({"x_train": arrays()[0][:, 0]}, "must be numbers of shape"),
        ({"x_train": np.zeros((20, 8, 8, 3))}, r"channels last, \(20, 8, 8, 3\): transpose them"),
    ],
)
def test_bad_arrays_are_found_at_the_start_and_named(tmp_path, changes, sentence):
    save(tmp_path, "first")
    save(tmp_path, "second", **changes)
    with pytest.raises(ValueError, match=sentence) as caught:
        streams.own(tmp_path)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-30], lambda content: content[:200], lambda content: b"text"],
)
def test_a_damaged_file_is_named(tmp_path, damage):
    save(tmp_path, "a")
    file = tmp_path / "a.npz"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"a\.npz cannot be read as arrays"):
        streams.own(tmp_path)


def test_a_split_file_without_its_arrays_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    for part in ("train", "test"):
        np.savez(tmp_path / "a" / f"{part}.npz", data=np.zeros(3))
    with pytest.raises(ValueError, match=r"holds no array x and no array y"):
        streams.own(tmp_path)


def test_things_that_are_no_stream_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds neither"):
        streams.own(tmp_path / "empty")
    (tmp_path / "table.csv").write_text("1,2")
    with pytest.raises(ValueError, match="is not a stream"):
        streams.own(tmp_path / "table.csv")


def draw_image(file, colour, size=(6, 5), mode="RGB"):
    from PIL import Image

    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(file)


def test_images_by_task_and_class(tmp_path):
    for task, classes in (("night", ("cat", "dog")), ("day", ("dog", "ant"))):
        for kind in classes:
            for number in range(10):
                draw_image(tmp_path / task / kind / f"{number}.png", (number * 20, 0, 255))
    stream = streams.own(tmp_path, seed=0)
    assert [task.name for task in stream] == ["day", "night"]
    # ant, cat, dog: channels, height, width
    assert (stream.classes, stream.shape) == (
        3,
        (3, 5, 6),
    )
    for task, labels in zip(stream, ({0, 2}, {1, 2}), strict=True):
        assert (len(task.train), len(task.validation), len(task.test)) == (14, 2, 4)
        for part in streams.PARTS:
            assert set(getattr(task, part).y.tolist()) == labels
        reds = torch.cat([getattr(task, part).x[:, 0, 0, 0] for part in streams.PARTS])
        assert sorted(round(red * 255 / 20) for red in reds.tolist()) == sorted([*range(10)] * 2)
        assert (task.train.x[:, 2] == 1).all()
    assert (
        stream.fingerprint(0)
        == streams.own(tmp_path, seed=0).fingerprint(0)
        != streams.own(tmp_path, seed=1).fingerprint(0)
    )


def test_images_by_task_split_and_class_and_grey_ones_keep_one_channel(tmp_path):
    for part, count in (("train", 5), ("valid", 1), ("test", 2)):
        for kind in ("a", "b"):
            for number in range(count):
                draw_image(tmp_path / "only" / part / kind / f"{number}.png", 51, mode="L")
    (tmp_path / "only" / "train" / "a" / "notes.txt").write_text("not an image")
    stream = streams.own(tmp_path)
    assert stream.shape == (1, 5, 6) and stream.classes == 2
    task = stream[0]
    assert (len(task.train), len(task.validation), len(task.test)) == (10, 2, 4)
    assert torch.allclose(task.train.x, torch.tensor(0.2)) and task.test.y.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            lambda folder: draw_image(folder / "a" / "9.png", 0, size=(7, 7)),
            r"9\.png and the images before it differ in size, 7 x 7 and 6 x 5",
        ),
        (
            lambda folder: (folder / "a" / "9.png").write_bytes(b"nonsense"),
            r"9\.png cannot be read as an image",
        ),
        (
            lambda folder: (folder / "a" / "2.png").write_bytes(
                (folder / "a" / "2.png").read_bytes()[:-25]
            ),
            r"2\.png is a broken image",
        ),
        (
            lambda folder: draw_image(folder / "a" / "9.tif", 0, mode="F"),
            "9.tif has pixels of kind F",
        ),
        (
            lambda folder: draw_image(folder / "c" / "1.png", 0),
            "c holds 1 images: a class needs three",
        ),
    ],
    ids=["size", "nonsense", "broken", "kind", "few"],
)
def test_bad_images_are_named(tmp_path, spoil, sentence):
    for kind in ("a", "b"):
        for number in range(4):
            draw_image(tmp_path / "task" / kind / f"{number}.png", 0)
    spoil(tmp_path / "task")
    with pytest.raises(ValueError, match=sentence):
        streams.own(tmp_path)


def test_images_of_different_size_in_different_tasks_are_refused(tmp_path):
    for task, size in (("one", (4, 4)), ("two", (5, 5))):
        for number in range(4):
            draw_image(tmp_path / task / "kind" / f"{number}.png", 0, size)
    with pytest.raises(ValueError, match=r"'two' .* shape \(3, 5, 5\), others \(3, 4, 4\)"):
        streams.own(tmp_path)


def test_a_task_without_test_images_is_named(tmp_path):
    for number in range(4):
        draw_image(tmp_path / "task" / "train" / "kind" / f"{number}.png", 0)
    with pytest.raises(ValueError, match=r"Task 'task' .* has no test part"):
        streams.own(tmp_path)


def test_pillow_is_needed_for_images_and_for_nothing_else(tmp_path, monkeypatch):
    save(tmp_path / "arrays", "a")
    draw_image(tmp_path / "images" / "task" / "kind" / "0.png", 0)
    for number in (1, 2, 3):
        draw_image(tmp_path / "images" / "task" / "kind" / f"{number}.png", 0)
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert len(streams.own(tmp_path / "arrays")) == 1
    with pytest.raises(ImportError, match="needs Pillow: pip install pillow"):
        streams.own(tmp_path / "images")


def rows(count=10, **changes):
    for task in ("zebra", "ant"):
        for split in ("train", "dev", "test"):
            for number in range(count):
                yield {
                    "task": task,
                    "split": split,
                    "features": [number, 0.5],
                    "label": number % 2,
                } | changes


def write(file, lines):
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return file


def test_json_lines_with_features(tmp_path):
    stream = streams.own(write(tmp_path / "stream.jsonl", rows()))
    assert [task.name for task in stream] == ["zebra", "ant"]  # as they come
    assert (stream.classes, stream.shape, len(stream[0].validation)) == (2, (2,), 10)
    assert torch.equal(stream[1].test.x[:, 0], torch.arange(10.0)) and stream[1].test.y[
        :3
    ].tolist() == [0, 1, 0]


def test_json_lines_with_images(tmp_path):
    stream = streams.own(write(tmp_path / "stream.jsonl", rows(features=[[0, 1], [0.5, 0.25]])))
    assert stream.shape == (1, 2, 2) and stream[0].test.x[0, 0].tolist() == [[0, 1], [0.5, 0.25]]


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (
            {"task": "zebra", "split": "train", "text": "hello", "label": 1},
            "text, which needs a tokenizer: open it as text:",
        ),
        ({"task": "zebra", "split": "train", "features": [1, 2]}, "Row 61 .* has no label"),
        ({"split": "train", "features": [1, 2], "label": 1}, "Row 61 .* has no task"),
        (
            {"task": "zebra", "split": "holiday", "features": [1, 2], "label": 1},
            "split 'holiday': use train, validation or test",
        ),
        (
            {"task": "zebra", "split": "train", "features": [1, 2], "label": 1.0},
            r"label 1\.0: labels must be whole numbers",
        ),
        ({"task": "zebra", "split": "train", "features": [1, 2], "label": "1"}, "label '1'"),
        ({"task": "zebra", "split": "train", "features": [1, 2], "label": True}, "label True"),
        (
            {"task": "zebra", "split": "train", "features": [1, 2], "label": -1},
            "whole number from 0 up",
        ),
        (
            {"task": "zebra", "split": "train", "features": [1, 2, 3], "label": 1},
            r"Row 61 .* shape \(3,\), the rows before it \(2,\)",
        ),
        (
            {"task": "zebra", "split": "train", "features": [1, [2]], "label": 1},
            "Row 61 .* no array of numbers",
        ),
        ({"task": "zebra", "split": "train", "features": "12", "label": 1}, "Row 61"),
        (
            {"task": "zebra", "split": "train", "features": [1, float("nan")], "label": 1},
            "NaN or an infinity in the train part",
        ),
        (
            {"task": "late", "split": "train", "features": [1, 2], "label": 1},
            "Task 'late' .* has no test part",
        ),
    ],
)
def test_bad_json_rows_are_named(tmp_path, bad, sentence):
    file = write(tmp_path / "stream.jsonl", [*rows(), bad])
    with pytest.raises(ValueError, match=sentence) as caught:
        streams.own(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_an_empty_json_file_holds_no_task(tmp_path):
    with pytest.raises(ValueError, match="holds no task"):
        streams.own(write(tmp_path / "stream.jsonl", []))


def test_own_streams_can_return_and_blur(tmp_path):
    save(tmp_path, "a")
    save(tmp_path, "b")
    stream = streams.blurred(streams.recurring(streams.own(tmp_path), repeats=2), 0.5)
    assert [task.identity for task in stream] == [0, 1, 0, 1] and stream[1].train.ordered
    assert streams.remake(stream.settings).fingerprint(1) == stream.fingerprint(1)
