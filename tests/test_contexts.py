"""One context protocol: whatever has per-context state is switched by one walker."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gateon
from gateon.anatomy.contextual import Contextual, contexts_of, contextual, show_context
from gateon.anatomy.norm import ContextNorm, follow_norms
from gateon.anatomy.sites import find_sites
from gateon.gating.contexts import context_of, showing, switch_context
from gateon.methods.dendrites import Dendrites
from gateon.methods.hat import HAT
from gateon.methods.language.capsules import TaskCapsules
from gateon.methods.rmn import RMN
from gateon.networks.heads import TaskHeads


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), ContextNorm(8), nn.ReLU(), TaskHeads(8, 2))


def shown(module):
    return int(torch.as_tensor(module.context))


def gated():
    model = network()
    gateon.attach(model)
    return model


def masked():
    model = network()
    HAT().prepare(model)
    return model


def mapped():
    model = network()
    RMN().prepare(model)
    return model


def dendritic():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    Dendrites().prepare(model)
    return model


def with_capsules():
    return nn.Sequential(TaskCapsules(8, 3, 3, (0, 0)))


@pytest.mark.parametrize("make", [gated, masked, mapped, dendritic, with_capsules])
def test_everything_with_a_context_is_switched_at_once_and_grows_when_asked(make):
    model = make()
    found = contextual(model)
    assert found and contexts_of(model) == 1
    switch_context(model, 2)
    assert {shown(module) for module in found} == {2} and context_of(model) == 2
    assert {module.contexts for module in found} == {3} and contexts_of(model) == 3
    with showing(model, 1):
        assert {shown(module) for module in found} == {1}
    assert {shown(module) for module in found} == {2}


def test_gates_switch_norms_and_heads_too():
    model = gated()
    gates = gateon.gates_of(model)
    gates.add_context()
    assert model[1].contexts == model[3].contexts == 2
    gates.switch(1)
    assert shown(model[1]) == shown(model[3]) == 1
    gates.show(0)
    assert shown(model[1]) == shown(model[3]) == 0 and gates.learning == 1


def test_norms_follow_only_if_they_are_told_to():
    model = network()
    show_context(model, 2)
    assert shown(model[3]) == 2 and shown(model[1]) == 0 and len(model[1].running_mean) == 1
    follow_norms(model)
    show_context(model, 2)
    assert shown(model[1]) == 2 and len(model[1].running_mean) == 3


def test_a_module_that_takes_one_context_at_a_time_refuses_several_and_nothing_is_switched():
    model = gated()
    gates = gateon.gates_of(model)
    gates.add_context()
    gates.switch(1)
    with pytest.raises(ValueError, match="TaskHeads works in one context at a time"):
        gates.switch([0, 1])
    assert {shown(module) for module in contextual(model)} == {1} and gates.learning == 1


def test_a_users_own_module_is_switched_by_a_learner():
    class Shift(Contextual):
        def __init__(self):
            super().__init__()
            self.shifts = nn.ParameterList([nn.Parameter(torch.zeros(2))])

        @property
        def contexts(self):
            return len(self.shifts)

        def add_context(self):
            self.shifts.append(nn.Parameter(torch.zeros(2)))

        def forward(self, x):
            return x + self.shifts[self.context]

    def learn():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 2), Shift())
        learner = gateon.Learner(model, optimizer=lambda p: torch.optim.SGD(p, lr=0.5))
        for k in (0, 1, 0):
            learner.observe(torch.ones(3, 4), torch.full((3,), k), context=k)
        return learner, model

    learner, model = learn()
    first, second = (shift.detach() for shift in model[1].shifts)
    assert first[0] > 0 > first[1] and second[1] > 0 > second[0]
    with pytest.raises(IndexError, match="Context 7 does not exist: there are 2"):
        learner.predict(torch.ones(1, 4), context=7)


def test_norms_that_follow_are_found_by_the_wiring_like_any_other():
    """So that HAT scales what reads masked units by both ends, and owns the norm's scale."""
    plain, following = network(), network()
    follow_norms(following)
    for model in (plain, following):
        model[3] = nn.Linear(8, 2)
    assert find_sites(following, None) == find_sites(plain, None)
    assert find_sites(following, None)[0].owns == ("0", "1")
