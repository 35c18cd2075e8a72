"""A user's own method in sub-networks: exact if it says how it is narrowed, at full width if not."""

from __future__ import annotations

import pytest
import torch
from method_tools import assert_rounded_same, reloaded
from torch import nn

import gateon
import rounding
from easy_tasks import batch, flat
from gateon import Method
from gateon.methods.base import Narrowed
from gateon.methods.both import Both
from gateon.methods.ewc import EWC
from gateon.methods.shared.tables import narrowed_tables
from gateon.methods.si import SI
from gateon.methods.xdg import XdG
from gateon.networks import mlp

pytestmark = pytest.mark.numeric


class Undeclared(Method):
    """Parameters that went far in earlier tasks are held near where those tasks left them."""

    name = "undeclared"

    def __init__(self):
        self.anchor, self.far, self.weight, self.steps = {}, {}, {}, 0

    def held(self, model):
        return {name: p for name, p in model.named_parameters() if p.requires_grad}

    def prepare(self, model):
        def adopt(optimizer):
            for name, p in self.held(model).items():
                self.anchor.setdefault(name, p.detach().clone())
                self.far.setdefault(name, torch.zeros_like(p))
                self.weight.setdefault(name, torch.zeros_like(p))

        return adopt

    def penalty(self, model, batch):
        held = self.held(model).items()
        assert len(batch.x) == len(batch.y) == len(batch.logits)
        parts = [(self.weight[n] * (p - self.anchor[n]) ** 2).sum() for n, p in held]
        return 50.0 * torch.stack(parts).sum()

    @torch.no_grad()
    def stepped(self, model, optimizer):
        self.steps += 1
        for name, p in self.held(model).items():
            self.far[name] += (p - self.anchor[name]).abs()

    @torch.no_grad()
    def end_task(self, model, task, data):
        for name, p in self.held(model).items():
            self.weight[name] += self.far[name]
            self.far[name] = torch.zeros_like(p)
            self.anchor[name] = p.detach().clone()

    def state_dict(self):
        tables = {"anchor": self.anchor, "far": self.far, "weight": self.weight}
        return {name: dict(table) for name, table in tables.items()} | {"steps": self.steps}

    def load_state_dict(self, state):
        self.anchor, self.far, self.weight = (
            {name: tensor.clone() for name, tensor in state[table].items()}
            for table in ("anchor", "far", "weight")
        )
        self.steps = state["steps"]


class Declared(Undeclared):
    name = "declared"

    def narrowed(self):
        tables = ("anchor", "far", "weight")
        return narrowed_tables(self, tables, moving=("far",), plain=("steps",))


class Gated(Method):
    """Brings its own gates, learned like weights, and keeps nothing."""

    name = "gated"

    def prepare(self, model):
        gateon.attach(model, density=0.4)

    def narrowed(self):
        return Narrowed(self)


def learner_with(method, **options):
    torch.manual_seed(0)
    model = mlp(8, (24, 24), 3, norm="none").double()
    return gateon.Learner(model, optimizer=rounding.SMOOTH_ADAM, method=method, **options)


def learn(learner, tasks=(0, 1, 2, 0), parts=2):
    for task in tasks:
        for part in range(parts):
            for s in range(5):
                x, y = batch(task, seed=10 * part + s)
                learner.observe(x.double(), y, context=task)
            learner.end_task(task, [])
    return learner


@pytest.mark.parametrize(
    "make",
    [lambda: Both(XdG(off=0.6), Declared()), Gated, lambda: Both(Gated(), SI(strength=0.5))],
    ids=["xdg+declared", "gated", "gated+si"],
)
def test_a_users_method_is_exact_in_sub_networks(make):
    whole = learn(learner_with(make(), compact=False))
    part = learn(learner_with(make()))
    assert part.is_compact and not whole.is_compact
    assert_rounded_same(part, whole)


def test_what_the_user_keeps_matters_and_moves_in_sub_networks():
    with_it = learn(learner_with(Both(XdG(off=0.6), Declared())))
    without = learn(learner_with(XdG(off=0.6)))
    weight, other = (one.model[1].weight for one in (with_it, without))
    assert with_it.is_compact and not torch.allclose(weight, other)
    kept = with_it.method.second
    assert kept.steps == 40 and all(table.any() for table in kept.weight.values())


def test_a_method_that_declares_nothing_is_trained_at_full_width():
    undeclared = learn(learner_with(Both(XdG(off=0.6), Undeclared())))
    assert not undeclared.is_compact
    assert not learn(learner_with(Both(XdG(off=0.6), EWC(samples=20))), (0,), 0).is_compact
    assert_rounded_same(
        undeclared, learn(learner_with(Both(XdG(off=0.6), Declared()), compact=False))
    )


def test_a_users_method_goes_on_in_the_middle_of_a_sub_network(tmp_path):
    def make():
        return learner_with(Both(XdG(off=0.6), Declared()))

    def on(learner, steps):
        for s in steps:
            x, y = batch(1, seed=s)
            learner.observe(x.double(), y, context=1)
        return learner

    whole = on(learn(make(), (0,)), range(3))
    other = make()
    other.load_state_dict(reloaded(whole.state_dict(), tmp_path / "state.safetensors"))
    assert other.is_compact
    for learner in (whole, other):
        on(learner, range(3, 6)).end_task(1, [])
        on(learner, range(6, 8))
    found, expected = (flat(learner.state_dict()) for learner in (other, whole))
    assert all(
        torch.equal(found[k], v) if isinstance(v, torch.Tensor) else found[k] == v
        for k, v in expected.items()
    )


def test_without_gates_there_is_nothing_to_narrow():
    torch.manual_seed(0)
    learner = gateon.Learner(
        nn.Linear(8, 3).double(), optimizer=rounding.SMOOTH_ADAM, method=Declared()
    )
    assert not learn(learner).is_compact
