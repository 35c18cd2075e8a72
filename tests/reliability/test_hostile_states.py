"""Checkpoints that pass every sha256 and hold something else: refused before anything is taken over, in a sentence."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import gateon
from gateon import GateON, Learner, cli
from gateon.networks import mlp

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


def test_changed_states_go_on_or_are_refused_and_no_process_dies():
    """Some of these inputs once ran past the end of optimizer tensors and took the process along."""
    words = ["fuzz_states.py", "--inputs", "100", "--variants", "n-gateon,adamw,inferred,zoo"]
    done = subprocess.run(
        [sys.executable, *words], cwd=BENCHMARKS, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert all(
        row["refused"] > 50 and row["read"] > 0 and not row["failed"] for row in found.values()
    )


def a_learner(**options):
    torch.manual_seed(0)
    optimizer = partial(torch.optim.Adam, lr=1e-3, fused=True)
    schedule = partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda step: 1 / (step + 1))
    return Learner(
        mlp(4, (6, 5), 3),
        optimizer=optimizer,
        method=GateON(density=0.5, **options),
        schedule=schedule,
    )


def taught(contexts=(0, 0, 1, 1), **options):
    learner = a_learner(**options)
    for k in contexts:
        learner.observe(torch.randn(8, 4), torch.arange(8) % 3, context=k)
    return learner


def first_entry(state):
    return next(iter(state["optimizer"]["state"].values()))


def first(part):
    return next(iter(part))


CHANGES = {
    "optimizer tensor too short": lambda s: first_entry(s).update(exp_avg=torch.zeros(1)),
    "optimizer tensor too long": lambda s: first_entry(s).update(
        exp_avg_sq=torch.zeros(1000, 1000)
    ),
    "optimizer tensor of another kind": lambda s: first_entry(s).update(
        exp_avg=first_entry(s)["exp_avg"].double()
    ),
    "optimizer without an entry": lambda s: first_entry(s).pop("exp_avg"),
    "optimizer step is no number": lambda s: first_entry(s).update(step=torch.zeros(3)),
    "optimizer step below 0": lambda s: first_entry(s).update(step=torch.tensor(-3.0)),
    "optimizer of more parameters": lambda s: s["optimizer"]["state"].update({99: first_entry(s)}),
    "optimizer rate is a text": lambda s: s["optimizer"]["param_groups"][0].update(lr="fast"),
    "optimizer betas beyond 1": lambda s: s["optimizer"]["param_groups"][0].update(
        betas=[2.0, 2.0]
    ),
    "optimizer with amsgrad": lambda s: s["optimizer"]["param_groups"][0].update(amsgrad=True),
    "model tensor of another shape": lambda s: s["model"].update({"1.weight": torch.zeros(7, 4)}),
    "model tensor of another kind": lambda s: s["model"].update(
        {"1.weight": s["model"]["1.weight"].half()}
    ),
    "model with more": lambda s: s["model"].update(x=torch.zeros(1)),
    "gates of fewer contexts than others": lambda s: s["model"].update(
        {g: s["model"][g][:1] for g in gates(s)[:1]}
    ),
    "availability of another shape": lambda s: s["method"].update({"1:running": torch.ones(3)}),
    "availability in a context for each sample": lambda s: s["method"].update(
        context=torch.zeros(7, dtype=torch.long)
    ),
    "method is a list": lambda s: s.update(method=[1, 2]),
    "active unit that does not exist": lambda s: s["active"].update(
        {first(s["active"]): torch.tensor([0, 1000])}
    ),
    "active unit below 0": lambda s: s["active"].update(
        {first(s["active"]): torch.tensor([-1, 2])}
    ),
    "active units twice": lambda s: s["active"].update({first(s["active"]): torch.tensor([1, 1])}),
    "active units of no site": lambda s: s["active"].update(x=torch.tensor([0])),
    "context that does not exist": lambda s: s.update(context=9),
    "context is a text": lambda s: s.update(context="1"),
    "step is true": lambda s: s.update(step=True),
    "schedule with another attribute": lambda s: s["schedule"].update(get_lr=3),
    "schedule is a number": lambda s: s.update(schedule=3),
    "generator too short": lambda s: s.update(generator=torch.zeros(5, dtype=torch.uint8)),
    "generator that is none": lambda s: s.update(generator=torch.full_like(s["generator"], 255)),
    "a part is missing": lambda s: s.pop("optimizer"),
}


def gates(state):
    return [name for name in state["model"] if "gate" in name]


def flat(value):
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_state_that_does_not_fit_changes_nothing(change):
    state = copy.deepcopy(taught().state_dict())
    learner = taught((0,))
    before = flat(copy.deepcopy(learner.state_dict()))
    change(state)
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        learner.load_state_dict(state)
    assert flat(learner.state_dict()) == before


def by_size(parameters):
    """Groups that depend on more than the number of dimensions."""
    held = list(parameters)
    return [
        {"params": [p for p in held if (p.numel() > 20) is large], "weight_decay": 0.1 * large}
        for large in (True, False)
    ]


@pytest.mark.parametrize(
    "optimizer",
    [
        *(
            torch.optim.Adam,
            torch.optim.SGD,
            torch.optim.RMSprop,
            torch.optim.Adagrad,
            torch.optim.Adafactor,
            torch.optim.NAdam,
        ),
        partial(torch.optim.SGD, momentum=0.9),
        lambda parameters, lr: torch.optim.Adam(
            [{"params": [p for p in parameters if p.dim() > 1]}], lr=lr
        ),
        lambda parameters, lr: torch.optim.Adam(by_size(parameters), lr=lr),
    ],
)
def test_states_of_all_kinds_of_optimizers_fit(optimizer):
    """What each keeps is found out by trying it on a toy, factored moments and momentum among it."""

    def made():
        torch.manual_seed(1)
        return Learner(mlp(4, (6, 5), 3), optimizer=partial(optimizer, lr=1e-3))

    one, other = made(), made()
    for _ in range(2):
        one.observe(torch.randn(8, 4), torch.arange(8) % 3, context=0)
    state = copy.deepcopy(one.state_dict())
    other.load_state_dict(state)
    assert flat(other.state_dict()) == flat(state)
    x = torch.randn(8, 4)
    assert (
        one.observe(x, torch.arange(8) % 3, context=0).loss
        == other.observe(x, torch.arange(8) % 3, context=0).loss
    )


def test_a_learner_with_fewer_contexts_takes_a_state_with_more():
    state = copy.deepcopy(taught(range(30)).state_dict())
    other = a_learner()
    other.load_state_dict(state)
    assert flat(other.state_dict()) == flat(state) and gateon.gates_of(other.model).contexts == 30


def test_a_checkpoint_that_does_not_fit_is_told_on_the_command_line(tmp_path, monkeypatch, capsys):
    from gateon.runs.folder import checkpoints
    from gateon.runs.specification import Specification
    from gateon.storage import checkpoint

    monkeypatch.chdir(tmp_path)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import fuzz_states
    finally:
        sys.path.remove(str(BENCHMARKS))
    target = fuzz_states.Target("n-gateon", tmp_path)
    assert isinstance(target.asked, Specification)
    (path,) = checkpoints(target.out)
    first_entry(target.state["learner"]).update(exp_avg=torch.zeros(1))
    checkpoint.save(target.state, path)
    assert cli.main(["resume", str(target.out), "--quiet"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(
        f"gateon: {path} is not a checkpoint of this run (optimizer state 0 exp_avg must be float32 of shape "
    )
    assert told.endswith(": delete it to start anew.\n") and told.count("\n") == 1


HUGE = 10**400  # larger than any float


def deep(*path, to):
    """Changes what lies at a path."""

    def change(state):
        for key in path[:-1]:
            state = state[key]
        state[path[-1]] = to(state[path[-1]]) if callable(to) else to

    return change


NUMBERS = {
    "rate": ("n-gateon", deep("learner", "optimizer", "param_groups", 0, "lr", to=HUGE)),
    "learner's steps": ("n-gateon", deep("learner", "step", to=HUGE)),
    "seconds trained": ("n-gateon", deep("times", "trained", to=HUGE)),
    "seconds of tasks": ("n-gateon", deep("times", "seconds", to=[{"train": HUGE, "evaluate": 1}])),
    "seconds by other names": ("n-gateon", deep("times", "seconds", to=[{"x": 1.0}])),
    "density": ("n-gateon", deep("found", "density", to=[{"x": HUGE}])),
    "switches": ("n-gateon", deep("found", "switches", to=[[HUGE]])),
    "isolated": ("n-gateon", deep("found", "isolated", to=[HUGE] * 3)),
    "isolated NaN": ("n-gateon", deep("found", "isolated", to=[float("nan")] * 3)),
    "advances": (
        "n-gateon",
        deep("learner", "method", "advances", to=lambda counts: torch.full_like(counts, 1 << 53)),
    ),
    "steps": (
        "n-gateon",
        deep("learner", "method", "steps", to=lambda count: torch.full_like(count, 1 << 53)),
    ),
    "running loss": ("inferred", deep("learner", "contexts", "detector", "running", to=HUGE)),
    "running loss of a context": (
        "inferred",
        deep("learner", "contexts", "detector", "books", 0, "running", to=HUGE),
    ),
    "spread": ("ewc", deep("learner", "method", "spread", to=HUGE)),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Runs stopped in their second task, by the name of their variant."""
    sys.path.insert(0, str(BENCHMARKS))
    here = Path.cwd()
    try:
        import fuzz_states

        yield {
            name: fuzz_states.Target(name, tmp_path_factory.mktemp(name))
            for name in ("n-gateon", "inferred", "ewc")
        }
    finally:
        sys.path.remove(str(BENCHMARKS))
        os.chdir(here)


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_beyond_all_measure_are_refused_with_the_file(begun, case, monkeypatch, capsys):
    from gateon.runs.folder import checkpoints
    from gateon.storage import checkpoint

    variant, change = NUMBERS[case]
    target = begun[variant]
    monkeypatch.chdir(target.out.parent)
    (path,) = checkpoints(target.out)
    state = copy.deepcopy(target.state)
    change(state)
    checkpoint.save(state, path)
    assert cli.main(["resume", str(target.out), "--quiet"]) == 2
    told = capsys.readouterr().err
    assert (
        told.startswith(f"gateon: {path} is not a checkpoint of this run (")
        and told.count("\n") == 1
    )


def test_availability_recovers_over_any_number_of_steps():
    """1.5 ** 10,000 is no float."""
    from gateon.availability.rule import Rule

    A = torch.tensor([0.0, 0.25, 1.0])
    Rule(0.5, 0.5, 1.0, 0.0).idle(A, 10_000)
    assert A.tolist() == [0.0, 1.0, 1.0]
