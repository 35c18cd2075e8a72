"""Methods by name: their numbers by name, and how the program gives them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gateon.anatomy.norm import ContextNorm
from gateon.methods.named import named
from gateon.networks import mlp
from gateon.runs.specification import Specification


def test_each_of_two_methods_takes_the_numbers_it_has():
    both = named(
        "dendrites+si", steps=5, tasks=3, strength=2.0, settings={"on": 0.25, "damping": 0.5}
    )
    assert (both.first.on, both.first.segments, both.second.strength, both.second.damping) == (
        0.25,
        3,
        2.0,
        0.5,
    )


def test_whole_numbers_stay_whole():
    method = named("hat", steps=5, tasks=3, settings={"steps": 7.0})
    assert method.steps == 7 and isinstance(method.steps, int)
    with pytest.raises(ValueError, match=r"steps of the method hat is a whole number, not 7\.5"):
        named("hat", steps=5, tasks=3, settings={"steps": 7.5})


@pytest.mark.parametrize(
    ("name", "option"),
    [("si", "off"), ("xdg+si", "beta"), ("finetune", "strength"), ("ewc", "labels")],
)
def test_a_number_that_a_method_has_not_is_refused(name, option):
    with pytest.raises(
        ValueError, match=f"The method {name.replace('+', '.')} has no {option}: leave it out"
    ):
        named(name, steps=5, tasks=3, settings={option: 1.0})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"settings": "damping"},
            "settings are names with numbers, such as damping=0.01,off=0.6, not 'damping'.",
        ),
        (
            {"settings": "damping=small"},
            "settings are names with numbers, such as damping=0.01,off=0.6, not 'damping=small'.",
        ),
        ({"dropout": 1.0}, "dropout is at least 0 and below 1, not 1.0."),
        ({"input_dropout": -0.1}, "input_dropout is at least 0 and below 1, not -0.1."),
    ],
)
def test_options_that_mean_nothing_are_refused(options, sentence):
    with pytest.raises(ValueError, match="^" + sentence.replace(".", "[.]")):
        Specification("split-mnist", method="si", **options)


def test_options_that_would_do_nothing_are_refused():
    small = {"data": "mnist-5k", "hidden": (4,), "channels": (2,)}
    stream = Specification("split-mnist", **small).make_stream()
    with pytest.raises(ValueError, match="dropout are for an mlp, not for a cnn"):
        Specification("split-mnist", network="cnn", dropout=0.5, **small).make_learner(stream)
    with pytest.raises(ValueError, match="The method n-gateon has no settings"):
        Specification("split-mnist", settings="damping=1", **small).make_learner(stream)


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


def learned(method, **options):
    asked = Specification(
        "permuted-mnist", tasks=2, method=method, data="mnist-5k", hidden=(8,), lr=1e-3, **options
    )
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
    first, asked = (
        learned(method),
        Specification(
            "permuted-mnist", tasks=2, method=method, data="mnist-5k", hidden=(8,), lr=1e-3
        ),
    )
    again = asked.make_learner(asked.make_stream())
    # else both optimizers would share their moments
    again.load_state_dict(copy.deepcopy(first.state_dict()))
    x, y = torch.rand(20, 1, 28, 28), torch.arange(20) % 10
    for learner in (first, again):
        learner.observe(x, y, context=1)
    assert all(
        torch.equal(first.predict(x, context=k), again.predict(x, context=k)) for k in range(2)
    )
