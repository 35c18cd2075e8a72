"""Every format and every object of Python gives the table that was meant."""

from __future__ import annotations

import bz2
import datetime
import gzip
import hashlib
import json
import lzma
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from gateon.life.encode import fit_encoder
from gateon.life.read import read
from gateon.life.understand import understand

ROWS = [("my card, the red one, was stolen", "card"), ("where is\nmy bag?", "luggage")]


def cells(table):
    return {name: column.tolist() for name, column in table.columns.items()}


WANTED = {"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "with a byte order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_csv_with_any_delimiter_quotes_marks_and_line_ends(tmp_path, delimiter, mark, end):
    lines = [f"text{delimiter}label", *(f'"{text}"{delimiter}{label}' for text, label in ROWS)]
    (tmp_path / "a.csv").write_bytes((mark + end.join(lines) + end).encode())
    table = read(tmp_path / "a.csv")
    assert cells(table) == WANTED
    assert table.sha256 == hashlib.sha256((tmp_path / "a.csv").read_bytes()).hexdigest()
    assert table.origin == str(tmp_path / "a.csv") and table.rows == 2


def test_tabs_are_the_delimiter_of_a_tsv_whatever_else_is_in_it(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\na, b, c\tx\nd, e, f\ty\n")
    assert cells(read(tmp_path / "a.tsv")) == {"text": ["a, b, c", "d, e, f"], "label": ["x", "y"]}


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip), ("xz", lzma), ("bz2", bz2)])
def test_packed_files_are_unpacked(tmp_path, suffix, pack):
    file = tmp_path / f"a.csv.{suffix}"
    file.write_bytes(pack.compress(b"text,label\na,x\n"))
    assert cells(read(file)) == {"text": ["a"], "label": ["x"]}
    lines = tmp_path / f"a.jsonl.{suffix}"
    lines.write_bytes(pack.compress(b'{"text": "a", "label": "x"}\n'))
    assert cells(read(lines)) == {"text": ["a"], "label": ["x"]}


def test_one_column_is_a_table(tmp_path):
    (tmp_path / "a.csv").write_text("text\nmy card was stolen\n\nwhere is my bag\n")
    assert cells(read(tmp_path / "a.csv")) == {"text": ["my card was stolen", "where is my bag"]}


def test_the_index_that_pandas_writes_is_left_out_and_said(tmp_path):
    pandas.DataFrame(WANTED).to_csv(tmp_path / "a.csv")
    table = read(tmp_path / "a.csv")
    assert cells(table) == WANTED and "counts the rows" in table.notes[0]


def test_a_cell_of_a_csv_stays_as_it_is_written(tmp_path):
    """Labels such as 007 would lose their zeros as numbers."""
    (tmp_path / "a.csv").write_text("code,label\n007,x\n 1.50,y\n")
    table = read(tmp_path / "a.csv")
    assert table.words("code") == ["007", " 1.50"]
    assert table.numbers("code").tolist() == [7, 1.5]


def test_json_lines_have_words_numbers_lists_and_gaps(tmp_path):
    rows = [{"a": 1, "b": "x", "c": [1, 2]}, {"a": None, "b": None, "c": [3, 4]}, {"a": 2.5}]
    rows[2]["c"] = [5, 6]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table = read(tmp_path / "a.jsonl")
    assert table.words("a") == ["1", None, "2.5"]
    assert table.words("b") == ["x", None, None]
    assert cells(table)["c0"] == [1, 3, 5] and cells(table)["c1"] == [2, 4, 6]


def test_json_may_be_one_list(tmp_path):
    (tmp_path / "a.json").write_text('[{"text": "a", "label": "x"}]')
    assert cells(read(tmp_path / "a.json")) == {"text": ["a"], "label": ["x"]}
    (tmp_path / "b.json").write_text('{"text": "a", "label": "x"}\n')
    assert cells(read(tmp_path / "b.json")) == {"text": ["a"], "label": ["x"]}


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    columns = {"text": ["a", None], "size": [1, None], "label": ["x", "y"], "v": [[1, 2], [3, 4]]}
    write_table(arrow.table(columns), tmp_path / "a.parquet")
    table = read(tmp_path / "a.parquet")
    assert table.words("text") == ["a", None] and table.words("size") == ["1", None]
    assert cells(table)["v1"] == [2, 4] and table.rows == 2
    pandas.DataFrame(WANTED, index=["p", "q"]).to_parquet(tmp_path / "b.parquet")
    assert cells(read(tmp_path / "b.parquet")) == WANTED


def test_npz_of_features_of_pictures_and_of_parts(tmp_path):
    x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 0])
    np.savez(tmp_path / "a.npz", x=x, y=y)
    assert cells(read(tmp_path / "a.npz")) == {"x0": [0, 2, 4], "x1": [1, 3, 5], "y": [0, 1, 0]}
    pictures = np.zeros((3, 5, 4, 3), np.uint8)
    np.savez(tmp_path / "b.npz", x=pictures, y=np.array(["hat", "shoe", "hat"]))
    table = read(tmp_path / "b.npz")
    assert table.columns["x"].shape == (3, 3, 5, 4) and table.words("y") == ["hat", "shoe", "hat"]
    np.savez_compressed(tmp_path / "c.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    assert cells(read(tmp_path / "c.npz"))["split"] == ["train"] * 3 + ["test"]


def picture(path, colour=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (8, 8), colour).save(path)


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ("hat/1.png", {"label": "hat"}),
        ("summer/hat/1.png", {"task": "summer", "label": "hat"}),
        ("Train/hat/1.png", {"split": "Train", "label": "hat"}),
        ("summer/val/hat/1.png", {"task": "summer", "split": "val", "label": "hat"}),
    ],
)
def test_folders_of_images(tmp_path, place, wanted):
    picture(tmp_path / place)
    (tmp_path / place).with_name(".hidden.png").write_bytes(b"")
    (tmp_path / place).with_name("notes.txt").write_text("not an image")
    table = read(tmp_path)
    assert cells(table) == {"image": [place]} | {name: [word] for name, word in wanted.items()}
    assert table.folder == tmp_path and table.notes == (
        "1 files are no images and are not looked at.",
    )


def test_the_hash_of_a_folder_is_that_of_its_images(tmp_path):
    picture(tmp_path / "a" / "hat" / "1.png")
    picture(tmp_path / "b" / "hat" / "1.png")
    before = read(tmp_path / "a").sha256
    assert before == read(tmp_path / "b").sha256
    picture(tmp_path / "b" / "hat" / "1.png", colour=9)
    assert before != read(tmp_path / "b").sha256


def test_a_folder_of_tables_for_parts(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\na,x\nb,y\n")
    (tmp_path / "dev.jsonl").write_text('{"label": "x", "text": "c"}\n')
    table = read(tmp_path)
    assert cells(table)["text"] == ["a", "b", "c"]
    assert cells(table)["split"] == ["train", "train", "validation"]


def test_paths_in_a_table_are_relative_to_it(tmp_path):
    picture(tmp_path / "pictures" / "1.png")
    (tmp_path / "a.csv").write_text("file,label\npictures/1.png,hat\n")
    assert understand(read(tmp_path / "a.csv")).kind == "images"


class HuggingFace:
    """What a data set of Hugging Face looks like from outside."""

    column_names = ("text", "label")

    class Names:
        names = ("card", "luggage")

    def __init__(self, labels=(0, 1)):
        self.features = {"text": object(), "label": self.Names()}
        self.held = {"text": WANTED["text"], "label": list(labels)}

    def __getitem__(self, name):
        return self.held[name]


class Pairs:
    """A data set of torch with names of classes, as torchvision's have."""

    classes = ("hat", "shoe")

    def __len__(self):
        return 2

    def __getitem__(self, n):
        return Image.new("L", (5 + n, 5)), n


def frames():
    polars = pytest.importorskip("polars")
    return [
        pandas.DataFrame(WANTED),
        pandas.DataFrame(WANTED).astype("category"),
        polars.DataFrame(WANTED),
        WANTED,
        [dict(zip(WANTED, row, strict=True)) for row in ROWS],
        HuggingFace(),
    ]


@pytest.mark.parametrize("n", range(6))
def test_frames_dicts_lists_and_data_sets(n):
    assert cells(read(frames()[n])) == WANTED


def test_lists_pairs_and_arrays():
    texts, labels = WANTED["text"], WANTED["label"]
    assert cells(read(texts)) == {"text": texts}
    assert cells(read((texts, labels))) == {"x": texts, "y": labels}
    assert cells(read(list(zip(texts, labels, strict=True)))) == {"x": texts, "y": labels}
    x = np.arange(4).reshape(2, 2)
    assert cells(read((x, [3, 4]))) == {"x0": [0, 2], "x1": [1, 3], "y": [3, 4]}
    assert cells(read(torch.tensor(x))) == {"x0": [0, 2], "x1": [1, 3]}
    assert cells(read(x.tolist())) == {"x0": [0, 2], "x1": [1, 3]}


def test_data_sets_of_torch():
    table = read(TensorDataset(torch.zeros(3, 1, 5, 4), torch.tensor([0, 1, 1])))
    assert table.columns["x"].shape == (3, 1, 5, 4) and table.words("y") == ["0", "1", "1"]
    table = read(Pairs())
    assert [picture.size for picture in table.columns["x"]] == [(5, 5), (6, 5)]
    assert table.words("y") == ["hat", "shoe"]


def test_parts_by_name():
    table = read({"train": HuggingFace(), "test": HuggingFace([1, 0])})
    assert table.words("label") == ["card", "luggage", "luggage", "card"]
    assert cells(table)["split"] == ["train", "train", "test", "test"]


def test_parts_in_folders_of_their_own(tmp_path):
    for part, colours in (("first", (0, 9)), ("second", (90, 99))):
        for n, colour in enumerate(colours):
            picture(tmp_path / part / f"kind{n}" / "1.png", colour)
    table = read({"train": tmp_path / "first", "test": tmp_path / "second"})
    assert table.words("image")[3] == str(tmp_path / "second" / "kind1" / "1.png")
    values, _ = fit_encoder(table, understand(table)).encode(table, ["image"])
    assert [round(255 * value[0, 14, 14].item()) for value in values] == [0, 9, 90, 99]
    assert len({table.sha256, read(tmp_path / "first").sha256}) == 2


def test_a_table_is_a_source():
    table = read(["a"])
    assert read(table) is table


def test_values_of_other_types():
    table = read(
        {
            "day": [datetime.date(2026, 1, 2), pandas.NaT],
            "price": [Decimal("1.5"), None],
            "big": [2**60, 1],
            "yes": [True, False],
            "gap": pandas.array([1, None], "Int64"),
        }
    )
    assert table.words("day") == ["2026-01-02", None]
    assert table.words("price") == ["1.5", None]
    assert table.words("big") == [str(2**60), "1"], "no digit is lost"
    assert table.words("yes") == ["True", "False"] and table.numbers("yes").tolist() == [1, 0]
    assert table.words("gap") == ["1", None]


def test_nothing_of_it_needs_torch_or_a_library_of_frames():
    script = (
        "import sys\n"
        "from gateon.life.check import check\n"
        "from gateon.life.encode import fit_encoder\n"
        "check((['my card was stolen', 'where is my bag'], ['card', 'bag']))\n"
        "print(*{'torch', 'pandas', 'polars', 'pyarrow', 'PIL'} & set(sys.modules))"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    assert output.strip() == b""
