"""Specifications: resolved when made, the same from file and command line, and known by a key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Literal, get_args, get_origin

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gateon.learners.isolated import Isolated
from gateon.methods.registry import METHODS, PRESETS, method_options, needs
from gateon.networks.section import KINDS
from gateon.options.kinds import Within, members
from gateon.runs import identity
from gateon.runs.batches import steps_of
from gateon.runs.resolve import SECTIONS, options_for
from gateon.runs.specification import Specification
from gateon.streams.registry import STREAMS
from rounding import assert_same
from specified import specified

SAMPLES = Path(__file__).parent / "samples"
IMAGES = [name for name in METHODS if "language" not in needs(name)]
SMALL = {"stream.name": "split-mnist", "stream.data": "mnist-5k", "network.hidden": (8,)}


def other_value(kind, value):
    """A value of that kind that is not this one."""
    for member in members(kind):
        base = get_args(member)[0] if get_origin(member) is Annotated else member
        within = get_args(member)[1] if get_origin(member) is Annotated else Within()
        if get_origin(base) is Literal:
            found = next((word for word in get_args(base) if word != value), None)
        elif base is bool:
            found = not value
        elif base is int:
            found = 3 if isinstance(value, str) else (value or 0) + 3
        elif base is float:
            found = 0.5 if within.below else 0.125 if value != 0.125 else 0.25
        elif get_origin(base) is tuple:
            found = [other_value(get_args(base)[0], None)] * 2
        elif get_origin(base) is Mapping:
            found = {"first*": other_value(get_args(base)[1], None)}
        elif base is NoneType:
            found = None if value is not None else ...
        else:
            found = f"other {value}"
        if found not in (None, ..., value):
            return found
    raise AssertionError(f"There is no other value than {value} of {kind}.")


def every_option():
    """A specification and one of its options, each once, for all streams, methods and networks."""
    chosen = [(stream, "n-gateon", None) for stream in (*STREAMS, "own:data", "text:data")]
    chosen += [("split-mnist" if name in IMAGES else "asc", name, None) for name in METHODS]
    chosen += [("split-mnist", "finetune", kind) for kind in KINDS if kind != "language"]
    seen = set()
    for stream, method, kind in chosen:
        base = {"stream.name": stream, "method.name": method}
        base |= {} if kind is None else {"network.kind": kind}
        for section, options in options_for(stream, method, kind).items():
            for option in options.values():
                name = f"{section}.{option.name}"
                of = {"stream": stream, "network": kind or stream, "method": method}.get(section)
                if (of, name) not in seen and name not in base and name != "network.kind":
                    seen.add((of, name))
                    yield pytest.param(base, name, option.kind, id=f"{stream} {method} {name}")


@pytest.mark.parametrize(("base", "name", "kind"), list(every_option()))
def test_every_option_survives_the_file_and_changes_the_key(tmp_path, base, name, kind):
    if name.startswith("detector.") and name != "detector.contexts":
        base = base | {"detector.contexts": "inferred"}
    plain = Specification.from_options(base)
    if name == "network.heads" and plain.network.heads == "per-task":
        return  # the method has them
    changed = plain.with_options({name: other_value(kind, plain[name])})
    changed.save(tmp_path / "run.toml")
    assert Specification.load(tmp_path / "run.toml") == changed
    assert Specification.from_options(changed.to_dict()) == changed
    assert Specification.from_options(changed.flat()) == changed
    assert Specification.from_options(changed.chosen()) == changed
    assert changed[name] != plain[name]
    # How much may be unpacked decides no result.
    assert (changed.key() == plain.key()) == (name == "stream.data_limit")
    assert [file.name for file in tmp_path.iterdir()] == ["run.toml"]


def test_the_key_changes_with_the_numerics(monkeypatch):
    asked = Specification.from_options({"stream.name": "split-mnist"})
    now = asked.key()
    assert identity.key_of(asked.to_dict(), identity.NUMERICS + 1) != now
    assert now == Specification.from_options({"stream.name": "split-mnist"}).key()


@settings(deadline=None)
@given(name=st.text(st.characters(exclude_categories=["Cs"]), max_size=20), lr=st.floats(1e-9, 1e3))
def test_any_path_and_number_survive_the_file(name, lr, tmp_path_factory):
    path = tmp_path_factory.mktemp("toml") / "run.toml"
    made = Specification.from_options({"stream.name": f"own:{name}", "training.lr": lr})
    made.save(path)
    assert Specification.load(path) == made


def test_what_is_none_and_not_by_default_survives_the_file(tmp_path):
    made = specified("split-mnist", method="ewc", samples=None)
    made.save(tmp_path / "run.toml")
    assert Specification.load(tmp_path / "run.toml")["method.samples"] is None


def test_a_whole_number_stands_for_a_float(tmp_path):
    text = '[stream]\nname = "rotated-mnist"\nstep = 15\n[training]\nlr = 1\n'
    (tmp_path / "run.toml").write_text(text)
    loaded = Specification.load(tmp_path / "run.toml")
    asked = {"stream.name": "rotated-mnist", "stream.step": 15.0, "training.lr": 1.0}
    assert loaded == Specification.from_options(asked)
    assert loaded.key() == Specification.from_options(asked).key()


# Old files


def test_an_old_flat_file_is_read():
    assert Specification.load(SAMPLES / "specification-flat.toml").chosen() == {
        "stream.name": "rotated-mnist",
        "method.name": "xdg+si",
        "method.preset": "paper",
        "training.steps": 9,
        "seed": 3,
        "stream.repeats": 2,
        "stream.tasks": 4,
        "stream.step": 15.0,
        "stream.data": "mnist-5k",
        "network.hidden": [30, 20],
        "network.heads": "per-task",
        "network.input_dropout": 0.1,
        "training.batch": 7,
        "training.lr": 1.0,
        "training.optimizer": "sgd",
        "training.keep_optimizer": True,
        "training.threads": 1,
        "method.off": 0.6,
        "method.strength": 2.5,
        "method.damping": 0.01,
        "measuring.evaluate": "last",
        "measuring.part": "validation",
    }


def test_an_old_flat_file_of_texts_is_read_with_the_defaults_of_then():
    assert Specification.load(SAMPLES / "specification-flat-text.toml").chosen() == {
        "stream.name": "news20",
        "method.name": "n-gateon",
        "network.model": "bert-base-uncased",
        "training.epochs": 2,
        "detector.contexts": "inferred",
        "detector.preset": "paper",
        "stream.order": 3,
        "stream.keep_headers": True,
        "stream.by_date": False,
        "training.batch": 16,
        "training.lr": 5e-3,
        "training.optimizer": "adam",
        "method.rate": {"layer0*": 0.1, "*": 0.05},
        "detector.threshold": 3.5,
    }


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sead = 3", "There is no option 'sead', perhaps 'seed': see gateon run --help."),
        (
            'settings = "damping"',
            "settings must be names with numbers, such as damping=0.01,off=0.6, got 'damping'.",
        ),
        (
            'settings = "damping=1"',
            "The method n-gateon has no option --method.damping: its options are "
            f"{', '.join(method_options('n-gateon'))}.",
        ),
        (
            "strength = 5.0",
            "The method n-gateon has no option --method.strength, perhaps 'start': its options are "
            f"{', '.join(method_options('n-gateon'))}.",
        ),
    ],
)
def test_a_wrong_line_in_an_old_file_is_refused_in_the_terms_of_today(tmp_path, line, sentence):
    path = tmp_path / "run.toml"
    path.write_text(f'stream = "permuted-mnist"\n{line}\n')
    with pytest.raises(ValueError) as refused:
        Specification.load(path)
    assert str(refused.value) == f"{path}: {sentence}"


# What is refused


@pytest.mark.parametrize(
    ("section", "line", "sentence"),
    [
        ("training", "stepps = 3", "There is no option --training.stepps, perhaps 'steps': "),
        ("training", 'steps = "3"', "--training.steps must be a whole number, got '3'."),
        ("training", "steps = 3.0", "--training.steps must be a whole number, got 3.0."),
        ("training", "steps = true", "--training.steps must be a whole number, got True."),
        ("training", "steps = 0", "--training.steps must be at least 1, got 0."),
        ("training", "steps = 1000000001", "--training.steps must be at most 1000000000, got "),
        ("training", "threads = 5000", "--training.threads must be at most 1024, got 5000."),
        ("stream", "tasks = 0", "--stream.tasks must be at least 1, got 0."),
        ("stream", "tasks = [3]", "--stream.tasks must be a whole number, got [3]."),
        ("stream", "data = 5", "--stream.data must be a string, got 5."),
        ("network", "hidden = 30", "--network.hidden must be a list, got 30."),
        ("network", 'hidden = ["a"]', "--network.hidden must be a list, got ['a']."),
        ("network", "hidden = []", "--network.hidden must have at least one value."),
        ("network", "hidden = [0]", "--network.hidden must be at least 1, got 0."),
        ("network", "dropout = 1.0", "--network.dropout must be below 1, got 1.0."),
        (
            "network",
            "input_dropout = -0.1",
            "--network.input-dropout must be at least 0, got -0.1.",
        ),
        ("network", "depth = 16", "A network mlp has no option --network.depth: its options are "),
        ("training", 'lr = "fast"', "--training.lr must be a finite number, got 'fast'."),
        ("training", "lr = nan", "--training.lr must be a finite number, got nan."),
        ("training", "lr = inf", "--training.lr must be a finite number, got inf."),
        ("training", "lr = 0.0", "--training.lr must be above 0, got 0.0."),
        ("method", "density = true", "--method.density must be a finite number or numbers by "),
        ("method", 'density = "half"', "--method.density must be a finite number or numbers by "),
        ("method", "obstruct_head = 1", "--method.obstruct-head must be true or false, got 1."),
        ("method", 'name = "n-gateo"', "There is no method 'n-gateo', perhaps 'n-gateon': choose "),
        ("method", "name = 3", "--method.name must be one of n-gateon, "),
        (
            "method",
            'preset = "bset"',
            "There is no preset 'bset', perhaps 'best': choose room, best, ",
        ),
        ("method", "strength = 5.0", "The method n-gateon has no option --method.strength, "),
        ("measuring", 'evaluate = "lats"', "There is no evaluate 'lats', perhaps 'last': choose "),
        ("measuring", "evaluate = 1.5", "--measuring.evaluate must be one of all, last or a whole"),
        ("detector", "window = 3", "--detector.window does nothing where contexts are known: "),
    ],
)
def test_a_wrong_line_in_a_file_is_a_sentence_that_names_file_and_option(
    tmp_path, section, line, sentence
):
    path = tmp_path / "run.toml"
    sections = {"stream": 'name = "permuted-mnist"'} | {section: line}
    if section == "stream":
        sections["stream"] = f'name = "permuted-mnist"\n{line}'
    path.write_text("".join(f"[{name}]\n{text}\n" for name, text in sections.items()))
    with pytest.raises(ValueError) as refused:
        Specification.load(path)
    assert str(refused.value).startswith(f"{path}: {sentence}")
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)


def test_a_section_or_option_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"There is no option 'lr', perhaps 'training.lr'"):
        Specification.from_options({"stream.name": "split-mnist", "lr": 1.0})
    with pytest.raises(ValueError, match=r"There is no option 'traning.lr', perhaps 'training.lr'"):
        Specification.from_options({"stream.name": "split-mnist", "traning.lr": 1.0})
    with pytest.raises(ValueError, match=r"\[training\] must be a section of options, got 3"):
        Specification.from_options({"stream.name": "split-mnist", "training": 3})


def test_files_that_are_none_are_refused(tmp_path):
    path = tmp_path / "run.toml"
    with pytest.raises(ValueError, match=r"There is no file .*run.toml"):
        Specification.load(path)
    for content in (b"stream = ", b"\xff\xfe", b"a b c"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"run.toml is not TOML: "):
            Specification.load(path)
    path.write_text("seed = 3\n")
    with pytest.raises(
        ValueError, match=r"run.toml: The stream is missing: choose permuted-mnist, .* or text:PATH"
    ):
        Specification.load(path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method.memory": 5}, "n-gateon has no option --method.memory"),
        ({"method.name": "p-gateon", "method.strength": 5.0}, "p-gateon has no option"),
        ({"method.name": "joint", "method.memory": 5}, "joint has no option --method.memory"),
        ({"method.name": "ewc", "method.density": 0.5}, "ewc has no option --method.density"),
        ({"method.name": "xdg+si", "method.beta": 1.0}, r"xdg\+si has no option --method.beta"),
        ({"method.name": "zoo", "training.precision": "bf16"}, "zoo needs known contexts"),
        ({"method.name": "zoo", "detector.contexts": "inferred"}, "zoo needs known contexts"),
        ({"method.name": "zoo", "method.tasks": 2.5}, "--method.tasks must be a whole number"),
        ({"method.name": "ogd", "training.optimizer": "adam"}, "ogd is for plain gradient descent"),
        ({"method.name": "hat", "detector.contexts": "inferred"}, "hat must be told where a task"),
        ({"method.name": "xdg+si", "detector.contexts": "inferred"}, r"xdg\+si must be told where"),
        ({"method.name": "ctr"}, "ctr needs a language model, and split-mnist has no texts"),
        ({"detector.threshold": 2.0}, "--detector.threshold does nothing where contexts are known"),
        (
            {"method.preset": "released", "training.label_smoothing": 0.1},
            "released has no label smoothing",
        ),
        ({"training.steps": 5, "training.epochs": 1}, "either --training.steps or --training.ep"),
        ({"network.kind": "language"}, "A language model needs texts, and split-mnist has none"),
        (
            {"network.kind": "cnn", "network.dropout": 0.5},
            "A network cnn has no option --network.d",
        ),
        ({"stream.step": 30.0}, "split-mnist has no option --stream.step: its options are repeats"),
        ({"seed": -1}, "--seed must be at least 0, got -1"),
        ({"seed": 1 << 63}, "--seed must be at most 9223372036854775807, got 9223372036854775808"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        asked = Specification.from_options(SMALL | options)
        asked.make_learner(asked.make_stream())


# What is resolved


@pytest.mark.parametrize("stream", STREAMS)
def test_a_resolved_specification_has_true_values(stream):
    """None is left only where it means something: no limit, all, not at all, what is at hand."""
    asked = Specification.from_options({"stream.name": stream})
    left = {name for name, value in asked.flat().items() if value is None}
    assert left <= {
        *("stream.tasks", "stream.data", "stream.validation", "stream.limit"),
        *("stream.step", "stream.angles", "training.steps", "training.epochs", "training.threads"),
        *("measuring.curves", "method.sites", "method.first_rate", "method.tasks"),
        "method.density",
    }
    assert list(asked.to_dict()) == ["seed", *SECTIONS]


def test_options_follow_another_method_preset_stream_and_network():
    asked = Specification.from_options(
        {"stream.name": "permuted-mnist", "network.hidden": (9,), "method.density": 0.5}
    )
    paper = asked.with_options({"method.preset": "paper"})
    assert (paper.training.schedule, paper["method.epsilon"]) == ("constant", 0.0)
    assert paper.network.hidden == (9,) and paper["method.density"] == 0.5
    ewc = asked.with_options({"method.name": "ewc"})
    assert ewc.get("method.density") is None and ewc.network.hidden == (9,)
    photographs = asked.with_options({"stream.name": "split-cifar10"})
    assert photographs.network.kind == "wide-resnet"
    assert photographs["method.rate"] == {"first": 0.04, "*": 0.004}
    assert asked.with_options({"training.epochs": 2}).training.steps is None
    inferred = asked.with_options({"detector.contexts": "inferred", "detector.window": 5})
    assert inferred.with_options({"detector.contexts": "known"}) == asked


@pytest.mark.parametrize("method", IMAGES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_method_with_every_preset_learns_a_batch(method, preset):
    asked = Specification.from_options(
        SMALL | {"method.name": method, "method.preset": preset, "training.steps": 2}
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
    method = specified(
        "split-mnist", preset="paper", density=0.75, steepness=10.0, apply="switch", seed=4
    ).make_method()
    assert (method.density, method.steepness, method.apply) == (0.75, 10.0, "switch")
    assert (method.epsilon, method.obstruct_head, method.seed) == (0.0, True, 4)


def test_density_and_rate_may_go_by_patterns_of_sites_and_gates_may_be_shared():
    method = specified(
        "split-mnist", density="hidden1=0.5,*=0.25", rate="*=0.1", shared="hidden1, hidden2"
    ).make_method()
    assert (method.density, method.rate) == ({"hidden1": 0.5, "*": 0.25}, {"*": 0.1})
    assert method.shared == ("hidden1", "hidden2")
    assert specified("split-mnist").make_method().shared == ()


def test_the_seed_makes_the_network():
    def weights(seed):
        asked = Specification.from_options(SMALL | {"seed": seed})
        return asked.make_learner(asked.make_stream()).model.state_dict()

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_the_step_of_rotations_is_that_of_the_tasks():
    asked = specified("rotated-mnist", tasks=2, step=30.0, data="mnist-5k")
    assert "30" in [task.name for task in asked.make_stream()][1]


@pytest.mark.parametrize("name", ["cuda:9", "nowhere"])
def test_a_device_that_is_not_here_is_named(name):
    asked = Specification.from_options(SMALL | {"training.device": name})
    with pytest.raises(ValueError, match=f"There is no device '{name}' here: use cpu"):
        asked.make_learner(asked.make_stream())


@pytest.mark.parametrize("method", ["replay", "joint", "zoo"])
def test_stored_samples_are_learned_with_the_same_loss_as_new_ones(method):
    asked = Specification.from_options(
        SMALL | {"method.name": method, "training.label_smoothing": 0.3}
    )
    learner = asked.make_learner(asked.make_stream())
    loss = learner.loss if method == "zoo" else learner.method.loss
    assert loss.keywords == {"label_smoothing": 0.3}
    assert loss is learner.loss


def test_methods_that_must_know_the_number_of_tasks_are_told():
    asked = Specification.from_options(SMALL | {"method.name": "dendrites"})
    assert asked.make_learner(asked.make_stream()).method.segments == 5
    asked = asked.with_options({"method.segments": 7})
    assert asked.make_learner(asked.make_stream()).method.segments == 7


@pytest.mark.numeric
@pytest.mark.parametrize("method", ["xdg", "xdg+si"])
def test_norms_of_a_sub_network_keep_the_statistics_of_their_context(method):
    """With ContextNorms: those of a gated network are switched by its gates alone."""
    asked = {"tasks": 3, "hidden": (20, 16), "data": "mnist-5k", "threads": 1}

    def outputs(compact):
        specification = specified(
            "permuted-mnist", method=method, optimizer="sgd", lr=0.05, **asked
        )
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
    asked = Specification.from_options(
        SMALL | {"stream.tasks": 2, "training.epochs": 3, "training.batch": 100}
    )
    stream = asked.make_stream()
    steps = steps_of(stream, 100, 1, 3)[0]
    assert asked.with_options({"method.name": "rmn"}).make_method(stream).steps == steps
    assert asked.with_options({"method.name": "hat"}).make_method(stream).steps == steps // 3


def test_a_zoo_takes_the_number_of_tasks_a_round():
    asked = Specification.from_options(SMALL | {"method.name": "zoo", "method.tasks": 2})
    assert asked.make_learner(asked.make_stream()).tasks == 2
