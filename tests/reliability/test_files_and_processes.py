"""Files that lead elsewhere or never end, names that move the cursor, signals, sizes: one sentence each, and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from gateon import Learner, Record, cli, run, streams
from gateon.report.table import markdown
from gateon.runs.folder import checkpoints
from gateon.storage import checkpoint
from gateon.streams import Split, Stream, Task
from specified import specified

ASKED = {"hidden": (4,), "steps": 4, "batch": 10, "threads": 1, "density": 0.75}
SMALL = ["--hidden", "4", "--steps", "2", "--batch", "10", "--quiet"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_tasks("data", "abc")


def save_tasks(folder, names):
    Path(folder).mkdir()
    y = np.arange(30) % 3
    x = (np.random.default_rng(0).normal(size=(30, 4)) + y[:, None]).astype(np.float32)
    for name in names:
        np.savez(Path(folder) / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)


@pytest.fixture
def program(capfd):
    def call(*words):
        capfd.readouterr()
        code = cli.main([str(word) for word in words])
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def alarm():
    """A test that waits for a pipe ends."""

    def ring(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# Sizes


def bomb(path, shape, kind="|u1"):
    """A few bytes that unpack to an array of zeros of any size."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, size in (
            ("x_train", shape),
            ("y_train", shape[:1]),
            ("x_test", (3, *shape[1:])),
            ("y_test", (3,)),
        ):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                dtype = kind if name.startswith("x") else "<i8"
                np.lib.format.write_array_header_1_0(
                    file, {"descr": dtype, "fortran_order": False, "shape": size}
                )
                left = int(np.prod(size)) * np.dtype(dtype).itemsize
                while left > 0:
                    file.write(bytes(min(left, 1 << 22)))
                    left -= 1 << 22


def test_an_archive_that_unpacks_to_more_than_a_gigabyte_is_refused_before_memory_is_taken(program):
    Path("bomb").mkdir()
    bomb("bomb/a.npz", (1000, 270_000))  # as the network sees it, 1.08e9 bytes
    tracemalloc.start()
    try:
        code, _, err = program("run", "own:bomb", "--out", "o", *SMALL)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert code == 2 and peak < 1 << 26 and Path("bomb/a.npz").stat().st_size < 1 << 21
    assert (
        err
        == "gateon: bomb/a.npz holds more than 1 GB once it is unpacked: raise --data-limit (data_limit= in Python) to read it.\n"
    )


@pytest.mark.parametrize("kind", ["npz", "jsonl", "jsonl.gz", "images"])
def test_an_option_raises_the_limit(program, kind):
    place = Path("data")
    if kind.startswith("jsonl"):
        import gzip

        rows = [
            {"task": "a", "split": part, "features": [float(n), 1.0], "label": n % 3}
            for n in range(30)
            for part in ("train", "test")
        ]
        content = "\n".join(json.dumps(row) for row in rows).encode()
        place = Path(f"own.{kind}")
        place.write_bytes(gzip.compress(content) if kind.endswith("gz") else content)
    elif kind == "images":
        Image = pytest.importorskip("PIL.Image")
        place = Path("pictures")
        for name in ("x", "y"):
            (place / "a" / name).mkdir(parents=True)
            for n in range(10):
                Image.new("L", (20, 20), n).save(place / "a" / name / f"{n}.png")
    with pytest.raises(
        ValueError,
        match=r"holds more than 4.6\d+e-07 GB once it is unpacked: raise --data-limit",
    ):
        streams.own(place, data_limit=500 / 2**30)
    code, _, err = program("run", f"own:{place}", "--data-limit", "0.0000001", "--out", "o", *SMALL)
    assert code == 2 and str(place) in err and "raise --data-limit" in err and err.count("\n") == 1
    words = ["run", f"own:{place}", "--data-limit", "0.1", "--out", "o", *SMALL]
    assert program(*words[:-1], "--batch", "4", "--quiet")[0] == 0
    code, _, err = program("run", "split-mnist", "--data-limit", "2", "--out", "p", *SMALL)
    assert code == 2 and "--stream.data-limit" in err


def test_texts_are_bounded_too():
    Path("texts.jsonl").write_text(
        "\n".join(json.dumps({"text": "good", "label": n % 2}) for n in range(50))
    )
    with pytest.raises(ValueError, match=r"texts.jsonl holds more than .* GB once it is unpacked"):
        streams.text_lines("texts.jsonl", model="tiny", data_limit=1000 / 2**30)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_data_are_not_held_four_times(kind):
    Path("large").mkdir()
    x, y = np.ones((4000, 400), kind), np.arange(4000) % 2
    np.savez("large/a.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
    stream = streams.own("large")
    seen = 4 * x.size  # bytes, as the network sees them
    tracemalloc.start()
    try:
        task = stream[0]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(task.train) == 3600 and peak < 2.7 * seen


# Links, pipes and devices


@pytest.mark.parametrize(
    "name",
    [
        ".lock",
        "record.json.part",
        "checkpoint-0003-000000.safetensors.part",
        "specification.toml.part",
    ],
)
def test_links_in_the_directory_of_a_run_are_not_followed(program, name):
    victim = Path("victim")
    victim.write_text("mine")
    Path("o").mkdir()
    (Path("o") / name).symlink_to(victim.resolve())
    code, _, err = program("run", "own:data", "--out", "o", *SMALL)
    assert victim.read_text() == "mine"
    assert (
        code == 2
        and err.count("\n") == 1
        and f"o/{name} is a symbolic link" in err
        and "remove it" in err
    )
    (Path("o") / name).unlink()
    assert program("run", "own:data", "--out", "o", *SMALL)[0] == 0 and victim.read_text() == "mine"


def test_a_link_to_nowhere_creates_nothing_there(program):
    Path("o").mkdir()
    Path("o/.lock").symlink_to(Path("elsewhere").resolve())
    assert (
        program("run", "own:data", "--out", "o", *SMALL)[0] == 2 and not Path("elsewhere").exists()
    )


@pytest.mark.parametrize("name", ["record.json", "checkpoint-0001-000000.safetensors", ".lock"])
@pytest.mark.parametrize("command", ["inspect", "run", "resume"])
def test_a_pipe_does_not_make_anybody_wait(program, alarm, name, command):
    Path("o").mkdir()
    os.mkfifo(Path("o") / name)
    words = ["run", "own:data", "--out", "o", *SMALL] if command == "run" else [command, "o"]
    code, out, err = program(*words)
    if (name, command) == (".lock", "inspect"):
        assert (code, out) == (0, "no run\n")
    else:
        place = "o" if command == "resume" and name != "record.json" else f"o/{name}"
        assert code == 2 and place in err and err.count("\n") == 1


def test_devices_are_no_records_nor_data(program, alarm):
    Path("o").mkdir()
    Path("o/record.json").symlink_to("/dev/zero")
    code, _, err = program("inspect", "o")
    assert code == 2 and "o/record.json is not a gateon record" in err
    os.mkfifo("data/d.npz")
    code, _, err = program("run", "own:data", "--out", "p", *SMALL)
    assert code == 2 and "data/d.npz cannot be read as arrays (it is not a regular file)" in err


@pytest.mark.parametrize("command", ["inspect", "run", "resume"])
@pytest.mark.parametrize("name", ["record.json", "checkpoint-0001-000000.safetensors", ".lock"])
def test_a_directory_in_the_place_of_a_file_is_named(program, name, command):
    Path("o", name).mkdir(parents=True)
    words = ["run", "own:data", "--out", "o", *SMALL] if command == "run" else [command, "o"]
    code, out, err = program(*words)
    if (name, command) == (".lock", "inspect"):
        assert (code, out) == (0, "no run\n")
    else:
        named = name == "record.json" or (command != "resume" and name != ".lock")
        place = f"o/{name}" if named else "o"
        assert code == 2 and place in err and err.count("\n") == 1


def test_options_in_pipes_and_devices_make_nobody_wait(program, alarm):
    os.mkfifo("pipe.toml")
    Path("zero.toml").symlink_to("/dev/zero")
    Path("folder.toml").mkdir()
    for name in ("pipe.toml", "zero.toml", "folder.toml"):
        for command in ("run", "compare"):
            code, out, err = program(command, name, "--out", "o", "--quiet")
            assert (code, out) == (
                2,
                "",
            ) and err == f"gateon: {name} is not TOML: it is not a regular file.\n"
    Path("long.toml").write_text("#" * (2 << 20))
    code, _, err = program("run", "long.toml", "--out", "o", "--quiet")
    assert code == 2 and "long.toml is not TOML: it has more than 1048576 bytes" in err


def test_pictures_in_pipes_and_devices_make_nobody_wait(program, alarm):
    for name in "ab":
        Path(f"pictures/task/{name}").mkdir(parents=True)
        for n in range(4):
            os.mkfifo(f"pictures/task/{name}/{n}.png")
    code, out, err = program("run", "own:pictures", "--out", "o", *SMALL)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "0.png cannot be read as an image (it is not a regular file)" in err
    Path("pictures/task/a/0.png").unlink()
    Path("pictures/task/a/0.png").symlink_to("/dev/zero")
    assert program("run", "own:pictures", "--out", "o", *SMALL)[0] == 2


def test_figures_are_not_written_through_links(program):
    Path("victim").write_text("mine")
    Path("o").mkdir()
    for name in ("compare.png", "compare.svg", "compare.md", "compare.json"):
        Path("o", name).symlink_to(Path("victim").resolve())
    assert program("compare", "own:data", "--methods", "finetune", "--out", "o", *SMALL)[0] == 0
    assert Path("victim").read_text() == "mine"
    assert not Path("o/compare.png").is_symlink() and Path("o/compare.png").read_bytes().startswith(
        b"\x89PNG"
    )
    assert not Path("o/compare.svg").is_symlink() and "<svg" in Path("o/compare.svg").read_text()


def test_a_lock_that_is_another_file_too_leaves_it_alone(program):
    Path("victim").write_text("mine")
    Path("o").mkdir()
    os.link("victim", "o/.lock")
    code, _, err = program("run", "own:data", "--out", "o", *SMALL)
    assert Path("victim").read_text() == "mine"
    assert (
        code == 2
        and "o/.lock is a hard link to another file: remove it" in err
        and err.count("\n") == 1
    )


def test_a_file_that_was_swapped_while_it_was_written_is_not_taken():
    Path("victim").write_text("mine")
    Path("table").write_text("old")
    with (
        pytest.raises(checkpoint.WriteError, match="is a symbolic link"),
        checkpoint.whole_file(Path("table")) as aside,
    ):
        aside.unlink()
        aside.symlink_to(Path("victim").resolve())
    with (
        pytest.raises(checkpoint.WriteError, match="was replaced by another process"),
        checkpoint.whole_file(Path("table")) as aside,
    ):
        Path("other").write_text("theirs")
        os.replace("other", aside)
    assert Path("table").read_text() == "old" and Path("victim").read_text() == "mine"


# Names


ESCAPE = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e"


def test_names_are_shown_and_move_nothing(program):
    save_tasks("odd", [f"task{ESCAPE}", "b"])
    words = ["--hidden", "4", "--steps", "2", "--batch", "10"]
    code, out, err = program("run", "own:odd", "--out", f"o{ESCAPE}", *words)
    assert code == 0 and r"task\x1b]0;owned\x07" in err
    shown = out + err
    code, out, err = program("inspect", f"o{ESCAPE}")
    shown += out + err
    record = Record.load(Path(f"o{ESCAPE}/record.json"))
    record.name = f"name{ESCAPE}"
    record.save(Path(f"o{ESCAPE}/record.json"))
    for command in ("inspect", "resume"):
        code, out, err = program(command, f"o{ESCAPE}")
        assert code == 0 and "name" in out
        shown += out + err
    code, out, err = program("run", f"own:nowhere{ESCAPE}", "--out", "p", *words)
    assert code == 2
    code, _, told = program("inspect", f"nowhere{ESCAPE}")
    shown += out + err + told
    left = set(re.sub(r"\x1b\[[0-9;]*m", "", shown)) - {"\n"}  # colours of our own are meant
    assert all(character.isprintable() for character in left)


@pytest.mark.parametrize(
    "words",
    [
        [ESCAPE],
        ["list", ESCAPE],
        ["run", "own:data", f"--{ESCAPE}", "3"],
        ["run", "own:data", "--optimizer", ESCAPE],
        ["run", "own:data", "--seed", ESCAPE],
        ["reproduce", "table-1", "--scale", ESCAPE],
        ["inspect", ESCAPE, "--json", ESCAPE],
    ],
)
def test_words_the_parser_refuses_are_shown(capfd, words):
    with pytest.raises(SystemExit):
        cli.main(words)
    out, err = capfd.readouterr()
    assert out == "" and err.replace("\n", "").isprintable()


def test_names_in_tables_are_text():
    shown = markdown({f"a{ESCAPE}|b": {"seconds": (1.0, 0.0)}}, 1)
    assert "\x1b" not in shown and r"\x1b" in shown and r"\|b" in shown


# Signals


class Sends:
    def __init__(self, number, times=1):
        self.number, self.times = number, times

    def begin(self, name, steps, at):
        pass

    def step(self, task, step, loss):
        if (task, step) == (1, 2):
            for _ in range(self.times):
                os.kill(os.getpid(), self.number)

    def task(self, task, name, accuracies, seconds):
        pass

    def end(self):
        pass


@pytest.mark.parametrize(
    ("number", "times", "expected"),
    [(signal.SIGHUP, 1, 75), (signal.SIGINT, 3, 130), (signal.SIGTERM, 2, 75)],
)
def test_a_closed_terminal_and_quick_ctrl_cs_save(program, monkeypatch, number, times, expected):
    specified("own:data", **ASKED).save(Path("run.toml"))
    with monkeypatch.context() as patched:
        patched.setattr("gateon.cli.printing.progress", lambda quiet: Sends(number, times))
        code, out, err = program("run", "run.toml", "--out", "o", "--quiet")
    assert (code, out) == (
        expected,
        "",
    ) and err == "\nStopped and saved. Run the same command to continue.\n"
    assert checkpoints(Path("o"))[0].name == "checkpoint-0001-000002.safetensors"
    assert program("resume", "o", "--quiet")[0] == 0


def test_whoever_asked_for_no_hangup_has_none(program, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        specified("own:data", **ASKED).save(Path("run.toml"))
        monkeypatch.setattr("gateon.cli.printing.progress", lambda quiet: Sends(signal.SIGHUP))
        assert program("run", "run.toml", "--out", "o", "--quiet")[0] == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def started(*words):
    """The program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "gateon.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="how far it got cannot be seen")
def test_ctrl_c_while_it_is_imported_is_quiet():
    process = started("run", "--help")
    maps = Path(f"/proc/{process.pid}/maps")
    while "libtorch" not in maps.read_text():  # the import of torch has begun
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err == "\nStopped.\n" and out == ""


def test_three_quick_ctrl_cs_lose_nothing():
    specified("own:data", **ASKED | {"steps": 100_000}).save(Path("long.toml"))
    process = started("run", "long.toml", "--out", "o", "--quiet")
    while not Path("o/.lock").exists() or not Path("o/.lock").read_text():
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    _, err = process.communicate(timeout=60)
    assert (
        process.returncode == 130
        and err == "\nStopped and saved. Run the same command to continue.\n"
    )
    (path, *_) = checkpoints(Path("o"))
    assert checkpoint.load(path)["position"]["step"] > 0


def under_way(out):
    """Wait until a process learns in a directory."""
    while not Path(out, ".lock").exists() or not Path(out, ".lock").read_text():
        time.sleep(0.02)
    time.sleep(0.5)


def test_three_hangups_lose_nothing(alarm):
    specified("own:data", **ASKED | {"steps": 100_000}).save(Path("long.toml"))
    process = started("run", "long.toml", "--out", "o", "--quiet")
    under_way("o")
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.005)
    _, err = process.communicate(timeout=60)
    assert (
        process.returncode == 75
        and err == "\nStopped and saved. Run the same command to continue.\n"
    )
    assert checkpoint.load(checkpoints(Path("o"))[0])["position"]["step"] > 0


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_a_terminal_that_is_closed_under_the_progress_bar_saves(alarm, terminal):
    import pty

    specified("own:data", **ASKED | {"steps": 100_000}).save(Path("long.toml"))
    ours, theirs = pty.openpty()
    program = "import os, fcntl, termios, sys; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
    words = [sys.executable, "-m", "gateon.cli", "run", "long.toml", "--out", "o"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=os.environ | {"TERM": terminal},
    )
    os.close(theirs)
    seen = b""
    while (b"loss" if terminal == "xterm" else b"steps") not in seen:
        seen += os.read(ours, 1000)
    under_way("o")
    os.close(ours)
    assert process.wait(30) == 75
    assert checkpoint.load(checkpoints(Path("o"))[0])["position"]["step"] > 0


# Growth


def thin(tasks):
    """A run of so many tasks that are measured at the end only."""

    def split(k, part):
        return Split(
            torch.randn(4, 3, generator=torch.Generator().manual_seed(k)), torch.arange(4) % 2
        )

    def make(k):
        return Task(f"task {k:04}", split(k, "train"), split(k, "validation"), split(k, "test"), k)

    stream = Stream("thin", tasks, 2, (3,), {"stream": "thin"}, {"sha256": "0"}, make, split)
    learner = Learner(
        torch.nn.Linear(3, 2), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)
    )
    out = Path(f"thin-{tasks}")
    record = run(stream, learner, out, steps=1, batch=4, evaluate="last", save_every=1e9)
    return out, record


def test_records_and_checkpoints_grow_with_the_number_of_tasks_and_not_with_its_square():
    sizes = []
    for tasks in (60, 120, 240):
        out, record = thin(tasks)
        again = Record.load(out / "record.json")
        assert (
            again.accuracy == record.accuracy
            and again.macro_f1 == record.macro_f1
            and again.summary == record.summary
        )
        (path,) = checkpoints(out)
        sizes.append([(out / "record.json").stat().st_size, path.stat().st_size])
    for small, middle, large in zip(*sizes, strict=True):
        assert large - middle < 2.2 * (middle - small)


@pytest.mark.parametrize("kind", ["full", "thin", "curves"])
def test_a_large_record_is_read_in_little_more_time_than_its_json_takes(kind):
    tasks = {"full": 500, "thin": 1200, "curves": 200}[kind]
    record = Record("large", {}, {}, tasks=[f"task {k}" for k in range(tasks)])
    full = {k for k in range(tasks) if kind != "thin" or k == tasks - 1}
    record.accuracy = [
        [(j + 1) / 1300 if k in full or j == k else None for j in range(k + 1)]
        for k in range(tasks)
    ]
    record.macro_f1 = record.accuracy
    if kind == "curves":
        record.curves = [[[step, 0.123456789] for step in range(1000)] for _ in range(tasks)]
    # As schema 1 has it: every row in full.
    Path("record.json").write_text(json.dumps(vars(record) | {"schema": 1}))
    assert Path("record.json").stat().st_size > 4 << 20

    def seconds(read):
        begin = time.process_time()
        read()
        return time.process_time() - begin

    plain = min(seconds(lambda: json.loads(Path("record.json").read_text())) for _ in range(3))
    assert min(seconds(lambda: Record.load(Path("record.json"))) for _ in range(3)) < 15 * plain
    assert Record.load(Path("record.json")).accuracy == record.accuracy


@pytest.mark.parametrize(
    "rows",
    [
        [{"skip": 10**12, "then": [0.5]}],
        [{"skip": -1, "then": [0.5]}],
        [{"skip": 1}],
        [{"skip": True, "then": [0.5]}],
        [{"skip": 0, "then": [0.5] * 9}],
        [{"skip": 0, "then": 3}],
        [[0.5]] + [{"skip": n, "then": [0.5]} for n in range(1, 9000)],  # a square of 81 million
    ],
)
def test_rows_that_skip_more_than_there_is_are_refused(rows):
    content = {"name": "x", "specification": {}, "data": {}, "accuracy": rows, "schema": 2}
    Path("record.json").write_text(json.dumps(content))
    if len(rows) > 1:
        from gateon.runs import record

        record.SPARSE, sparse = 1, record.SPARSE
    try:
        with pytest.raises(ValueError, match=r"record.json is not a gateon record"):
            Record.load(Path("record.json"))
    finally:
        if len(rows) > 1:
            record.SPARSE = sparse


@pytest.mark.parametrize(
    "seconds", [{"x": 1.0}, {"train": 10**400, "evaluate": 1}, {"train": -1, "evaluate": 1}, {}]
)
@pytest.mark.parametrize("command", ["run", "resume", "inspect"])
def test_a_record_with_odd_times_is_one_sentence(program, seconds, command):
    words = ["run", "own:data", "--out", "o", *SMALL]
    assert program(*words)[0] == 0
    path = Path("o/record.json")
    held = json.loads(path.read_text())
    path.write_text(json.dumps(held | {"seconds": [seconds for _ in held["seconds"]]}))
    code, _, err = program(*(words if command == "run" else [command, "o"]))
    assert (
        code == 2
        and "o/record.json is not a gateon record, or it is damaged" in err
        and err.count("\n") == 1
    )


# Options and places


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--hidden", "1000000000"],
            r"A network mlp of this size \(hidden 1000000000\) needs at least .* GB, and .* GB are free: choose a",
        ),
        (
            ["--hidden", "1000000000", "1000000000", "1000000000"],
            r"A network mlp of this size .* GB are free: choose a smaller one",
        ),
        (
            ["--hidden", "1000000000", "--method", "zoo"],
            r"A network mlp of this size \(hidden 1000000000\) needs at least .* GB",
        ),
        (["--threads", "1000000"], "--training.threads must be at most 1024, got 1000000"),
        (
            ["--seed", str(1 << 64)],
            "--seed must be at most 9223372036854775807, got 18446744073709551616",
        ),
        (["--seed", str(10**40)], "seed must be at most 9223372036854775807"),
        (["--steps", str(10**30)], "steps must be at most 1000000000"),
        (["--stream.repeats", str(10**12)], "--stream.repeats must be at most 1000000, got 1"),
        (["--hidden", str(10**21)], "hidden must be at most 1000000000"),
        (
            ["--hidden", "4", str(10**21), "--method", "isolated"],
            "hidden must be at most 1000000000",
        ),
        (
            ["--network.channels", str(10**21), "--network", "cnn"],
            "channels must be at most 1000000000",
        ),
    ],
)
def test_options_beyond_all_measure_are_one_sentence(program, words, sentence):
    own = ["run", "own:data", "--out", "o", "--steps", "2", "--batch", "10", "--quiet"]
    code, out, err = program(*own, *words)
    assert (
        (code, out) == (2, "")
        and re.search(sentence, err)
        and err.count("\n") == 1
        and err.startswith("gateon: ")
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["reproduce", "table-1", "--threads", "1000000"],
            "--threads must be at most 1024, got 1000000",
        ),
        (
            ["reproduce", "table-1", "--threads", "0"],
            "--threads must be at least 1, got 0",
        ),
        (
            ["reproduce", "table-1", "--seeds", str(10**20), "--plan"],
            f"--seeds must be at most 10000, got {10**20}",
        ),
        (
            ["reproduce", "table-1", "--seeds", str(10**20)],
            f"--seeds must be at most 10000, got {10**20}",
        ),
        (
            ["reproduce", "table-1", "--seeds", "0", "--plan"],
            "--seeds must be at least 1, got 0",
        ),
        (
            ["compare", "own:data", "--seeds", str(10**12), "--methods", "finetune", *SMALL],
            f"--seeds must be at most 10000, got {10**12}",
        ),
        (
            ["run", "huge.toml", "--out", "o", *SMALL],
            "--training.lr must be a finite number, got 1000",
        ),
    ],
)
def test_numbers_of_seeds_and_threads_are_bounded(program, alarm, words, sentence):
    Path("huge.toml").write_text(f'stream = "own:data"\nlr = {10**400}\n')
    code, out, err = program(*words)
    assert (
        (code, out) == (2, "")
        and sentence in err
        and err.count("\n") == 1
        and err.startswith("gateon: ")
    )
    assert not Path("results").exists() and not Path("runs").exists()


def test_data_without_numbers_are_one_sentence(program):
    Path("hollow").mkdir()
    x, y = np.zeros((60, 0), np.float32), np.arange(60) % 3
    np.savez("hollow/a.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    code, out, err = program("run", "own:hollow", "--out", "o", *SMALL)
    assert (
        (code, out) == (2, "")
        and "have no numbers, their shape is (60, 0)" in err
        and err.count("\n") == 1
    )


def test_a_bad_header_of_an_array_is_one_line(program):
    Path("bad").mkdir()
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }" + b" " * 20_000 + b"\n"
    with zipfile.ZipFile("bad/a.npz", "w") as archive:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            archive.writestr(
                f"{name}.npy",
                b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + bytes(12),
            )
    code, out, err = program("run", "own:bad", "--out", "o", *SMALL)
    assert (
        (code, out) == (2, "")
        and "bad/a.npz cannot be read as arrays (" in err
        and err.count("\n") == 1
        and r"\n" not in err
    )


@pytest.mark.parametrize("method", ["finetune", "n-gateon", "isolated", "zoo"])
def test_an_empty_batch_is_called_empty(method):
    sizes = {name: value for name, value in ASKED.items() if name != "density"}
    asked = specified("own:data", **sizes, method=method)
    learner = asked.make_learner(asked.make_stream())
    with pytest.raises(ValueError, match="The batch is empty"):
        learner.observe(torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), context=0)


@pytest.mark.parametrize("where", ["--out", "own", "toml"])
def test_a_path_that_is_no_text_is_one_sentence(program, where):
    odd = os.fsdecode(b"data\xff")
    words = {
        "--out": ["own:data", "--out", odd],
        "own": [f"own:{odd}", "--out", "o"],
        "toml": [f"{odd}.toml", "--out", "o"],
    }[where]
    code, out, err = program("run", *words, *SMALL)
    assert (
        (code, out) == (2, "")
        and r"data\udcff" in err
        and "is not valid UTF-8" in err
        and err.count("\n") == 1
    )


@pytest.fixture
def refused(monkeypatch):
    """Let the system refuse whatever is opened or written under a name."""

    def refuse(name, number):
        plain = os.open

        def opened(path, flags, *mode, **options):
            if Path(os.fsdecode(path)).name == name and flags & (os.O_WRONLY | os.O_RDWR):
                raise OSError(number, os.strerror(number), str(path))
            return plain(path, flags, *mode, **options)

        monkeypatch.setattr(os, "open", opened)

    return refuse


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_lock_that_cannot_be_written_is_one_sentence(program, refused, number):
    refused(".lock", number)
    code, out, err = program("run", "own:data", "--out", "o", *SMALL)
    assert (code, out) == (2, "")
    assert (
        err
        == f"gateon: o cannot be written ({os.strerror(number)}): choose another output directory.\n"
    )


def test_a_full_disk_under_the_lock_is_one_sentence(program, monkeypatch):
    """The file can be made, and nothing can be written into it."""
    plain = json.dumps

    def full(value, **options):
        if isinstance(value, dict) and set(value) == {"pid", "host", "since", "born"}:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(value, **options)

    monkeypatch.setattr(json, "dumps", full)
    code, _, err = program("run", "own:data", "--out", "o", *SMALL)
    assert (
        code == 2
        and err
        == "gateon: o cannot be written (No space left on device): choose another output directory.\n"
    )


@pytest.mark.parametrize("name", [".lock", "specification.toml.part"])
def test_a_finished_run_that_cannot_be_written_is_one_sentence(program, refused, name):
    assert program("run", "own:data", "--out", "o", *SMALL)[0] == 0
    refused(name, errno.EROFS)
    code, _, err = program("run", "own:data", "--out", "o", *SMALL)
    assert (
        code == 2
        and err.startswith("gateon: o")
        and "(Read-only file system)" in err
        and err.count("\n") == 1
    )


@pytest.mark.parametrize("name", [".lock", "specification.toml.part"])
def test_a_finished_run_that_cannot_be_written_is_shown(program, refused, name):
    shown = program("run", "own:data", "--out", "o", *SMALL)
    held = {path: path.stat().st_mtime_ns for path in Path("o").iterdir()}
    refused(name, errno.EROFS)
    assert program("resume", "o", "--quiet") == shown
    assert {path: path.stat().st_mtime_ns for path in Path("o").iterdir()} == held


def test_a_data_directory_that_cannot_be_written_is_one_sentence(program, monkeypatch):
    Path("file").write_text("")
    monkeypatch.setenv("GATEON_DATA", "file/below")
    code, _, err = program("data", "get", "fashion-mnist")
    assert code == 2 and "file/below" in err and err.count("\n") == 1 and "Errno" not in err
    monkeypatch.setenv("GATEON_DATA", os.fsdecode(b"data\xff"))
    code, _, err = program("data", "get", "fashion-mnist")
    assert code == 2 and r"data\udcff is not valid UTF-8" in err
