"""Methods by name: what the registry says of them, their options, and how a run makes them."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

from gateon.anatomy.norm import ContextNorm
from gateon.methods.registry import METHODS, make, method_options, needs
from gateon.networks import mlp
from specified import specified


@pytest.mark.parametrize("name", METHODS)
def test_the_registry_says_of_every_method_what_its_class_says(name):
    method = make(name, {}, {"steps": 5, "task_steps": 5, "tasks": 3, "inputs": 4}, seed=0)
    assert method.name == name
    assert method.label_at_test == ("label" in needs(name))
    assert method.replay == ("replay" in needs(name))


def test_the_registries_are_read_without_torch():
    script = (
        "import sys\n"
        "from gateon.methods.registry import METHODS\n"
        "from gateon.streams.registry import STREAMS\n"
        "assert METHODS and STREAMS and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("name", METHODS)
def test_every_option_of_a_method_is_explained(name):
    missing = [option for option, found in method_options(name).items() if not found.about]
    assert not missing


def test_each_of_two_methods_takes_the_options_it_has():
    options = {"strength": 2.0, "on": 0.25, "damping": 0.5}
    both = make("dendrites+si", options, {"tasks": 3}, seed=0)
    assert (both.first.on, both.first.segments) == (0.25, 3)
    assert (both.second.strength, both.second.damping, both.second.skip) == (
        2.0,
        0.5,
        ("*segments",),
    )


def test_what_the_run_knows_may_be_given_instead():
    assert make("hat", {"steps": None}, {"steps": 5}, seed=0).steps == 5
    assert make("hat", {"steps": 7}, {"steps": 5}, seed=0).steps == 7


@pytest.mark.parametrize(
    ("name", "option"),
    [("si", "off"), ("xdg+si", "beta"), ("finetune", "strength"), ("ewc", "online")],
)
def test_an_option_that_a_method_has_not_is_refused(name, option):
    sentence = f"The method {name.replace('+', '.')} has no option --method.{option}: leave it out"
    with pytest.raises(ValueError, match=sentence):
        make(name, {option: 1.0}, {}, seed=0)


def test_dropout_stands_behind_the_inputs_and_every_activation():
    model = mlp(6, (5, 4), 3, norm="none", input_dropout=0.2, dropout=0.5)
    assert [type(m).__name__ for m in model] == [
        "Flatten",
        "Dropout",
        "Linear",
        "ReLU",
        "Dropout",
        "Linear",
        "ReLU",
        "Dropout",
        "Linear",
    ]
    assert [m.p for m in model if isinstance(m, nn.Dropout)] == [0.2, 0.5, 0.5]


def small(method, **options):
    sizes = {"tasks": 2, "data": "mnist-5k", "hidden": (8,), "lr": 1e-3}
    return specified("permuted-mnist", method=method, **sizes, **options)


def learned(method, **options):
    asked = small(method, **options)
    stream = asked.make_stream()
    learner = asked.make_learner(stream)
    for k in range(2):
        x, y = stream[k].train.x[:50], stream[k].train.y[:50]
        learner.observe(x, y, context=k)
        learner.end_task(k, [(x, y)])
    return learner


@pytest.mark.parametrize("method", ["finetune", "ewc", "si", "ogd"])
def test_norms_have_statistics_of_every_task_without_gates_too(method):
    norm = next(m for m in learned(method).model.modules() if isinstance(m, ContextNorm))
    assert len(norm.running_mean) == 2 and not torch.equal(*norm.running_mean)


@pytest.mark.parametrize("method", ["replay", "lwf"])
def test_methods_that_learn_old_and_new_at_once_share_them(method):
    assert (
        len(
            next(
                m for m in learned(method).model.modules() if isinstance(m, ContextNorm)
            ).running_mean
        )
        == 1
    )


def test_a_kept_optimizer_knows_the_task_before():
    steps = {
        keep: next(iter(learned("si", keep_optimizer=keep).optimizer.state.values()))["step"].item()
        for keep in (True, False)
    }
    assert steps == {True: 2, False: 1}


@pytest.mark.parametrize("method", ["ewc", "hat", "xdg+si"])
def test_a_learner_whose_norms_follow_goes_on_from_its_state(method):
    first, asked = learned(method), small(method)
    again = asked.make_learner(asked.make_stream())
    # else both optimizers would share their moments
    again.load_state_dict(copy.deepcopy(first.state_dict()))
    x, y = torch.rand(20, 1, 28, 28), torch.arange(20) % 10
    for learner in (first, again):
        learner.observe(x, y, context=1)
    assert all(
        torch.equal(first.predict(x, context=k), again.predict(x, context=k)) for k in range(2)
    )
