"""Files made to hurt: they run nothing, take no more room than they have bytes, and are refused in a sentence."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile

import numpy as np
import pytest

from gateon import streams
from gateon.runs.record import Record
from gateon.runs.specification import Specification
from gateon.storage import bounded, fetch
from gateon.streams.data import cifar_files, formats, sources


def nested_tuples(depth):
    """(t, t) of (t, t) of ...: a few bytes, and a hash that takes 2 ** depth steps."""
    return (
        b"\x80\x02}("
        + b"K\x01"
        + b"".join(b"q%c" % n + b"h%c" % n + b"\x86" for n in range(depth))
        + b"K\x02u."
    )


def npz(path, header, content=b""):
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, header)
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            archive.writestr(f"{name}.npy", member.getvalue() + content)


@pytest.mark.parametrize(
    "header",
    [
        {"descr": "<f4", "fortran_order": False, "shape": (10**12,)},
        {"descr": "|V1000000000", "fortran_order": False, "shape": (1000,)},
        {"descr": "|O", "fortran_order": False, "shape": (1,)},
        {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**9, 10**9)},
    ],
)
def test_an_array_that_announces_more_than_there_is_is_refused(tmp_path, header):
    npz(tmp_path / "task.npz", header, b"\x80\x04K\x01." * 9)
    with pytest.raises(
        ValueError,
        match=r"task.npz cannot be read as arrays \(x_train (is no array of numbers|announces)",
    ):
        streams.own(tmp_path)


def test_pictures_are_read_as_pictures_only(tmp_path):
    """A file called .png that is PostScript would make Pillow start an interpreter of it."""
    for kind in ("a", "b"):
        folder = tmp_path / "task" / kind
        folder.mkdir(parents=True)
        for n in range(3):
            (folder / f"{n}.png").write_bytes(
                b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
            )
    with pytest.raises(ValueError, match=r"0.png cannot be read as an image"):
        streams.own(tmp_path)
    assert "EPS" not in bounded.IMAGE_FORMATS


def test_an_enormous_picture_is_one_sentence_and_no_warning(tmp_path, monkeypatch, recwarn):
    Image = pytest.importorskip("PIL.Image")
    for kind in ("a", "b"):
        (tmp_path / "task" / kind).mkdir(parents=True)
        for n in range(3):
            Image.new("L", (8, 8)).save(tmp_path / "task" / kind / f"{n}.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)  # Pillow warns above it, refuses twice that
    with pytest.raises(ValueError, match=r"task holds more than .* once it is unpacked"):
        streams.own(tmp_path, data_limit=100 / 2**30)
    assert not recwarn.list
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(ValueError, match=r"0.png cannot be read as an image"):
        streams.own(tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[" * 100_000, "Line 1 of .* is not JSON"),
        ('{"task": ' * 50_000, "Line 1 of .* is not JSON"),
        ('{"a": ' + "9" * 10_000 + "}", "Line 1 of .* is not JSON"),
        (
            '{"task": "a", "split": "train", "features": [' + "9" * 400 + '], "label": 0}',
            "features that are no array",
        ),
        (
            '{"task": "a", "split": "train", "features": [1], "label": 18446744073709551615}',
            "labels must be whole numbers",
        ),
    ],
)
def test_json_lines_of_any_depth_or_size_fail_cleanly(tmp_path, text, sentence):
    (tmp_path / "own.jsonl").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        streams.own(tmp_path / "own.jsonl")


def test_a_line_without_an_end_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(bounded, "LONGEST", 1000)
    with gzip.open(tmp_path / "own.jsonl.gz", "wb") as file:
        file.write(b" " * 10**6)
    with pytest.raises(ValueError, match=r"Line 1 of .*own.jsonl.gz is longer than 1000 bytes"):
        list(sources.json_lines(tmp_path / "own.jsonl.gz"))


def test_an_archive_of_zeros_is_not_unpacked_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LARGEST", 10_000)
    zeros = gzip.compress(bytes(10**6))
    (tmp_path / "train.gz").write_bytes(zeros)
    for read in (sources.read_cifar100_binary,):
        with pytest.raises(ValueError, match=r"train.gz holds more than 10000 bytes"):
            read(tmp_path / "train.gz")
    (tmp_path / "idx.gz").write_bytes(
        gzip.compress(b"\0\0\x08\x01" + (1 << 31).to_bytes(4, "big") + bytes(10**6))
    )
    with pytest.raises(
        ValueError,
        match=r"idx.gz is truncated: it announces \[2147483648\] numbers and holds 10001",
    ):
        sources.read_idx(tmp_path / "idx.gz")


def test_an_archive_writes_nothing_outside_its_directory(tmp_path, monkeypatch):
    """Members are read by their names; links and paths that lead elsewhere are not followed there."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name in ("../../victim", "/tmp/victim", "cifar-100-binary/../../../victim"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"evil"))
        for name, to in (
            ("cifar-100-binary/train.bin", "../../victim"),
            ("cifar-100-binary/test.bin", "test.bin"),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, to
            archive.addfile(entry)
    monkeypatch.setattr(
        cifar_files, "download", lambda url, target, progress: target.write_bytes(made.getvalue())
    )
    place = tmp_path / "data" / "place"
    place.mkdir(parents=True)
    with pytest.raises(ValueError):
        cifar_files._from_archive(place, None)
    assert victim.read_text() == "mine" and not (tmp_path / "data" / "cifar-100-binary").exists()


def test_a_source_that_never_ends_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "MOST", 1000)
    (tmp_path / "long").write_bytes(bytes(5000))
    with pytest.raises(fetch.SourceError, match="sends more than 1000 bytes"):
        fetch.download((tmp_path / "long").as_uri(), tmp_path / "here")


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 5000,
        "a = " + "{b = " * 5000,
        "stream = '" + "x" * 10**6,
        "\x00",
        "hidden = [1e400]",
    ],
)
def test_specifications_of_any_depth_fail_cleanly(tmp_path, text):
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(ValueError, match=r"x\.toml"):
        Specification.load(tmp_path / "x.toml")


@pytest.mark.parametrize(
    "changes",
    [
        {"accuracy": [[]] * 200_000},  # as a square: 40,000,000,000 figures
        {"accuracy": [[0.5] * 3]},
        {"accuracy": [["0.5"]]},
        {"accuracy": [[True]]},
        {"macro_f1": [[0.5], [0.5]]},
        {"tasks": [1]},
        {"seconds": [{"train": None}]},
        {"contexts": [0.5]},
        {"schema": 1.0},
        {"schema": True},
        {"curves": [[["x", 1]]]},
        {"specification": []},
    ],
)
def test_a_record_of_another_kind_is_refused(tmp_path, changes):
    content = {"name": "x", "specification": {}, "data": {}, "accuracy": [[0.5]], "schema": 1}
    (tmp_path / "record.json").write_text(json.dumps(content))
    assert Record.load(tmp_path / "record.json").accuracy == [[0.5]]
    (tmp_path / "record.json").write_text(json.dumps(content | changes))
    with pytest.raises(
        ValueError, match=r"record.json is not a gateon record, or it is damaged: move it away\.$"
    ):
        Record.load(tmp_path / "record.json")


def test_a_record_of_any_depth_or_size_fails_cleanly(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    for text in ("[" * 100_000, '{"schema": 1e999}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="is not a gateon record"):
            Record.load(path)
    monkeypatch.setattr("gateon.runs.record.LARGEST", 10)
    with pytest.raises(ValueError, match="is not a gateon record"):
        Record.load(path)
