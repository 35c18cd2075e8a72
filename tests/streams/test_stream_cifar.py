"""CIFAR split over tasks, Fashion-MNIST and CIFAR-10 as published, and batches varied: on small made data, with golden hashes."""

import io
import json
import os
import tarfile
from hashlib import md5

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gateon import streams
from gateon.streams.data import images, published_files, sources
from gateon.streams.data.cifar_files import found_cifar100

pytestmark = pytest.mark.numeric

GOLDEN = {  # classes a task: fingerprints of tasks 0 and 19 of the made photographs, seed 0
    5: [
        "5de5cdfee9a4574b7d86eabfb600aa98ea4a0714f7691eecadaaef002705356e",
        "0be618f7a0cef61dbcfaece2ed2d8e7c90aa7a8d1f8d7ea10b98065f120db329",
    ],
    2: [
        "6f5c2e82bb4391d278dade83dafeed78b6151813a40c79cd313d5267d54241d2",
        "e8efdb9c8b58837122e54db01d5236492c56ff597f41f4c39b5a44698e0f24be",
    ],
}
VARIED = "1434c1e4e3a12b5128799fbd7faf6a51"  # the md5 of a varied batch
# task 0 of all of CIFAR-100, seed 0
ALL = "9818b1047073dc37244b5b68a8f0f275fcac640b224699cc49900f4fe4f5f2dc"


@pytest.fixture(scope="module")
def photographs():
    """Six training images and two test images of each of 100 classes, made of whole numbers."""

    def made(each):
        labels = np.repeat(np.arange(100), each)
        places = np.arange(3 * 32 * 32).reshape(3, 32, 32)
        return (
            (
                places * (labels[:, None, None, None] + 3)
                + np.arange(len(labels))[:, None, None, None]
            )
            % 251
        ).astype(np.uint8), labels

    (train_x, train_y), (test_x, test_y) = made(6), made(2)
    source = {"name": "photographs", "sha256": "none", "embedded": False}
    return sources.Dataset(
        "photographs",
        train_x,
        train_y.astype(np.uint8),
        test_x,
        test_y.astype(np.uint8),
        100,
        source,
    )


@pytest.mark.parametrize("classes", GOLDEN)
def test_tasks_are_the_same_for_ever(classes, photographs):
    stream = streams.split_cifar100(tasks=20, classes_per_task=classes, data=photographs)
    assert [stream.fingerprint(k) for k in (0, 19)] == GOLDEN[classes]


def test_twenty_tasks_of_five_use_every_class_once_with_labels_within_the_task(photographs):
    stream = streams.split_cifar100(seed=3, data=photographs)
    assert (len(stream), stream.classes, stream.shape) == (20, 5, (3, 32, 32))
    dealt = [list(map(int, task.name.split()[1:])) for task in stream]
    assert sorted(c for five in dealt for c in five) == list(range(100)) and dealt != [
        sorted(five) for five in dealt
    ]
    convert = stream[7].test.x
    rows = np.concatenate([np.flatnonzero(photographs.test_y == c) for c in sorted(dealt[7])])
    assert stream[7].test.y.tolist() == [dealt[7].index(c) for c in photographs.test_y[rows]]
    assert (
        len(convert) == 10 and sum(len(task.train) + len(task.validation) for task in stream) == 600
    )


@pytest.mark.parametrize(("tasks", "classes"), [(20, 2), (10, 10), (50, 2), (25, 5)])
def test_other_ways_to_split(tasks, classes, photographs):
    stream = streams.split_cifar100(tasks, classes_per_task=classes, data=photographs)
    assert stream.classes == classes and {len(task.test) for task in stream} == {2 * classes}
    ordered = streams.split_cifar100(
        100 // classes, classes_per_task=classes, in_order=True, data=photographs
    )
    assert ordered[1].name == "classes " + " ".join(map(str, range(classes, 2 * classes)))
    again = [
        task.identity
        for task in streams.split_cifar100(25, seed=1, classes_per_task=100, data=photographs)
    ]
    assert again == list(range(25))


def test_channels_are_normalised_by_the_figures_of_the_training_images(photographs):
    stream = streams.split_cifar100(1, classes_per_task=100, validation=0, data=photographs)
    x, plain = stream[0].train.x, torch.from_numpy(photographs.train_x).double() / 255
    mean, deviation = plain.mean((0, 2, 3)), plain.std((0, 2, 3), unbiased=False)
    torch.testing.assert_close(
        x.double(), (plain - mean.view(3, 1, 1)) / deviation.view(3, 1, 1), rtol=0, atol=2e-3
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"classes_per_task": 1}, "classes_per_task must be a whole number of at least 2"),
        ({"classes_per_task": 101}, "A task cannot have 101 classes: photographs has 100 classes"),
        ({"tasks": 21, "in_order": True}, "In order there are 20 tasks of 5 classes, not 21"),
        ({"tasks": 0}, "tasks must be"),
        ({"digits": 2}, "split-cifar100 has no option 'digits'"),
    ],
)
def test_bad_options_are_one_sentence(options, sentence, photographs):
    with pytest.raises(ValueError, match=sentence):
        streams.open("split-cifar100", data=photographs, **options)


def test_any_images_can_be_permuted_rotated_and_shuffled(photographs):
    for name in ("permuted-mnist", "rotated-mnist", "shuffled-mnist"):
        task = streams.open(name, tasks=2, data=photographs)[1]
        assert task.train.x.shape == (550, 3, 32, 32) and int(task.train.y.max()) == 99


# Augmentation


def test_a_batch_is_moved_and_mirrored_as_the_literal_loop_does():
    x = torch.rand(40, 3, 8, 8)
    varied = images.crop_and_flip(x, (1, 2, 3))
    padded = F.pad(x, (4, 4, 4, 4))
    found = []
    for image, original in zip(varied, padded, strict=True):
        ways = {
            (down, right, flip): (crop.flip(2) if flip else crop)
            for down in range(9)
            for right in range(9)
            for flip in (False, True)
            for crop in [original[:, down : down + 8, right : right + 8]]
        }
        found.append(next(way for way, crop in ways.items() if torch.equal(crop, image)))
    downs, rights, flips = zip(*found, strict=True)
    assert (
        min(downs) == min(rights) == 0 and max(downs) == max(rights) == 8 and 10 < sum(flips) < 30
    )
    assert len(set(found)) > 30


def test_what_is_drawn_depends_on_the_key_alone():
    x = torch.arange(2 * 3 * 16 * 16.0).view(2, 3, 16, 16)
    state = torch.get_rng_state()
    first = images.crop_and_flip(x, (0, 1, 2))
    assert torch.equal(first, images.crop_and_flip(x, (0, 1, 2))) and torch.equal(
        state, torch.get_rng_state()
    )
    assert not torch.equal(first, images.crop_and_flip(x, (0, 1, 3))) and not torch.equal(
        first, images.crop_and_flip(x, (0, 2, 2))
    )
    assert md5(first.numpy().tobytes(), usedforsecurity=False).hexdigest() == VARIED


def test_an_augmented_stream_has_the_same_data_and_can_be_made_again_recur_and_blur():
    plain = streams.split_mnist(tasks=3, data="mnist-5k")
    varied = streams.augmented(plain)
    assert varied.fingerprint(1) == plain.fingerprint(1) and plain.augment is None
    again = streams.remake(json.loads(json.dumps(varied.settings)))
    assert again.augment is not None and again.settings == varied.settings != plain.settings
    assert (
        streams.recurring(varied, [0, 1, 0]).augment
        is streams.blurred(varied).augment
        is varied.augment
    )
    with pytest.raises(ValueError, match="augmented already"):
        streams.augmented(varied)


def test_only_images_can_be_augmented(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        **{
            f"{kind}_{part}": np.zeros(
                (6, 2) if kind == "x" else 6, np.float32 if kind == "x" else np.int64
            )
            for kind in "xy"
            for part in ("train", "test")
        },
    )
    with pytest.raises(ValueError, match="Only images can be cropped"):
        streams.augmented(streams.open(f"own:{tmp_path}"))


# Files as published


def put(monkeypatch, tmp_path, name, files):
    monkeypatch.setenv("GATEON_DATA", str(tmp_path))
    (tmp_path / name).mkdir()
    for file, content in files.items():
        (tmp_path / name / file).write_bytes(content)
    sums = {
        file: md5(content, usedforsecurity=False).hexdigest() for file, content in files.items()
    }
    monkeypatch.setitem(published_files.MD5, name, sums)


def archive(batches):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as members:
        for name, content in batches.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            members.addfile(info, io.BytesIO(content))
    return out.getvalue()


def batches(label=lambda n: n % 10):
    record = {
        n: bytes([label(n)]) + bytes((n + place) % 256 for place in range(3072)) for n in range(60)
    }
    names = [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]
    return {
        name: b"".join(record[n] for n in range(10 * at, 10 * at + 10))
        for at, name in enumerate(names)
    }


def test_cifar10_is_read_out_of_its_archive(monkeypatch, tmp_path):
    put(monkeypatch, tmp_path, "cifar10", {"cifar-10-binary.tar.gz": archive(batches())})
    data = sources.load("cifar10")
    assert data.train_x.shape == (50, 3, 32, 32) and data.test_x.shape == (10, 3, 32, 32)
    assert data.train_y.tolist() == [n % 10 for n in range(50)] and data.train_x[
        13, 0, 0, :4
    ].tolist() == [13, 14, 15, 16]
    stream = streams.split_cifar10(validation=0)
    assert (len(stream), stream.classes, len(stream[0].train)) == (5, 2, 10)
    assert sources.get("cifar10").present


def test_fashion_mnist_takes_the_place_of_mnist_in_every_stream(monkeypatch, tmp_path):
    files = {}
    for part, count in (("train", 24), ("t10k", 12)):
        arrays = {
            "images-idx3": np.arange(count * 784).reshape(count, 28, 28) % 256,
            "labels-idx1": np.arange(count) % 10,
        }
        for kind, array in arrays.items():
            sources.write_idx(tmp_path / "one.gz", array.astype(np.uint8))
            files[f"{part}-{kind}-ubyte.gz"] = (tmp_path / "one.gz").read_bytes()
    put(monkeypatch, tmp_path, "fashion-mnist", files)
    for name in ("permuted-mnist", "rotated-mnist", "shuffled-mnist", "split-mnist"):
        stream = streams.open(name, tasks=2, data="fashion-mnist")
        assert stream.source["name"] == "fashion-mnist" and stream[1].test.x.shape[1:] == (
            1,
            28,
            28,
        )


def test_files_that_are_not_those_published_are_refused(monkeypatch, tmp_path):
    good = archive(batches())
    put(monkeypatch, tmp_path, "cifar10", {"cifar-10-binary.tar.gz": good})
    path = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    path.write_bytes(good[:-100])
    with pytest.raises(
        ValueError,
        match=r"tar\.gz is not the file that was published: its md5 is .*gateon data get cifar10",
    ):
        sources.cifar10()
    assert path.read_bytes() == good[:-100], "it stays as it is"
    short, wrong = batches(), batches(lambda n: n)
    short["test_batch.bin"] = short["test_batch.bin"][:-1]
    missing = {name: content for name, content in batches().items() if name != "data_batch_3.bin"}
    for held, sentence in (
        (short, "no multiple of 3073"),
        (wrong, "a label is 49, not one of 0 to 9"),
        (missing, "data_batch_3"),
    ):
        path.write_bytes(archive(held))
        monkeypatch.setitem(
            published_files.MD5,
            "cifar10",
            {path.name: md5(path.read_bytes(), usedforsecurity=False).hexdigest()},
        )
        with pytest.raises(ValueError, match=sentence):
            sources.cifar10()


# All of CIFAR-100


def test_the_tasks_of_all_of_cifar100(monkeypatch):
    if "GATEON_DATA" not in os.environ or found_cifar100() is None:
        pytest.skip("CIFAR-100 is not in GATEON_DATA")
    stream = streams.split_cifar100()
    task = stream[0]
    assert len(task.train) + len(task.validation) == 2500 and len(task.test) == 500
    assert stream.fingerprint(0) == ALL
