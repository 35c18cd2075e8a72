"""Streams of texts: what a network is given, bit for bit, from small files made on the spot."""

from __future__ import annotations

import json

import pytest
import torch

from gateon import streams
from gateon.streams.data import text_files, tokens
from tiny_language import tiny_model, tiny_tokenizer

PRODUCTS = ["phone", "camera", "router"]
TOKENIZER = tiny_tokenizer()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(autouse=True)
def data(tmp_path_factory, monkeypatch):
    """An empty data directory."""
    directory = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("GATEON_DATA", str(directory))
    return directory


def reviews(split=True):
    """Three products, two labels, texts of various lengths."""
    return [
        {
            "task": product,
            "text": f"the {product} is " + "very " * (n % 7) + ("good" if n % 2 else "bad"),
            "label": n % 2,
        }
        | ({"split": ("test" if n % 5 == 4 else "train")} if split else {})
        for product in PRODUCTS
        for n in range(40)
    ]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def lines(tmp_path):
    return write(tmp_path / "reviews.jsonl", reviews())


GOLDEN = {
    "all": "8d0f62069b215817260163bc934bb50d89d3800b21ca71e8ee5b023171d16b8b",
    "limited": "664bf2b9fe3576cda729003d77a14cdb7c20023dd2dcbcd2a1b6a474a190c599",
    "divided": "1c8066d9803ae3729a38c490bcad7dd6217b428a28b1f3b53c33984402053b11",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_hashes(name, lines, model):
    if name == "divided":
        write(lines, reviews(split=False))
    stream = streams.open(
        f"text:{lines}", model=model, length=16, seed=3, limit=20 if name == "limited" else None
    )
    assert stream.fingerprint(1) == GOLDEN[name]


def test_inputs_are_the_tokens_padded_at_the_right(lines, model):
    stream = streams.text_lines(lines, model=model, length=16)
    assert (stream.tasks, stream.classes, stream.shape) == (3, 2, (16,))
    assert [(task.name, task.identity) for task in stream] == [
        (product, k) for k, product in enumerate(PRODUCTS)
    ]
    task = stream[2]
    assert [len(split) for split in (task.train, task.validation, task.test)] == [30, 2, 8]
    given = [row for row in reviews() if row["task"] == "router" and row["split"] == "test"]
    assert (
        task.test.y.tolist() == [row["label"] for row in given]
        and task.test.x.dtype == task.test.lengths.dtype == torch.int64
    )
    for row, ids, length in zip(given, task.test.x, task.test.lengths, strict=True):
        expected = TOKENIZER(row["text"]).input_ids
        assert ids.tolist() == expected + [TOKENIZER.pad_token_id] * (
            16 - len(expected)
        ) and length == len(expected)
    assert torch.equal(stream.split(2, "test").x, task.test.x)


def test_a_second_text_stands_behind_the_separator(tmp_path, model):
    rows = [{"text": "good " * n, "second": "the battery", "label": n % 2} for n in range(1, 31)]
    stream = streams.text_lines(write(tmp_path / "pairs.jsonl", rows), model=model, length=12)
    task = stream[0]
    assert (
        task.name == "pairs"
        and len(task.train) == 22
        and len(task.validation) == 2
        and len(task.test) == 6
    )
    x = torch.cat([task.train.x, task.validation.x, task.test.x])
    assert all((row == TOKENIZER.sep_token_id).sum() == 2 for row in x)
    ends = [row[row != TOKENIZER.pad_token_id][-3:].tolist() for row in x]
    # the longer of the two is cut
    assert ends == [[*TOKENIZER("the battery").input_ids[1:-1], TOKENIZER.sep_token_id]] * 30
    assert (
        stream.source["truncated"] == 30 - 7
        and "23 of 30 texts are longer than 12 tokens" in stream.source["note"]
    )


def test_what_a_run_must_know_is_told(lines, model):
    stream = streams.text_lines(lines, model=model, length=64)
    known = stream.settings["tokenizer"]
    assert (
        known["pad"] == TOKENIZER.pad_token_id
        and known["vocabulary"] == len(TOKENIZER)
        and len(known["sha256"]) == 64
    )
    assert stream.settings["model"] == str(model) and stream.settings["limit"] is None
    assert (stream.source["truncated"], stream.source["empty"], stream.source["texts"]) == (
        0,
        0,
        120,
    )
    assert "note" not in stream.source and stream.source["classes"] == ["0", "1"]


def test_settings_make_it_again_and_another_vocabulary_is_noticed(lines, model):
    stream = streams.text_lines(lines, model=model, length=16, limit=10, tasks=2)
    settings = json.loads(json.dumps(stream.settings))
    assert streams.remake(settings).fingerprint(1) == stream.fingerprint(1)
    twice = streams.recurring(stream, repeats=2)
    assert streams.remake(json.loads(json.dumps(twice.settings))).fingerprint(
        3
    ) == stream.fingerprint(1)
    settings["tokenizer"]["sha256"] = "0" * 64
    with pytest.raises(ValueError, match="another vocabulary"):
        streams.remake(settings)


def test_a_limit_keeps_the_classes_in_proportion(tmp_path, model):
    rows = [{"text": f"good {n}", "label": int(n % 10 == 0), "split": "train"} for n in range(100)]
    rows += [{"text": "bad", "label": 0, "split": part} for part in ("validation", "test")]
    file = write(tmp_path / "rows.jsonl", rows)
    for limit, rare in ((20, 2), (50, 5), (3, 1), (2, 1), (100, 10), (500, 10)):
        train = streams.text_lines(file, model=model, length=16, limit=limit)[0].train
        assert len(train) == min(limit, 100) and train.y.sum() == rare
    drawn = [
        streams.text_lines(file, model=model, length=16, limit=20, seed=seed) for seed in (0, 0, 1)
    ]
    assert drawn[0].fingerprint(0) == drawn[1].fingerprint(0) != drawn[2].fingerprint(0)
    with pytest.raises(ValueError, match="limit must be at least 2"):
        streams.text_lines(file, model=model, length=16, limit=1)


def test_names_as_labels_are_numbered_in_their_order(tmp_path, model):
    rows = [{"text": "good day", "label": ["sport", "art", "money"][n % 3]} for n in range(30)]
    stream = streams.text_lines(write(tmp_path / "rows.jsonl", rows), model=model, length=16)
    assert stream.classes == 3 and stream.source["classes"] == ["art", "money", "sport"]
    assert all(
        (split.y.bincount(minlength=3) == len(split) // 3).all()
        for split in (stream[0].train, stream[0].test)
    )


BAD_ROWS = [
    ({"label": 1}, "Row 121 .* has no text"),
    ({"text": "good"}, "Row 121 .* has no label"),
    ({"text": " \n", "label": 1}, "Row 121 .* has an empty text"),
    ({"text": "good", "second": "", "label": 1}, "Row 121 .* has an empty second"),
    ({"text": 7, "label": 1}, "no string of characters: 7"),
    ({"text": "half \ud800", "label": 1}, "no string of characters"),
    ({"text": "good", "label": 1.0}, r"the label 1\.0"),
    ({"text": "good", "label": True}, "the label True"),
    ({"text": "good", "label": -1}, "run from -1 to 1: number them from 0 up"),
    ({"text": "good", "label": 3}, "run from 0 to 3: number them from 0 up"),
    ({"text": "good", "label": "fine"}, "numbers and labels that are names"),
    ({"text": "good", "label": 1, "split": "holiday"}, "split 'holiday'"),
    ({"text": "good", "label": 1, "split": ["train"]}, "split"),
    (
        {"text": "good", "label": 1, "task": "phone", "split": None},
        "rows with a split and rows without",
    ),
    ({"text": "good", "label": 1, "task": "new", "split": "train"}, "'new' .* has no test row"),
    ({"text": "good", "label": 1, "task": "new"}, "1 rows of label 1 to divide"),
    (
        {"text": "good", "label": 2, "task": "phone", "split": "test"},
        "Label '2', in the test part of task 'phone' .* in no training part",
    ),
]


@pytest.mark.parametrize(("bad", "sentence"), BAD_ROWS)
def test_bad_rows_are_named(bad, sentence, tmp_path, model):
    rows = [
        *reviews(),
        {"task": "phone", "split": "train"} | bad
        if {"task", "split"} & bad.keys() == set()
        else bad,
    ]
    with pytest.raises(ValueError, match=sentence):
        streams.text_lines(write(tmp_path / "rows.jsonl", rows), model=model, length=16)


def test_bad_options_are_named(lines, model, tmp_path):
    name = f"text:{lines}"
    for options, sentence in (
        ({"tasks": 4}, "tasks must be at most 3"),
        ({"length": 4}, "length must be a whole number of at least 8"),
        ({"length": 129}, "length must be at most 128"),
        ({"limit": 0}, "limit must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be"),
        ({"order": 1}, "has no option 'order'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            streams.open(name, **({"model": model} | options))
    with pytest.raises(FileNotFoundError, match="give a file of JSON lines"):
        streams.open(f"text:{tmp_path / 'absent.jsonl'}", model=model)
    with pytest.raises(ValueError, match="holds no row"):
        streams.open(f"text:{write(tmp_path / 'none.jsonl', [])}", model=model)
    with pytest.raises(FileNotFoundError, match="choose"):
        streams.open(name, model=tmp_path)


def test_texts_are_tokenised_once(lines, model, data, monkeypatch):
    made = []
    monkeypatch.setattr(
        tokens, "_made", lambda *given, make=tokens._made: made.append(1) or make(*given)
    )
    first = streams.text_lines(lines, model=model, length=16).fingerprint(0)
    assert (
        streams.text_lines(lines, model=model, length=16).fingerprint(0) == first and len(made) == 1
    )
    (file,) = (data / "tokens").iterdir()
    whole = file.read_bytes()
    for broken in (
        b"",
        whole[:-5],
        whole[:-1] + bytes([whole[-1] ^ 1]),
        whole[:8] + b"x" * (len(whole) - 8),
    ):
        file.write_bytes(broken)
        assert (
            streams.text_lines(lines, model=model, length=16).fingerprint(0) == first
            and file.read_bytes() == whole
        )
    assert len(made) == 5 and [entry.name for entry in (data / "tokens").iterdir()] == [file.name]
    streams.text_lines(lines, model=model, length=17)
    assert len(made) == 6 and len(list((data / "tokens").iterdir())) == 2


def test_a_directory_that_cannot_be_written_to_is_no_error(lines, model, data):
    (data / "tokens").write_text("a file where the directory should be")
    assert streams.text_lines(lines, model=model, length=16).tasks == 3


def test_the_tokenizer_of_the_user_stays_as_it_is(tmp_path):
    mine = tiny_tokenizer()
    mine.backend_tokenizer.enable_truncation(5)
    mine.backend_tokenizer.enable_padding(length=40)
    before = mine.backend_tokenizer.to_str()
    held = tokens.tokens([("very " * 20, None)], mine, 16, tmp_path, "mine")
    assert (
        held.lengths.tolist() == [16]
        and held.cut.tolist() == [True]
        and mine.backend_tokenizer.to_str() == before
    )


@pytest.mark.parametrize(("rows", "batch"), [(1000, 32), (100, 7), (33, 32), (5, 8), (64, 1)])
def test_batches_by_length_hold_every_row_once(rows, batch):
    generator = torch.Generator().manual_seed(rows)
    order, lengths = (
        torch.randperm(rows, generator=generator),
        torch.randint(5, 128, (rows,), generator=generator),
    )
    key = (0, 3, 1)
    found = streams.by_length(order, lengths, batch, key)
    assert torch.equal(found.sort().values, torch.arange(rows)) and torch.equal(
        found, streams.by_length(order, lengths, batch, key)
    )
    left = rows // batch * batch
    assert torch.equal(found[left:], order[left:])
    if rows == 1000:
        longest = [lengths[some].max() for some in found.split(batch)]
        padded, shuffled = sum(longest), sum(lengths[some].max() for some in order.split(batch))
        assert padded * batch < 1.12 * lengths.sum() and shuffled * batch > 1.6 * lengths.sum()
        assert sorted(longest) != longest and not torch.equal(
            found, streams.by_length(order, lengths, batch, (0, 3, 2))
        )


def small_published(data, monkeypatch, name, rows, orders):
    """A published set with other rows: what is known of it changes with it."""
    from dataclasses import replace
    from hashlib import sha256

    known, directory = text_files.PUBLISHED[name], data / name
    directory.mkdir()
    write(directory / known.rows, rows)
    (directory / known.orders).write_text("".join("\t".join(order) + "\n" for order in orders))
    sums = [
        sha256("".join(json.dumps(line, sort_keys=True) for line in content).encode()).hexdigest()
        for content in (rows, orders)
    ]
    monkeypatch.setitem(
        text_files.PUBLISHED, name, replace(known, rows_sha256=sums[0], orders_sha256=sums[1])
    )


def test_asc_joins_term_and_sentence(data, monkeypatch, model):
    kinds = {
        "Bing_phone": ["positive", "negative"],
        "Xu_camera": ["positive", "negative", "neutral"],
    }
    rows = [
        {
            "task": task,
            "split": split,
            "sentence": "the battery is good",
            "term": "battery",
            "polarity": polarity,
        }
        for task, polarities in kinds.items()
        for split in ("train", "dev", "test")
        for polarity in polarities
    ]
    small_published(
        data, monkeypatch, "asc", rows, [["Bing_phone", "Xu_camera"], ["Xu_camera", "Bing_phone"]]
    )
    stream = streams.open("asc", model=model, length=16, order=1)
    assert [(task.name, task.identity) for task in stream] == [
        ("camera", 1),
        ("phone", 0),
    ] and stream.classes == 3
    assert stream[0].validation.y.tolist() == [0, 1, 2] and stream[1].test.y.tolist() == [0, 1]
    assert (
        TOKENIZER.decode(stream[0].train.x[0][:9])
        == "[CLS] battery [SEP] the battery is good [SEP] [PAD]"
    )
    with pytest.raises(ValueError, match="published ones, 0 to 1, got 2"):
        streams.asc(model=model, order=2)
    changed = data / "asc" / "asc19.jsonl"
    write(changed, rows[1:])
    with pytest.raises(ValueError, match=r"asc19.jsonl is not the published file.*text:"):
        streams.asc(model=model)


def test_dsc_counts_positive_as_one(data, monkeypatch, model):
    rows = [
        {"task": "Pet_Supplies", "split": s, "text": "good box", "label": y}
        for s in ("train", "dev", "test")
        for y in (1, -1)
    ]
    small_published(data, monkeypatch, "dsc", rows, [["Pet_Supplies"]])
    stream = streams.open("dsc", model=model)
    assert (
        stream[0].name == "Pet Supplies"
        and stream[0].test.y.tolist() == [1, 0]
        and stream.shape == (128,)
    )


def post(group, n, date):
    head, quote = (
        f"From: someone\nNewsgroups: {group}",
        f"In article <{n}> someone writes:\n> is it?",
    )
    text = f"{head}\n\n{quote}\nthe moon is very {'good ' * (n % 3)}\n\n--\nme"
    return {"group": group, "id": str(n), "bydate": date, "text": text}


def test_newsgroups_are_stripped_and_divided(data, monkeypatch, model):
    groups = text_files.GROUPS
    rows = [
        post(group, n, ("train", "train", "test", None)[n % 4])
        for group in groups
        for n in range(40)
    ]
    rows += [
        {"group": groups[0], "id": "e", "bydate": "train", "text": "From: me\n\n> only a quote\n"}
    ]
    small_published(
        data,
        monkeypatch,
        "news20",
        rows,
        [[f"newsgroup_{k}" for k in (3, 1, 2, 0, 4, 5, 6, 7, 8, 9)]],
    )
    stream = streams.open("news20", model=model, length=32)
    assert (
        stream.tasks == 10
        and stream.classes == 2
        and stream.source["empty"] == 1
        and "1 texts are empty" in stream.source["note"]
    )
    assert [stream[k].name for k in (0, 3)] == [", ".join(groups[6:8]), ", ".join(groups[0:2])]
    task = stream[0]
    assert [len(split) for split in (task.train, task.validation, task.test)] == [
        36,
        4,
        20,
    ] and task.test.y.sum() == 10
    assert TOKENIZER.decode(task.train.x[0][: task.train.lengths[0]]).startswith(
        "[CLS] the moon is very"
    )
    whole = streams.open("news20", model=model, length=32, keep_headers=True, by_date=False)
    assert [len(split) for split in (whole[0].train, whole[0].validation, whole[0].test)] == [
        64,
        8,
        8,
    ]
    assert TOKENIZER.decode(whole[0].train.x[0]).startswith("[CLS] from : someone newsgroups :")
    assert (
        whole.source["empty"] == 0
        and whole.settings["keep_headers"]
        and streams.remake(whole.settings).shape == (32,)
    )


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("A: b\n\none\ntwo", "one\ntwo"),
        ("A: b\n\none\n\ntwo", "one"),
        ("A: b\n\none\n-----\ntwo", "one"),
        ("A: b\n\none\n> two\n | three\nfour", "one\nfour"),
        ("A: b\n\nIn article <1>, x wrote:\n> two\nJoe writes:\nI say: this", "I say: this"),
        ("A: b\n\n--\nme", "--\nme"),
        ("no blank line at all", ""),
    ],
)
def test_what_is_left_of_a_post(text, left):
    assert text_files.body(text) == left


def test_a_published_set_that_is_not_there_says_where_it_belongs(data, model):
    for name, known in text_files.PUBLISHED.items():
        with pytest.raises(
            OSError, match=rf"{name} is not in .*{known.rows} .*{known.orders} there"
        ):
            streams.open(name, model=model)
        with pytest.raises(OSError, match="is not in"):
            streams.sources.get(name)
        with pytest.raises(ValueError, match="holds texts"):
            streams.sources.load(name)
        assert not next(
            entry for entry in streams.sources.catalogue() if entry.name == name
        ).present
