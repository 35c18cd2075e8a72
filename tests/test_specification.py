"""Specifications: checked when made, the same from file and command line, and known by a key."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gateon.learners.isolated import Isolated
from gateon.methods.names import LANGUAGE, PRESETS
from gateon.runs.batches import steps_of
from gateon.runs.specification import METHODS, Specification
from rounding import assert_same

CHANGES = {
    "stream": "split-mnist",
    "tasks": 4,
    "seed": 1,
    "method": "p-gateon",
    "strength": 2.0,
    "memory": 50,
    "settings": "damping=0.5",
    "preset": "paper",
    "contexts": "inferred",
    "detector": "paper",
    "threshold": 1.2,
    "window": 2,
    "network": "cnn",
    "hidden": (30, 20),
    "channels": (3, 4),
    "depth": 10,
    "widen": 1,
    "heads": "per-task",
    "model": "bert-base-uncased",
    "pooling": "first",
    "steps": 9,
    "epochs": 4,
    "batch": 7,
    "lr": 0.5,
    "optimizer": "sgd",
    "keep_optimizer": True,
    "schedule": "constant",
    "warm_up": 0.2,
    "label_smoothing": 0.2,
    "class_weights": True,
    "norm": "none",
    "input_dropout": 0.1,
    "dropout": 0.2,
    "density": 0.5,
    "start": 0.5,
    "steepness": 10.0,
    "shared": "conv1,hidden*",
    "rescale": True,
    "rate": 0.1,
    "epsilon": 0.25,
    "floor": 0.01,
    "relevance": "activity",
    "apply": "step",
    "obstruct_head": True,
    "prefer": 2.0,
    "inherit": True,
    "gate_penalty": 0.1,
    "rotation_step": 15.0,
    "angles": (0.0, 30.0),
    "repeats": 2,
    "classes_per_task": 3,
    "order": 7,
    "length": 64,
    "limit": 100,
    "keep_headers": True,
    "random_parts": True,
    "augment": True,
    "data": "mnist-5k",
    "data_limit": 2.0,
    "evaluate": 3,
    "curves": 5,
    "part": "validation",
    "precision": "bf16",
    "device": "meta",
    "threads": 2,
}


def test_every_field_is_in_the_table_above():
    assert list(CHANGES) == [field.name for field in fields(Specification)]


@pytest.mark.parametrize("name", CHANGES)
def test_every_option_survives_the_file_and_changes_the_key(tmp_path, name):
    changed = replace(Specification("permuted-mnist"), **{name: CHANGES[name]})
    changed.save(tmp_path / "run.toml")
    assert Specification.load(tmp_path / "run.toml") == changed
    assert Specification.from_dict(changed.to_dict()) == changed
    assert (
        changed.key()
        == Specification.load(tmp_path / "run.toml").key()
        != Specification("permuted-mnist").key()
    )
    assert [file.name for file in tmp_path.iterdir()] == ["run.toml"]


@given(name=st.text(st.characters(exclude_categories=["Cs"]), max_size=20), lr=st.floats(1e-9, 1e3))
def test_any_path_and_number_survive_the_file(name, lr, tmp_path_factory):
    path = tmp_path_factory.mktemp("toml") / "run.toml"
    made = Specification(f"own:{name}", lr=lr)
    made.save(path)
    assert Specification.load(path) == made


def test_a_whole_number_stands_for_a_float(tmp_path):
    (tmp_path / "run.toml").write_text('stream = "rotated-mnist"\nrotation_step = 15\nlr = 1\n')
    loaded = Specification.load(tmp_path / "run.toml")
    assert loaded == Specification("rotated-mnist", rotation_step=15.0, lr=1.0)
    assert loaded.key() == Specification("rotated-mnist", rotation_step=15.0, lr=1.0).key()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sead = 3", "There is no option 'sead', perhaps 'seed': see gateon run --help."),
        ("zzz = 3", "There is no option 'zzz': see gateon run --help."),
        ('steps = "3"', "steps is a whole number, not '3'."),
        ("steps = 3.0", "steps is a whole number, not 3.0."),
        ("steps = true", "steps is a whole number, not True."),
        ("steps = 0", "steps is a whole number of at least 1, not 0."),
        ("tasks = 0", "tasks is a whole number of at least 1, not 0."),
        ("tasks = [3]", "tasks is a whole number, not [3]."),
        ("hidden = 30", "hidden is a list of numbers, not 30."),
        ('hidden = ["a"]', "hidden is a list of numbers, not ('a',)."),
        ("hidden = []", "hidden is one whole number of at least 1 for every hidden layer."),
        ("hidden = [0]", "hidden is one whole number of at least 1 for every hidden layer."),
        ('lr = "fast"', "lr is a finite number, not 'fast'."),
        ("lr = nan", "lr is a finite number, not nan."),
        ("lr = inf", "lr is a finite number, not inf."),
        ("lr = 0.0", "lr is a positive number, not 0.0."),
        ("density = true", "density is a finite number or a string, not True."),
        (
            'density = "half"',
            "density is a number, or patterns of site names such as first=0.04,*=0.004, not 'half'.",
        ),
        ("obstruct_head = 1", "obstruct_head is true or false, not 1."),
        ("data = 5", "data is a string, not 5."),
        (
            'method = "n-gateo"',
            f"There is no method 'n-gateo', perhaps 'n-gateon': choose {', '.join(METHODS)}.",
        ),
        ("method = 3", f"method is one of {', '.join(METHODS)}, not 3."),
        (
            'preset = "bset"',
            "There is no preset 'bset', perhaps 'best': choose best, paper, released.",
        ),
        (
            'evaluate = "lats"',
            "There is no evaluate 'lats', perhaps 'last': choose all, last, a whole number.",
        ),
        ("evaluate = 1.5", "evaluate is one of all, last or a whole number, not 1.5."),
        ("[optimizer]\nname = 1", "optimizer is one of adam, adamw, sgd, plain, not {'name': 1}."),
    ],
)
def test_a_wrong_line_in_a_file_is_a_sentence_that_names_file_and_option(tmp_path, line, sentence):
    path = tmp_path / "run.toml"
    path.write_text(f'stream = "permuted-mnist"\n{line}\n')
    with pytest.raises(ValueError) as refused:
        Specification.load(path)
    assert str(refused.value) == f"{path}: {sentence}"


def test_files_that_are_none_are_refused(tmp_path):
    path = tmp_path / "run.toml"
    with pytest.raises(ValueError, match=r"There is no file .*run.toml"):
        Specification.load(path)
    for content in (b"stream = ", b"\xff\xfe", b"a b c"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"run.toml is not TOML: "):
            Specification.load(path)
    path.write_text("steps = 3\n")
    with pytest.raises(
        ValueError, match=r"run.toml: The stream is missing: choose permuted-mnist, .* or text:PATH"
    ):
        Specification.load(path)


@pytest.mark.parametrize("method", [method for method in METHODS if method not in LANGUAGE])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_method_with_every_preset_learns_a_batch(method, preset):
    asked = Specification(
        "split-mnist", method=method, preset=preset, hidden=(12,), data="mnist-5k", steps=2
    )
    stream = asked.make_stream()
    learner = asked.make_learner(stream)
    before = [p.detach().clone() for p in learner.model.parameters()]
    x, y = stream[0].train.x[:20], stream[0].train.y[:20]
    assert learner.observe(x, y, context=0).loss > 0
    assert any(
        not torch.equal(a, b) for a, b in zip(before, learner.model.parameters(), strict=False)
    )
    assert isinstance(learner, Isolated) == (method == "isolated")
    assert learner.name == method


def test_options_of_the_method_go_before_the_preset():
    method = Specification(
        "split-mnist", preset="paper", density=0.75, steepness=10.0, apply="switch", seed=4
    ).make_method()
    assert (method.density, method.steepness, method.apply, method.seed) == (
        0.75,
        10.0,
        "switch",
        4,
    )
    assert (method.epsilon, method.obstruct_head) == (0.0, True)


def test_density_and_rate_may_go_by_patterns_of_sites_and_gates_may_be_shared():
    asked = Specification(
        "split-mnist", density="hidden1=0.5,*=0.25", rate="*=0.1", shared="hidden1, hidden2"
    )
    method = asked.make_method()
    assert (method.density, method.rate) == ({"hidden1": 0.5, "*": 0.25}, {"*": 0.1})
    assert (
        method.shared == ("hidden1", "hidden2")
        and Specification("split-mnist").make_method().shared == ()
    )


def test_the_seed_makes_the_network():
    def weights(seed):
        asked = Specification("split-mnist", hidden=(12,), data="mnist-5k", seed=seed)
        return asked.make_learner(asked.make_stream()).model.state_dict()

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_the_rotation_step_is_for_rotated_mnist():
    names = [
        task.name
        for task in Specification(
            "rotated-mnist", tasks=2, rotation_step=30.0, data="mnist-5k"
        ).make_stream()
    ]
    assert "30" in names[1]
    with pytest.raises(ValueError, match="rotation_step is for rotated-mnist, not for split-mnist"):
        Specification("split-mnist", rotation_step=30.0, data="mnist-5k").make_stream()


@pytest.mark.parametrize("name", ["cuda:9", "nowhere"])
def test_a_device_that_is_not_here_is_named(name):
    asked = Specification("split-mnist", hidden=(12,), data="mnist-5k", device=name)
    with pytest.raises(ValueError, match=f"There is no device '{name}' here: use cpu"):
        asked.make_learner(asked.make_stream())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"memory": 5}, "n-gateon has no memory"),
        ({"method": "p-gateon", "strength": 5.0}, "p-gateon has no strength"),
        ({"method": "joint", "memory": 5}, "joint has no memory"),
        ({"method": "zoo", "precision": "bf16"}, "zoo has no strength and no precision"),
        ({"method": "zoo", "contexts": "inferred"}, "zoo cannot infer contexts"),
        ({"method": "hat", "contexts": "inferred"}, "hat must be told where a task ends"),
        ({"method": "xdg+si", "contexts": "inferred"}, r"xdg\+si must be told where a task ends"),
        ({"threshold": 2.0}, "threshold and window are of the detector"),
        ({"preset": "released", "label_smoothing": 0.1}, "released has no label smoothing"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options, sentence):
    asked = Specification("split-mnist", hidden=(8,), data="mnist-5k", **options)
    with pytest.raises(ValueError, match=sentence):
        asked.make_learner(asked.make_stream())


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="seed is a whole number of at least 0, not -1"):
        Specification("split-mnist", seed=-1)


@pytest.mark.parametrize("method", ["replay", "joint", "zoo"])
def test_stored_samples_are_learned_with_the_same_loss_as_new_ones(method):
    asked = Specification(
        "split-mnist", hidden=(8,), data="mnist-5k", method=method, label_smoothing=0.3
    )
    learner = asked.make_learner(asked.make_stream())
    loss = learner.loss if method == "zoo" else learner.method.loss
    assert loss.keywords == {"label_smoothing": 0.3}


def test_methods_that_must_know_the_number_of_tasks_are_told():
    asked = Specification("split-mnist", hidden=(8,), data="mnist-5k", method="dendrites")
    assert asked.make_learner(asked.make_stream()).method.segments == 5


@pytest.mark.numeric
@pytest.mark.parametrize("method", ["xdg", "xdg+si"])
def test_norms_of_a_sub_network_keep_the_statistics_of_their_context(method):
    """With ContextNorms: those of a gated network are switched by its gates, and by nothing else."""
    asked = {
        "tasks": 3,
        "hidden": (20, 16),
        "data": "mnist-5k",
        "threads": 1,
        "optimizer": "sgd",
        "lr": 0.05,
    }

    def outputs(compact):
        specification = Specification("permuted-mnist", method=method, **asked)
        stream = specification.make_stream()
        learner = specification.make_learner(stream)
        learner.compact = compact
        for k in range(3):
            x, y = stream[k].train.x[:64], stream[k].train.y[:64]
            for _ in range(4):
                learner.observe(x, y, context=k)
                learner.predict(x, context=k)
            learner.end_task(k, [(x, y)])
        return torch.stack([learner.predict(stream[k].test.x[:16], context=k) for k in range(3)])

    assert_same(outputs(True), outputs(False))


def test_methods_know_the_passes_and_the_length_of_a_task_in_epochs():
    asked = Specification("split-mnist", data="mnist-5k", tasks=2, epochs=3, batch=100, hidden=(8,))
    stream = asked.make_stream()
    steps = steps_of(stream, 100, 1, 3)[0]
    assert replace(asked, method="rmn").make_method(stream).steps == steps
    assert replace(asked, method="hat").make_method(stream).steps == steps // 3


def test_a_zoo_takes_the_number_of_tasks_a_round():
    asked = Specification(
        "split-mnist", data="mnist-5k", tasks=2, hidden=(8,), method="zoo", settings="tasks=2"
    )
    assert asked.make_learner(asked.make_stream()).tasks == 2
    with pytest.raises(ValueError, match="whole number of tasks a round"):
        replace(asked, settings="rounds=2").make_learner(asked.make_stream())
