import gzip
import json
import lzma
import os

import numpy as np
import pytest

from gateon.streams.data import sources


@pytest.mark.parametrize("name", ["images-idx3-ubyte", "images-idx3-ubyte.gz"])
def test_idx_is_written_and_read_back(tmp_path, name):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    sources.write_idx(tmp_path / name, array)
    assert np.array_equal(sources.read_idx(tmp_path / name), array)
    first = (tmp_path / name).read_bytes()
    sources.write_idx(tmp_path / name, array)
    assert (tmp_path / name).read_bytes() == first


def test_idx_has_the_official_bytes(tmp_path):
    (tmp_path / "file").write_bytes(
        b"\x00\x00\x08\x02\x00\x00\x00\x02\x00\x00\x00\x03\x01\x02\x03\x04\x05\xff"
    )
    assert sources.read_idx(tmp_path / "file").tolist() == [[1, 2, 3], [4, 5, 255]]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "not an idx file"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00", "not an idx file of 8-bit numbers"),
        (
            b"\x00\x00\x08\x01\x00\x00\x00\x05abcd",
            r"truncated: it announces \[5\] numbers and holds 4",
        ),
        (b"\x00\x00\x08\x01\x00\x00\x00\x03abcd", "holds 4"),
        (
            b"\x00\x00\x08\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xffa",
            "truncated",
        ),
        (b"\x00\x00\x08\x03\x00\x00", "truncated"),
    ],
)
def test_bad_idx_is_named(tmp_path, content, sentence):
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(ValueError, match=sentence) as caught:
        sources.read_idx(tmp_path / "bad")
    assert str(tmp_path / "bad") in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:-5],
        lambda whole: b"plain text",
        lambda whole: whole[:30] + b"\0" * 8 + whole[38:],
    ],
)
def test_damaged_gzip_is_named(tmp_path, damage):
    whole = gzip.compress(b"\x00\x00\x08\x01\x00\x00\x03\xe8" + os.urandom(1000))
    (tmp_path / "bad.gz").write_bytes(damage(whole))
    with pytest.raises(ValueError, match=r"bad\.gz is truncated or not a \.gz file"):
        sources.read_idx(tmp_path / "bad.gz")


def cifar(count=4):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return (
        images,
        np.array([99, 0, 5, 7][:count], np.uint8),
        np.array([19, 0, 3, 3][:count], np.uint8),
    )


def test_cifar_binary(tmp_path):
    images, fine, coarse = cifar()
    (tmp_path / "train.bin").write_bytes(
        b"".join(
            bytes([c, f]) + image.tobytes()
            for image, f, c in zip(images, fine, coarse, strict=True)
        )
    )
    for got, wanted in zip(
        sources.read_cifar100_binary(tmp_path / "train.bin"), (images, fine, coarse), strict=True
    ):
        assert np.array_equal(got, wanted) and got.dtype == np.uint8


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "truncated"),
        (b"\0" * 3073, "no multiple of 3074"),
        (b"\0\x64" + b"\0" * 3072, "fine label"),
        (b"\x14\0" + b"\0" * 3072, "coarse label"),
    ],
)
def test_bad_cifar_binary_is_named(tmp_path, content, sentence):
    (tmp_path / "bad.bin").write_bytes(content)
    with pytest.raises(ValueError, match=rf"bad\.bin .*{sentence}"):
        sources.read_cifar100_binary(tmp_path / "bad.bin")


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_json_lines(tmp_path, suffix, pack):
    rows = [{"task": "a", "text": "ä\nb", "label": 1}, {"task": "b", "text": "", "label": 0}]
    content = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()
    (tmp_path / f"rows.jsonl{suffix}").write_bytes(pack(content))
    assert list(sources.json_lines(tmp_path / f"rows.jsonl{suffix}")) == rows


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ("[" * 10**5, "is not JSON"),
        ("\udcff", "is not JSON"),
    ],
    ids=["half", "list", "deep", "bytes"],
)
def test_bad_json_lines_are_named_by_number(tmp_path, line, sentence):
    (tmp_path / "rows.jsonl").write_bytes(b'{"a": 1}\n' + line.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=rf"Line 2 of .* {sentence}"):
        list(sources.json_lines(str(tmp_path / "rows.jsonl")))


def test_truncated_compressed_json_lines_are_named(tmp_path):
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n' * 1000)[:-9])
    with pytest.raises(ValueError, match=r"rows\.jsonl\.gz is truncated"):
        list(sources.json_lines(tmp_path / "rows.jsonl.gz"))
