"""A living model: tasks arrive, go on and return; nothing is lost in between."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from life_tools import SMALL, clouds, small, write_csv  # noqa: F401

import gateon
from gateon.life import lesson, training
from gateon.life.measuring import more_tasks
from gateon.life.telling import Silent

HEIGHTS, COLOURS = ("low", "high"), ("red", "green", "blue")


class Hears(Silent):
    def __init__(self, named=None):
        self.said, self.named = [], named

    def say(self, words):
        self.said.append(words)

    def name(self, suggestion):
        return self.named or suggestion


@pytest.fixture
def two(request):
    """A model of two tasks."""
    model = gateon.LivingModel()
    model.learn(clouds(1, HEIGHTS), task="heights")
    model.learn(clouds(2, COLOURS), task="colours")
    return model


def accuracy(model, source, task=None):
    answers = model.predict(source[0], task=task)
    return float(np.mean([a == b for a, b in zip(answers.labels, source[1], strict=True)]))


def test_tasks_are_learned_and_answered_told_or_not(two):
    heights, colours = clouds(1, HEIGHTS, draw=1), clouds(2, COLOURS, draw=1)
    assert accuracy(two, heights, "heights") > 0.95 and accuracy(two, colours, "colours") > 0.95
    assert accuracy(two, heights) > 0.9 and accuracy(two, colours) > 0.9
    told = two.predict(heights[0], task="heights")
    assert set(told.tasks) == {"heights"} and (told.certainty == 1).all()
    untold = two.predict(colours[0])
    assert untold.tasks.count("colours") > 0.9 * len(untold)
    assert ((untold.probabilities >= 0) & (untold.probabilities <= 1)).all()
    assert untold.probabilities.mean() > 0.5 and next(iter(untold)).label in COLOURS


def test_what_is_far_from_every_task_is_said_to_be(two):
    far = two.predict(np.random.default_rng(9).normal(size=(50, 5)) * 0.05)
    near = two.predict(clouds(2, COLOURS, draw=2)[0])
    assert near.known.mean() > 0.85 > far.known.mean()


def test_a_saved_model_answers_the_same(two, tmp_path):
    two.save(tmp_path / "m")
    x = clouds(2, COLOURS, draw=1)[0]
    before, after = two.predict(x), gateon.load(tmp_path / "m").predict(x)
    assert before.labels == after.labels and before.tasks == after.tasks
    np.testing.assert_array_equal(before.probabilities, after.probabilities)
    assert [task.name for task in gateon.load(tmp_path / "m").tasks] == ["heights", "colours"]


def test_learning_leaves_other_tasks_as_they_were(two):
    first = two.tasks[0]
    two.learn(clouds(3, ("x", "y")), task="third")
    now = two.tasks[0]
    assert now.then == first.then and now.now >= first.then - 0.05
    assert now.learned == first.learned and two.tasks[2].parts[0].rows == (5, 6)


def test_new_labels_of_an_old_task_get_outputs_and_the_others_stay(two):
    more = clouds(5, ("tall", "tiny"))
    (told,) = two.learn(more, task="heights")
    assert told.added == ("tall", "tiny") and not told.new
    task = two.tasks[0]
    assert task.labels == ("high", "low", "tall", "tiny")
    assert [part.rows for part in task.parts] == [(0, 1), (5, 6)]
    assert accuracy(two, clouds(5, ("tall", "tiny"), draw=1), "heights") > 0.9
    assert accuracy(two, clouds(1, HEIGHTS, draw=1), "heights") > 0.9
    assert accuracy(two, clouds(2, COLOURS, draw=1), "colours") > 0.9


def test_rows_without_a_task_go_on_with_an_old_one_or_begin_a_new_one(two):
    hears = Hears(named="prices")
    (told,) = two.learn(clouds(1, HEIGHTS, draw=3), listener=hears)
    assert (told.task, told.new) == ("heights", False) and "go on with 'heights'" in told.decided
    (told,) = two.learn(clouds(7, ("cheap", "dear")), listener=hears)
    assert (told.task, told.new) == ("prices", True)
    (told,) = two.learn(clouds(8, ("b", "c")))
    assert told.task == "task-4" and "begin a new task" in told.decided
    assert any("certainty" in words for words in hears.said)


def test_the_same_labels_on_other_inputs_are_a_new_task(two):
    x, y = clouds(1, HEIGHTS, draw=3)
    (told,) = two.learn((x, [HEIGHTS[1 - HEIGHTS.index(name)] for name in y]))
    assert told.new and "do not fit" in told.decided


def test_a_column_of_tasks_names_them(tmp_path):
    x, y = clouds(1, HEIGHTS)
    rows = {"task": ["one", "two"] * 60, "x": x[:, 0], "z": x[:, 1], "label": y}
    lessons = gateon.LivingModel().learn(rows)
    assert [told.task for told in lessons] == ["one", "two"]


def test_nothing_of_the_training_rows_is_kept(two, tmp_path):
    two.save(tmp_path / "m")
    state = gateon.load(tmp_path / "m")._knowledge.state()
    assert 0 < len(state["held"]["heights"]["x"]) < 40
    two.learn(clouds(4, ("x", "y")), task="secret", keep=False)
    assert "secret" not in two._knowledge.state()["held"]
    assert two.tasks[2].then is not None and two.tasks[2].now is None
    two.learn(clouds(6, ("x", "y")), task="last")
    assert two.tasks[2].now is None and two.tasks[0].now is not None


def test_a_lesson_that_fails_changes_nothing(two, monkeypatch):
    x = clouds(2, COLOURS, draw=1)[0]
    before = two.predict(x)

    def fails(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(lesson, "_calibrate", fails)
    with pytest.raises(KeyboardInterrupt):
        two.learn(clouds(3, COLOURS), task="colours")
    with pytest.raises(KeyboardInterrupt):
        gateon.LivingModel().learn(clouds(3, COLOURS), task="colours")
    after = two.predict(x)
    np.testing.assert_array_equal(before.probabilities, after.probabilities)
    assert two.tasks[1].lessons == 1


def test_undo_and_history(two, tmp_path):
    two.save(tmp_path / "m")
    two.learn(clouds(3, ("x", "y")), task="third")
    two.save()
    assert two.undo() == (2, 1)
    assert [task.name for task in two.tasks] == ["heights", "colours"]
    whats = [event["what"] for event in two.history()]
    assert whats == ["learn", "learn", "undo"]
    assert [told["task"] for told in two.history()[0]["lessons"]] == ["heights", "colours"]
    card = (tmp_path / "m" / "README.md").read_text()
    assert "| heights | 2 |" in card and "third" not in card


def test_a_model_that_changed_elsewhere_is_not_overwritten(two, tmp_path):
    two.save(tmp_path / "m")
    other = gateon.load(tmp_path / "m")
    other.learn(clouds(3, ("x", "y")), task="third")
    other.save()
    two.learn(clouds(4, ("x", "y")), task="fourth")
    with pytest.raises(ValueError, match="another version"):
        two.save()
    assert len(gateon.load(tmp_path / "m").tasks) == 3


def test_the_seed_decides():
    first, again = (gateon.LivingModel(seed=3) for _ in range(2))
    for model in (first, again):
        model.learn(clouds(1, HEIGHTS), task="heights")
    x = clouds(1, HEIGHTS, draw=1)[0]
    np.testing.assert_array_equal(first.predict(x).probabilities, again.predict(x).probabilities)


def squares(size, colours, rows=60):
    """Pictures with a bright square in one of as many corners."""
    drawn = np.random.default_rng(size)
    x = drawn.integers(0, 60, size=(rows, size, size), dtype=np.uint8)
    for number in range(rows):
        corner = number % len(colours)
        at = slice(0, size // 2) if corner % 2 == 0 else slice(size // 2, size)
        x[number, at, : size // 2] += 180
    return x, [colours[n % len(colours)] for n in range(rows)]


def test_images_are_learned():
    model = gateon.LivingModel()
    (told,) = model.learn(squares(30, ("up", "down")), task="corners")
    assert told.accuracy == 1.0 and model.about()["kind"] == "images"
    assert accuracy(model, squares(31, ("up", "down"))) > 0.95


def test_texts_are_learned_with_a_language_model_on_the_spot(tmp_path):
    pytest.importorskip("transformers")
    good, bad = ["great fine nice strong", "good great quiet price"], ["bad poor weak", "terrible"]
    rows = [(f"{word} {n}", "good") for n in range(15) for word in good]
    rows += [(f"{word} {n}", "bad") for n in range(15) for word in bad]
    model = gateon.LivingModel(model="tiny")
    model.learn(rows, task="reviews")
    model.save(tmp_path / "m")
    loaded = gateon.load(tmp_path / "m")
    assert loaded.predict(["great fine nice strong", "terrible"]).labels == ["good", "bad"]
    assert not any(
        "terrible" in file.read_bytes().decode("latin1")
        for file in (tmp_path / "m" / "versions").iterdir()
    )
    loaded._knowledge.front.digest = "other weights"
    loaded._knowledge.front._sentences = None
    with pytest.raises(ValueError, match="other weights"):
        loaded.predict(["great"])


def test_pairs_of_texts_are_read_together():
    pytest.importorskip("transformers")
    rows = [
        {"premise": "great fine", "hypothesis": word, "label": name}
        for word, name in (("good great", "same"), ("terrible bad", "other"))
        for _ in range(20)
    ]
    for number, row in enumerate(rows):
        row["premise"] += f" {number}"
    model = gateon.LivingModel(model="tiny")
    model.learn(rows, task="pairs")
    asked = [{"premise": "great fine 3", "hypothesis": "terrible bad"}, rows[0]]
    assert model.predict(asked).labels == ["other", "same"]


def test_learning_ends_early_and_keeps_the_best(monkeypatch):
    x, y = clouds(1, HEIGHTS, rows=200, noise=3.0)
    monkeypatch.setattr(training, "FEWEST", 1)
    monkeypatch.setitem(
        gateon.life.settings.DEFAULTS,
        "features",
        gateon.life.settings.replace(SMALL["features"], epochs=60),
    )
    courses = []
    monkeypatch.setattr(
        lesson, "train", lambda *a: courses.append(training.train(*a)) or courses[0]
    )
    model = gateon.LivingModel()
    (told,) = model.learn((x, y), task="noise")
    assert told.epochs < 60
    held = model._knowledge.held["noise"]
    logits = model._knowledge.network.logits(held.x, 0, model.tasks[0].parts[0].rows)
    found = torch.nn.functional.cross_entropy(logits, held.row).item()
    assert found == pytest.approx(courses[0].loss, rel=1e-5)


def test_room_left_and_how_many_more_will_fit(two):
    assert all(0 <= share < 1 for share in two.about()["room"].values())
    assert more_tasks({"a": 1.0}, two.tasks) is None and more_tasks({"a": 0.01}, two.tasks) == 0
    assert more_tasks({"a": 0.5, "b": 0.9}, two.tasks) == 6


BAD = {
    "no such task": (lambda m: m.predict([[1, 2, 3, 4, 5]], task="prices"), "no task 'prices'"),
    "one row": (lambda m: m.learn(([[1, 2, 3, 4, 5]], ["a"]), task="t"), "at least 2"),
    "no label": (lambda m: m.learn({"q": [1.0, 2.0], "r": [1.0, 2.0]}, task="t"), "--label"),
    "another kind": (
        lambda m: m.learn([("one text here", "a"), ("another text there", "b")], task="t"),
        "none of the columns that the model learned",
    ),
    "other columns": (
        lambda m: m.predict({"one": [1.0, 2.0], "other": [2.0, 1.0]}),
        "none of the columns",
    ),
    "infinite": (
        lambda m: m.learn((np.full((4, 5), np.inf), ["a", "b"] * 2), task="t"),
        "infinit",
    ),
    "no name": (lambda m: m.learn(clouds(1, HEIGHTS), task=" "), "needs a name"),
    "no path": (lambda m: m.save(), "no directory yet"),
    "never saved": (lambda m: m.undo(), "never saved"),
    "no epochs": (lambda m: m.learn(clouds(1, HEIGHTS), task="t", epochs=0), "epochs must be"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_changes_nothing(two, name):
    call, words = BAD[name]
    before = [task.state() for task in two.tasks]
    with pytest.raises(ValueError, match=words):
        call(two)
    assert [task.state() for task in two.tasks] == before


def test_what_has_learned_nothing_says_so(tmp_path):
    with pytest.raises(ValueError, match="learned nothing yet"):
        gateon.LivingModel().predict([[1.0]])
    with pytest.raises(ValueError, match="no living model"):
        gateon.load(tmp_path)
    with pytest.raises(ValueError, match="A language model reads texts"):
        gateon.LivingModel(model="minilm").learn(clouds(1, HEIGHTS), task="t")


def test_the_directory_of_a_run_is_opened_as_one(tmp_path):
    (tmp_path / "checkpoint-0001-000020.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="checkpoint"):
        gateon.load(tmp_path)
    with pytest.raises(ValueError, match="no living model"):
        gateon.load(tmp_path / "nowhere")


def test_a_table_learned_from_a_file_is_named_in_the_history(tmp_path):
    file = write_csv(tmp_path / "january.csv", clouds(1, HEIGHTS))
    model = gateon.LivingModel()
    model.learn(file, task="heights")
    model.save(tmp_path / "m")
    (told,) = model.history()[0]["lessons"]
    assert told["source"] == str(file) and len(told["sha256"]) == 64
    assert told["settings"]["seed"] == 0 and told["accuracy"] == model.tasks[0].then
