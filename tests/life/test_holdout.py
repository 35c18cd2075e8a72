"""The share that is held out: decided by each row's content, with every label on both sides."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gateon.life.holdout import divided, held_out_words, hold_out
from gateon.life.keys import row_keys
from gateon.life.read import read
from gateon.life.understand import understand


def rows(count, labels=10):
    return [f"label{n % labels}" for n in range(count)], [b"%d" % n for n in range(count)]


def test_about_the_share_is_held_out_of_every_label():
    labels, keys = rows(10_000)
    parts = hold_out(labels, keys, share=0.2)
    assert len(parts["train"]) + len(parts["validation"]) == 10_000
    held = Counter(labels[row] for row in parts["validation"])
    # the count of a label is binomial: 200 of 1000, with a deviation of 12.6
    assert all(140 < count < 260 for count in held.values()) and len(held) == 10


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 40)), min_size=1, max_size=80),
    st.integers(0, 3),
)
def test_every_row_is_on_one_side_equal_rows_together_and_every_label_is_learned(pairs, seed):
    labels, keys = [label for label, _ in pairs], [b"%d" % key for _, key in pairs]
    parts = hold_out(labels, keys, 0.2, seed)
    assert sorted([*parts["train"], *parts["validation"]]) == list(range(len(pairs)))
    train, held = ({keys[row] for row in parts[part]} for part in ("train", "validation"))
    assert not train & held


def test_every_label_with_two_rows_is_on_both_sides():
    labels, keys = rows(200, labels=100)
    for seed in range(20):
        parts = hold_out(labels, keys, 0.1, seed)
        for part in parts.values():
            assert {labels[row] for row in part} == set(labels)


def test_a_label_of_one_row_is_learned_not_measured():
    parts = hold_out(["a", "b", "b"], [b"1", b"2", b"3"], 0.99)
    assert 0 in parts["train"] and len(parts["validation"]) == 1


def test_neither_order_nor_growth_moves_a_row():
    labels, keys = rows(2000)
    held = {keys[row] for row in hold_out(labels, keys)["validation"]}
    order = np.random.default_rng(0).permutation(2000)
    shuffled = hold_out([labels[n] for n in order], [keys[n] for n in order])
    assert {keys[order[row]] for row in shuffled["validation"]} == held
    more_labels, more_keys = rows(5000)
    grown = {more_keys[row] for row in hold_out(more_labels, more_keys)["validation"]}
    assert held == grown & set(keys)


def test_the_seed_holds_out_other_rows():
    labels, keys = rows(1000)
    first, second = (set(hold_out(labels, keys, 0.1, seed)["validation"]) for seed in (0, 1))
    assert first != second and hold_out(labels, keys, 0.1, 0)["validation"].tolist() == sorted(
        first
    )


def test_rows_are_held_out_where_there_is_no_part_for_it():
    texts, labels = [f"text {n}" for n in range(40)], ["a", "b"] * 20
    parts = divided(understand(read((texts, labels))))
    assert set(parts) == {"train", "validation"} and len(parts["validation"]) >= 2
    said = ["train"] * 30 + ["test"] * 10
    data = {"text": texts, "label": labels, "split": said, "task": ["p", "p", "q", "q"] * 10}
    parts = divided(understand(read(data)))
    assert parts["test"].tolist() == list(range(30, 40)) and max(parts["validation"]) < 30
    assert sorted([*parts["train"], *parts["validation"]]) == list(range(30))
    one = divided(understand(read(data)), task="q")
    assert {row % 4 for rows in one.values() for row in rows} == {2, 3}
    data["split"] = ["train", "train", "val", "test"] * 10
    assert divided(understand(read(data)))["validation"].tolist() == list(range(2, 40, 4))


def test_words_say_what_was_taken_and_what_it_is_worth():
    labels, keys = rows(1000)
    said = held_out_words(labels, hold_out(labels, keys))
    assert said.startswith("86 of 1,000 rows (9%) are held out") and "good to 11 points." in said
    labels, keys = rows(12, labels=3)
    assert "too few to say much" in held_out_words(labels, hold_out(labels, keys))
    alone = held_out_words(["a", "b"], hold_out(["a", "b"], [b"1", b"2"]))
    assert alone.startswith("No row could be held out")
    labels, keys = ["a", "a", "b"], [b"1", b"2", b"3"]
    assert "1 of 2 labels have too few rows" in held_out_words(labels, hold_out(labels, keys))


def test_keys_are_those_of_the_content(tmp_path):
    (tmp_path / "a.csv").write_text("size,sky,label\n1.0,blue,x\n2,,y\n")
    written = row_keys(read(tmp_path / "a.csv"), ["size", "sky"])
    frame = {"size": [2, 1], "sky": ["", "blue"]}
    assert row_keys(read(frame), ["size", "sky"]) == written[::-1], "1 is 1.0"
    alike = {"a": ["xwords", "x"], "b": ["y", "wordsy"]}  # equal if cells were only joined
    assert len({*row_keys(read(alike), ["a", "b"])}) == 2
    assert len({*row_keys(read({"a": [0.0, -0.0], "b": [None, np.nan]}), ["a", "b"])}) == 1


def test_keys_of_images_are_those_of_their_bytes(tmp_path):
    for name, content in (("a/1.png", b"one"), ("a/2.png", b"two"), ("b/3.png", b"one")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    first, second, third = row_keys(read(tmp_path), ["image"], files=True)
    assert first == third != second
    one, other = row_keys(read(np.arange(8).reshape(2, 2, 2)), ["x"])
    assert one != other
