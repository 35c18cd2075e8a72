"""Bad data: one sentence each, which says what to do."""

from __future__ import annotations

import builtins
import gzip
import os
import re
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from gateon.life.check import check
from gateon.life.encode import fit_encoder, restore_encoder
from gateon.life.holdout import hold_out
from gateon.life.read import read
from gateon.life.understand import understand

TEXTS = "text,label\nmy card was stolen,card\nwhere is my bag,luggage\n"


def whole(source, **named):
    """All that happens to data before a network sees them."""
    table = read(source)
    understanding = understand(table, **named)
    return fit_encoder(table, understanding).encode(table, understanding.inputs)


def refused(sentence, source, **named):
    with pytest.raises((ValueError, TypeError, OSError, ImportError)) as caught:
        whole(source, **named)
    said = str(caught.value)
    said = (
        caught.value.strerror if isinstance(caught.value, OSError) and caught.value.errno else said
    )
    assert re.search(sentence, said), said
    assert "\n" not in said and said.endswith("."), said
    assert len(said) < 500, said


def many(rows, start=0):
    """A table of texts with two labels."""
    return "text,label\n" + "".join(f"text number {n},{'ab'[n % 2]}\n" for n in range(start, rows))


FILES = {
    "empty": ("a.csv", b"", "a.csv is empty: give it a header and rows"),
    "blank": ("a.csv", b"  \n\n", "a.csv is empty: give it a header and rows"),
    "a mark and nothing else": ("a.csv", b"\xef\xbb\xbf", "a.csv is empty"),
    "header only": ("a.csv", b"text,label\n", "has columns but no rows"),
    "numbers for a header": ("a.csv", b"5.1,3.5,0\n4.9,3.0,1\n", "must name the columns.*5.1"),
    "no name": ("a.csv", b"text,,label\na b c,1,x\n", "Column 2 of .*a.csv has no name"),
    "two columns of one name": ("a.csv", b"text,text\na,b\n", "has two columns 'text': rename one"),
    "control characters in a column": (
        "a.csv",
        b"text,la\x1b[2Jbel\na b,c\n",
        r"Column 'la\\\\?x1b\[2Jbel' of .* has control characters in its name",
    ),
    "ragged": (
        "a.csv",
        b"text,label\na,b\nc,d,e\n",
        "Line 3 of .* has 3 cells, the header 2: quote",
    ),
    "too few cells": ("a.csv", b"text,label\na,b\nc\n", "Line 3 of .* has 1 cells, the header 2"),
    "an open quote": ("a.csv", b'text,label\n"a,b\nc,d\n', "is broken .*: check its quotes"),
    "words behind a quote": ("a.csv", b'text,label\n"a"b,c\n', "is broken .*: check its quotes"),
    "Latin-1": ("a.csv", b"text,label\ncaf\xe9,x\n", r"not UTF-8 \(byte 0xe9 in line 2\): save it"),
    "UTF-16": ("a.csv", TEXTS.encode("utf-16"), "is in UTF-16: save it as UTF-8"),
    "NUL": ("a.csv", b"text,label\na\0b,x\n", "has a NUL byte in line 2"),
    "tabs in a TSV": ("a.tsv", b"text\tlabel\na\tb\tc\n", "cells, the header 2: quote .* tabs"),
    "not a gz": ("a.csv.gz", b"text,label\n", "a.csv.gz is truncated or not a .gz file"),
    "half a gz": ("a.csv.gz", gzip.compress(TEXTS.encode())[:30], "truncated or not a .gz file"),
    "not JSON": ("a.jsonl", b'{"text": "a"}\n{"text": \n', "Line 2 of .* is not JSON"),
    "JSON, no object": ("a.jsonl", b"[1, 2]\n", "Line 1 of .* is not a JSON object"),
    "JSON, a list of numbers": ("a.json", b"[1, 2]\n", "something else than objects"),
    "JSON, no row": ("a.jsonl", b"\n", "a.jsonl is empty"),
    "words and numbers in a column": (
        "a.jsonl",
        b'{"text": "a", "label": "x"}\n{"text": 3, "label": "y"}\n',
        r"Column 'text' of .* has words and numbers in it \(row 2\): make it one or the other",
    ),
    "an object in a cell": (
        "a.jsonl",
        b'{"text": {"en": "a"}, "label": "x"}\n',
        "Row 1 of column 'text' of .* holds a dict: give words or numbers",
    ),
    "lists of different lengths": (
        "a.jsonl",
        b'{"x": [1, 2], "label": "x"}\n{"x": [1], "label": "y"}\n',
        "lists that are no numbers or not all of one shape",
    ),
    "not Parquet": ("a.parquet", b"PAR1 and more", "a.parquet is damaged or not a Parquet file"),
    "not npz": ("a.npz", b"PK and more", "a.npz cannot be read as arrays"),
    "unknown": ("a.xlsx", b"PK", r"not a table that can be read: give CSV \(.csv\), TSV"),
    "one image": ("a.png", b"\x89PNG", "a.png holds images without labels"),
    "no label column": (
        "a.csv",
        b"text,colour,kind\na b c,red,x\nd e f,blue,y\n",
        "say which is the label with --label; its columns are 'text', 'colour', 'kind'",
    ),
    "no header for texts": (
        "a.csv",
        b"my card was stolen,lost card,card\nwhere is my bag,lost bag,bag\n",
        "say which is the label with --label; its columns are 'my card was stolen', ",
    ),
    "several texts": (
        "a.csv",
        b"title,body,label\nthe red fox,it ran away today,x\na blue bird,it flew over us,y\n",
        "several columns of text, 'title', 'body': choose one with --text",
    ),
    "no label at all": ("a.csv", b"text,label\na b,\nc d,NaN\n", "No row of .* has a label"),
    "no text at all": (
        "a.csv",
        b"text,label\n ,x\n,y\n",
        "Every row of .* lacks its text or its label",
    ),
    "a label of its own for each row": (
        "a.csv",
        ("text,label\n" + "".join(f"words of {n},name{n}\n" for n in range(12))).encode(),
        "Every row of .* has a label of its own in column 'label'",
    ),
    "amounts": (
        "a.csv",
        ("size,label\n" + "".join(f"{n},{n / 7:.3f}\n" for n in range(40)) * 2).encode(),
        "40 different amounts: classes are learned, not amounts",
    ),
    "too many labels": (
        "a.csv",
        ("size,label\n" + "".join(f"{n},name{n}\n" for n in range(10_001)) * 2).encode(),
        "has 10,001 labels, more than 10,000",
    ),
    "control characters in a label": (
        "a.csv",
        b"text,label\na b,x\x1b[2J\nc d,y\n",
        r"The label 'x\\\\?x1b\[2J' in column 'label' of .* has control characters",
    ),
    "a story for a label": (
        "a.csv",
        b"text,label\na b," + b"x" * 300 + b"\nc d,y\n",
        "has 300 characters, more than 200",
    ),
    "no such part": (
        "a.csv",
        b"text,label,split\na b,x,train\nc d,y,exam\n",
        "Row 2 of .* has 'exam' in column 'split': use train",
    ),
    "nothing to train on": (
        "a.csv",
        b"text,label,split\na b,x,test\nc d,y,test\n",
        "No row of .* is in the train part",
    ),
    "no task": ("a.csv", b"text,label,task\na b,x,bank\nc d,y,\n", "Row 2 of .* has no task"),
    "infinite": (
        "a.csv",
        b"size,label\n1e999,x\n2,y\n",
        "Row 1 of column 'size' of .* is infinite",
    ),
    "too large to scale": (
        "a.csv",
        b"size,label\n1e308,x\n1.7e308,y\n",
        "numbers too large to scale",
    ),
    "nothing to learn from": ("a.csv", b"id,label\n1,x\n2,y\n", "no column to learn from"),
    "images that are not there": (
        "a.csv",
        b"image,label\na.png,x\nb.png,y\n",
        "2 of 2 images of .* are not there, the first is .*a.png: paths are relative to",
    ),
    "two columns of images": (
        "a.csv",
        b"front,back,label\na.png,b.png,x\n",
        "images in columns 'front', 'back': choose one with --image",
    ),
    "half a character": (
        "a.jsonl",
        b'{"text": "so \\ud800 far", "label": "x"}\n{"text": "b", "label": "y"}\n',
        "half a character",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_bad_file_is_refused_in_a_sentence(tmp_path, case):
    name, content, sentence = FILES[case]
    (tmp_path / name).write_bytes(content)
    refused(sentence, tmp_path / name)


NAMED = {
    "wrong column": (
        {"text": "message"},
        "has no column 'message' for --text: its columns are 'te",
    ),
    "one column twice": ({"text": "text", "label": "text"}, "cannot be both --text and --label"),
    "texts and images": ({"text": "text", "image": "label"}, "texts or images, not both"),
    "second alone": ({"second": "text"}, "--second needs --text"),
    "numbers for text": ({"text": "size"}, "Column 'size' of .* holds no words"),
    "numbers for images": ({"image": "size"}, "Column 'size' of .* holds numbers: --image needs"),
    "words for images": ({"image": "text"}, "2 of 2 images of .* are not there, the first is my"),
    "a split that is none": ({"split": "text"}, "Row 1 of .* has 'my card.*: use train, valid"),
    "control characters": ({"text": "a\x1b[2J"}, r"no column 'a\\\\?x1b\[2J' for --text"),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_column_that_cannot_be_is_refused(case):
    named, sentence = NAMED[case]
    frame = {
        "text": ["my card was stolen", "where is my bag"],
        "label": ["card", "bag"],
        "size": [1, 2],
    }
    refused(sentence, frame, **named)


OBJECTS = {
    "nothing": (None, "cannot be read from NoneType"),
    "a number": (3, "cannot be read from int"),
    "a text, not in a list": ("my card was stolen", "There is no my card was stolen.* in a list"),
    "an empty list": ([], "the list is empty"),
    "an empty dict": ({}, "The dict is empty"),
    "a list of numbers": ([1, 2], "has rows that are int: give texts"),
    "rows of several kinds": (["a", {"text": "b"}], r"different kinds \(dicts, texts\)"),
    "bytes": ([{"text": b"a", "label": "x"}], "Row 1 of column 'text' of the list holds a bytes"),
    "more inputs than labels": ((["a b", "c d"], ["x"]), "differ in length, 2 and 1"),
    "a column that is a word": ({"text": "a", "label": ["x"]}, "text of the dict is str"),
    "no rows": ({"text": [], "label": []}, "has columns but no rows"),
    "five dimensions": (np.zeros((2, 3, 4, 4, 4)), r"has shape \(2, 3, 4, 4, 4\): give \(N,\)"),
    "pictures without pixels": ((np.zeros((2, 0, 0)), [0, 1]), "has no numbers, its shape"),
    "two columns of pixels": (
        {"a": np.zeros((2, 8, 8)), "b": np.zeros((2, 8, 8)), "label": ["x", "y"]},
        "images in columns 'a', 'b': choose one with --image",
    ),
    "pixels beyond 255": ((np.full((2, 8, 8), 999), [0, 1]), "pixels from 999 to 999: give whole"),
    "pixels that are NaN": (
        (np.full((2, 8, 8), np.nan), [0, 1]),
        "Row 1 of column 'x'.* has a NaN",
    ),
    "infinite features": (([[1.0], [np.inf]], [0, 1]), "Row 2 of column 'x0' of .* is infinite"),
    "parts that differ": (
        {"train": {"text": ["a b"], "label": ["x"]}, "test": {"words": ["a b"], "label": ["x"]}},
        r"differ in their columns \(text, words\): make them alike",
    ),
}


@pytest.mark.parametrize("case", OBJECTS)
def test_a_bad_object_is_refused_in_a_sentence(case):
    source, sentence = OBJECTS[case]
    refused(sentence, source)


def png(width, height):
    """A PNG that says it has so many pixels, and has none."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def shop(folder, size=(30, 30), mode="RGB"):
    """Images of two classes."""
    for kind in ("hat", "shoe"):
        (folder / kind).mkdir(parents=True)
        for n in range(3):
            Image.new(mode, size, 40 * n).save(folder / kind / f"{n}.png")
    return folder


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (png(30_000, 30_000), "1.png has more than 67,108,864 pixels: make it smaller"),
        (png(10_000, 10_000), "1.png has more than 67,108,864 pixels: make it smaller"),
        (png(20, 20), "1.png is a broken image"),
        (b"not an image", "1.png cannot be read as an image"),
        (b"", "1.png cannot be read as an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "1.png cannot be read as an image"),
    ],
    ids=["30,000 pixels a side", "10,000 a side", "no pixels", "text", "empty", "PostScript"],
)
def test_a_bad_image_is_named(tmp_path, content, sentence):
    (shop(tmp_path) / "hat" / "1.png").write_bytes(content)
    refused(sentence, tmp_path)


def test_a_truncated_image_is_named(tmp_path):
    file = shop(tmp_path, (300, 300)) / "hat" / "1.png"
    file.write_bytes(file.read_bytes()[:120])
    refused("1.png is a broken image", tmp_path)


def test_an_image_of_16_bits_is_named(tmp_path):
    Image.fromarray(np.zeros((9, 9), np.uint16)).save(shop(tmp_path) / "hat" / "1.png")
    refused("1.png has pixels of kind I;16: convert it to 8 bits", tmp_path)


def test_an_image_too_deep_in_the_folder_is_named(tmp_path):
    (shop(tmp_path) / "hat" / "old").mkdir()
    Image.new("L", (9, 9)).save(tmp_path / "hat" / "old" / "1.png")
    refused("is not where it should be: put every image", tmp_path)


def test_images_beside_their_folders_are_named(tmp_path):
    Image.new("L", (9, 9)).save(tmp_path / "1.png")
    refused("holds images without labels: put every image at CLASS/FILE", tmp_path)
    shop(tmp_path)
    refused("1.png is not where it should be", tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    refused("holds no images and no train or test table: put images", tmp_path)


def test_a_folder_of_tables_asks_for_one(tmp_path):
    (tmp_path / "january.csv").write_text(TEXTS)
    refused("give one of its tables, such as .*january.csv", tmp_path)


def test_a_folder_called_like_a_table_is_a_folder(tmp_path):
    (tmp_path / "a.csv").mkdir()
    refused("a.csv holds no images", tmp_path / "a.csv")


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    refused("is not a regular file", tmp_path / "a.csv")


def test_a_link_that_leads_nowhere_is_refused(tmp_path):
    (tmp_path / "a.csv").symlink_to(tmp_path / "b.csv")
    refused("There is no .*a.csv", tmp_path / "a.csv")


def test_an_unreadable_file_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "a.csv"
    file.write_text(TEXTS)
    usual = builtins.open

    def denied(path, *rest, **named):
        if os.fspath(path) == os.fspath(file):
            raise PermissionError(13, "Permission denied", str(file))
        return usual(path, *rest, **named)

    monkeypatch.setattr(builtins, "open", denied)
    monkeypatch.setattr("gateon.storage.bounded.open", denied, raising=False)
    refused("a.csv cannot be read .Permission denied.: check its permissions", file)


def test_an_npz_of_zeros_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        head = np.lib.format.magic(1, 0)
        said = b"{'descr': '|u1', 'fortran_order': False, 'shape': (400000000,), }"
        said += b" " * (64 - (len(head) + 2 + len(said) + 1) % 64) + b"\n"
        with archive.open("x.npy", "w", force_zip64=True) as file:
            file.write(head + struct.pack("<H", len(said)) + said)
            for _ in range(400):
                file.write(bytes(10**6))
    assert (tmp_path / "a.npz").stat().st_size < 10**6
    refused("holds more than 1 GB once it is unpacked: raise --data-limit", tmp_path / "a.npz")


def test_an_npz_of_objects_is_not_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}, {}], object), y=np.array([0, 1]))
    refused("a.npz cannot be read as arrays .x is no array of numbers", tmp_path / "a.npz")


def test_a_packed_csv_of_zeros_is_not_unpacked(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"text,label\n" + b" " * 10**7))
    with pytest.raises(ValueError, match=r"a.csv.gz holds more than .* raise --data-limit"):
        read(tmp_path / "a.csv.gz", largest=10**6)


def test_a_parquet_file_that_repeats_itself_is_not_unpacked(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    text = arrow.array(["x" * 100_000] * 2000)
    write_table(arrow.table({"text": text, "label": text}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 10**6
    with pytest.raises(ValueError, match=r"a.parquet holds more than .* raise --data-limit"):
        read(tmp_path / "a.parquet", largest=10**8)


def test_parquet_without_pyarrow_says_how_to_get_it(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    usual = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
        return usual(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    refused(
        r"needs pyarrow: pip install 'gateon\[tables\]', or save it as CSV", tmp_path / "a.parquet"
    )


def test_data_of_another_kind_are_refused(tmp_path):
    before = understand(read(([[1.0], [2.0]], ["a", "b"]))).columns
    later = read((["my card was stolen", "where is my bag"], ["a", "b"]))
    with pytest.raises(ValueError, match=r"learned features, and the pair .* holds texts: give it"):
        understand(later, text="x", like=before)


def test_features_with_no_column_in_common_are_refused():
    table = read({"size": [1, 2], "label": ["a", "b"]})
    encoder = fit_encoder(table, understand(table))
    later = read({"weight": [1, 2], "label": ["a", "b"]})
    with pytest.raises(ValueError, match=r"none of the columns that the model learned \('size'\)"):
        encoder.encode(later, ["weight"])


def test_numbers_that_become_words_are_refused():
    table = read({"size": [1, 2], "label": ["a", "b"]})
    encoder = fit_encoder(table, understand(table))
    later = read({"size": ["1", "large"], "label": ["a", "b"]})
    with pytest.raises(
        ValueError, match=r"held numbers when the model learned it, and holds 'large'"
    ):
        encoder.encode(later, ["size"])


def test_a_number_where_a_text_should_be_is_refused():
    texts = read((["a b c", "d e f"], ["a", "b"]))
    encoder = fit_encoder(texts, understand(texts))
    with pytest.raises(ValueError, match=r"Row 1 of column 'x' of .* is 3, not a text: give words"):
        encoder.encode(read({"x": [3, 4]}), ["x"])


def test_a_state_of_no_encoder_is_refused():
    with pytest.raises(
        ValueError, match=r"no encoder of kind 'sounds': use texts, images, features"
    ):
        restore_encoder({"kind": "sounds"})


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="share must be between 0 and 1, got"):
        hold_out(["a", "b"], [b"1", b"2"], share)


DOUBTS = {
    "one label": ("text,label\na b,x\nc d,x\n", "There is one label, 'x': nothing can be told"),
    "ten rows": (many(10), "10 rows to train on are few"),
    "a label in one row": (many(60) + "so it goes,c\n", "Label 'c' is in one row only"),
    "labels that are numbers": ("text,label\na b,1\nc d,2\n", r"kept as names \('1', '2'\)"),
    "labels that differ in case": (
        "text,label\na b,Yes\nc d,yes\n",
        "'Yes' and 'yes' differ in case",
    ),
    "repeated rows": (many(60) + "text number 0,a\n", "1 row repeats an earlier one"),
    "one text, two labels": (many(60) + "text number 0,b\n", "1 input has different labels"),
    "a missing label": (many(60) + "so it goes,\nand on,NA\n", "2 rows have no label: left out"),
    "a missing text": (many(60) + ",a\n", "1 row has no text: left out"),
    "a constant column": ("a,b,label\n1,5,x\n2,5,y\n", "Column 'b' is the same in every row"),
    "an empty column": ("a,b,label\n1,,x\n2,,y\n", "Column 'b' is empty: it is left out"),
    "a word among numbers": (
        "a,label\n" + "".join(f"{n},{'xy'[n % 2]}\n" for n in range(9)) + "old,x\n",
        "'a' is read as categories, since 'old' is no number",
    ),
    "a decimal comma": (
        'a,label\n"1,5",x\n"2,5",y\n',
        "'a' has numbers with a comma, such as '1,5'",
    ),
    "many words": (
        "a,b,label\n" + "".join(f"{n},w{n},{'xy'[n % 2]}\n" for n in range(120)),
        "Column 'b' has 120 different words and is left out",
    ),
    "two labels": ("a,class,target\n1,x,p\n2,y,q\n", "Column 'target' could be the label as well"),
    "a label in the test part only": (
        "text,label,split\na b,x,train\nc d,y,train\ne f,z,test\n",
        "Label 'z' is in the test part only",
    ),
    "test rows that are trained on": (
        "text,label,split\na b,x,train\nc d,y,train\na b,x,test\n",
        "1 of 1 test rows are in the train part too",
    ),
}


@pytest.mark.parametrize("case", DOUBTS)
def test_what_is_doubtful_is_said_and_nothing_refused(tmp_path, case):
    content, sentence = DOUBTS[case]
    (tmp_path / "a.csv").write_text(content)
    warnings = understand(read(tmp_path / "a.csv")).warnings
    assert any(re.search(sentence, warning) for warning in warnings), warnings
    assert re.search(sentence, check(tmp_path / "a.csv").replace("\n          ", " "))


def test_sound_data_raise_no_doubt(tmp_path):
    (tmp_path / "a.csv").write_text(many(60))
    assert understand(read(tmp_path / "a.csv")).warnings == ()


def test_a_text_of_a_megabyte_is_cut_and_said(tmp_path):
    (tmp_path / "a.csv").write_text(many(60) + f'"{"word " * 200_000}",a\n')
    (*_, (last, _)), words = whole(tmp_path / "a.csv")
    assert last.startswith("word word") and len(last) <= 1 << 14
    assert words == ["1 text is cut at 16,384 characters."]
