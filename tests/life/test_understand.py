"""The rules by which columns are understood, one by one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gateon.life.columns import LABEL_NAMES, PAIRS, SPLIT_NAMES, TASK_NAMES, TEXT_NAMES
from gateon.life.read import read
from gateon.life.understand import understand

TEXTS = ["my card was stolen", "where is my bag", "a new card please", "my bag is lost"]
LABELS = ["card", "bag", "card", "bag"]


def understood(columns, **named):
    return understand(read(columns), **named)


@pytest.mark.parametrize("name", LABEL_NAMES)
def test_labels_are_found_by_name(name):
    found = understood({"text": TEXTS, "extra": LABELS[::-1], name.upper(): LABELS})
    assert found.label == name.upper() and found.labels == ["bag", "card"]
    assert f"label: column {name.upper()!r}, by its name." in found.reasons
    assert "Not used: column 'extra'." in found.reasons


@pytest.mark.parametrize("name", TEXT_NAMES)
def test_texts_are_found_by_name_however_short(name):
    found = understood({"extra": TEXTS, name: ["hi", "bye", "hi you", "so"], "label": LABELS})
    assert found.kind == "texts" and found.inputs == (name,)


@pytest.mark.parametrize(("first", "second"), PAIRS.items())
def test_pairs_of_texts_are_found_by_name(first, second):
    found = understood({second: TEXTS[::-1], first: TEXTS, "label": LABELS})
    assert found.inputs == (first, second)


@pytest.mark.parametrize("name", SPLIT_NAMES)
def test_parts_are_found_by_name_and_words(name):
    parts = ["train", "Dev", "training", "test"]
    found = understood({"text": TEXTS, "label": LABELS, name: parts})
    assert {part: rows.tolist() for part, rows in found.parts.items()} == {
        "train": [0, 2],
        "validation": [1],
        "test": [3],
    }
    numbered = understood({"text": TEXTS, "label": LABELS, name: [1, 2, 3, 4]})
    assert numbered.split is None and len(numbered.parts["train"]) == 4


@pytest.mark.parametrize("name", TASK_NAMES)
def test_tasks_are_found_by_name_in_the_order_they_appear(name):
    found = understood({"text": TEXTS, "label": LABELS, name: ["z", "a", "z", "a"]})
    assert {task: rows.tolist() for task, rows in found.tasks.items()} == {
        "z": [0, 2],
        "a": [1, 3],
    }
    assert list(found.tasks) == ["z", "a"]


def test_a_text_called_task_is_a_text():
    found = understood({"task": TEXTS, "label": LABELS})
    assert found.inputs == ("task",) and not found.tasks


def test_prose_is_found_whatever_it_is_called():
    found = understood({"notiz": TEXTS, "farbe": ["rot", "blau"] * 2, "label": LABELS})
    assert found.inputs == ("notiz",)
    assert "text: column 'notiz', the only one that reads like prose." in found.reasons


def test_the_only_column_left_is_the_label():
    found = understood({"id": [1, 2, 3, 4], "message": TEXTS, "Grund": LABELS})
    assert found.label == "Grund" and "the only one left" in " ".join(found.reasons)


def test_names_with_blanks_and_hyphens_are_found():
    found = understood({"Sentence A": TEXTS, "sentence-b": TEXTS[::-1], "Label ": LABELS})
    assert found.inputs == ("Sentence A", "sentence-b") and found.label == "Label "


def test_what_is_named_comes_before_what_is_guessed():
    columns = {"text": TEXTS, "message": TEXTS[::-1], "label": LABELS, "intent": LABELS[::-1]}
    found = understood(columns, text="message", label="intent", second="text")
    assert (found.inputs, found.label) == (("message", "text"), "intent")
    assert found.names.tolist() == LABELS[::-1]


def test_features_are_all_that_is_left():
    rows = 24
    columns = {
        "id": list(range(rows)),
        "customer_id": [f"c{n}" for n in range(rows)],
        "heat": [n / 2 for n in range(rows)],
        "code": [str(n) for n in range(rows)],
        "sky": ["blue", "grey", None] * (rows // 3),
        "name": [f"name{n}" for n in range(rows)],
        "label": ["hot", "cold"] * (rows // 2),
    }
    found = understood(columns)
    assert found.kind == "features" and found.inputs == ("heat", "code", "sky")
    assert "Column 'id' is left out: it numbers the rows." in found.reasons
    assert any("'name' has 24 different words" in warning for warning in found.warnings)


def test_numbers_called_like_texts_are_features(tmp_path):
    """The cells of a CSV file are words until they are read as numbers."""
    (tmp_path / "a.csv").write_text("x,y,review,label\n1.0,2.5,4,near\n7,8.5,5,far\n")
    found = understand(read(tmp_path / "a.csv"))
    assert found.kind == "features" and found.inputs == ("x", "y", "review")


def test_pixels_are_images():
    found = understood((np.zeros((4, 9, 9), np.uint8), LABELS))
    assert found.kind == "images" and found.inputs == ("x",)


def test_labels_and_tasks_are_names():
    found = understood({"x": [1.0, 2.0, 3.0], "label": [0, 1, 0], "task": [7, 7, 8]})
    assert found.labels == ["0", "1"] and list(found.tasks) == ["7", "8"]
    found = understood({"x": [1.0, 2.0, 3.0], "label": [True, False, True]})
    assert found.labels == ["False", "True"]
    found = understood({"text": TEXTS, "label": [" card", "bag ", "card", "bag"]})
    assert found.labels == ["bag", "card"], "blanks around a name are no part of it"
    found = understood({"text": TEXTS, "label": ["cafe\u0301", "caf\u00e9", "a", "a"]})
    assert found.labels == ["a", "caf\u00e9"], "one name, however it is composed"


def test_rows_without_label_or_text_are_left_out_of_every_part():
    found = understood({"text": [*TEXTS, "  ", "so"], "label": [*LABELS, "card", None]})
    assert found.parts["train"].tolist() == [0, 1, 2, 3]
    assert found.names[5] is None


def test_data_to_predict_need_no_label_and_lose_no_row():
    found = understood({"text": [*TEXTS, ""]}, labelled=False)
    assert found.label is None and found.parts["train"].tolist() == [0, 1, 2, 3, 4]
    assert found.labels == []


def test_later_data_are_read_as_those_before():
    before = understood({"note": TEXTS, "text": TEXTS, "why": LABELS}, text="note", label="why")
    kept = json.loads(json.dumps(before.columns))
    later = understood({"text": TEXTS, "note": TEXTS[::-1], "why": LABELS, "y": LABELS}, like=kept)
    assert later.inputs == ("note",) and later.label == "why"
    assert "text: column 'note', as before." in later.reasons
    asked = understood(TEXTS, like=kept, labelled=False)
    assert asked.inputs == ("text",), "a list has other names"


def test_a_feature_called_class_is_not_taken_for_the_label_at_prediction():
    columns = {"class": [1, 2, 3, 1], "fare": [7.5, 70, 8, 9], "survived": ["no", "yes"] * 2}
    before = understood(columns, label="survived")
    assert before.inputs == ("class", "fare")
    del columns["survived"]
    later = understood(columns, like=before.columns, labelled=False)
    assert later.inputs == ("class", "fare") and later.label is None
    with pytest.raises(ValueError, match="say which is the label with --label"):
        understood(columns, like=before.columns)
    new = understood(columns | {"target": [1, 2, 1, 2]}, like=before.columns, labelled=False)
    assert new.label is None, "a label that was not learned cannot be compared with"


def test_the_same_table_is_always_understood_the_same_way():
    columns = {"text": TEXTS, "label": LABELS, "task": ["b", "a"] * 2}
    first, second = understood(columns), understood(columns)
    assert first.columns == second.columns and first.reasons == second.reasons
    assert first.warnings == second.warnings
