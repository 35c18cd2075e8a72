"""XdG: fixed random gates; and two methods at once."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from forgetting import forgotten, forgotten_by_finetuning
from method_tools import ADAM, assert_rounded_same, end, learner_of, reloaded, tiny_mlp
from torch import nn

import gateon
import rounding
from easy_tasks import assert_same, batch, train
from gateon.methods.both import Both
from gateon.methods.si import SI
from gateon.methods.xdg import XdG
from gateon.networks import mlp
from gateon.networks.heads import with_task_heads

pytestmark = pytest.mark.numeric


def gated(contexts, units=500, **options):
    method = XdG(**options)
    method.prepare(
        nn.Sequential(
            nn.Linear(2, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 2)
        )
    )
    for _ in range(contexts - 1):
        method.gates.add_context()
    return method.gates


@pytest.mark.parametrize("off", [0.8, 0.5, 0.0])
def test_gates_are_exactly_open_or_shut_at_the_stated_rate(off):
    gates = gated(4, off=off)
    for k in range(4):
        for gain in gates.gain(k).values():
            assert set(gain.tolist()) <= {0.0, 1.0}
            assert int(gain.sum()) == round((1 - off) * 500)


def test_gates_of_two_tasks_share_what_chance_lets_them_share():
    gates = gated(20)
    rows = torch.stack([torch.cat(list(gates.gain(k).values())) for k in range(20)])
    shared = (rows @ rows.T)[~torch.eye(20, dtype=torch.bool)] / 1000
    assert shared.mean() == pytest.approx(0.2 * 0.2, abs=0.003)
    assert shared.max() < 0.08


def test_closed_units_take_no_part_and_gates_are_not_learned():
    learner = learner_of(tiny_mlp, XdG(off=0.5))
    train(learner, 0, 3)
    gains = learner.method.gates.gain(0)
    before = {name: p.clone() for name, p in learner.model.named_parameters()}
    train(learner, 0, 3)
    after = dict(learner.model.named_parameters())
    assert all(
        torch.equal(gains[name], gain) for name, gain in learner.method.gates.gain(0).items()
    )
    for site, gain in gains.items():
        moved = (after[f"{site}.weight"] != before[f"{site}.weight"]).any(1)
        assert not moved[gain == 0].any() and moved[gain == 1].any()


def test_it_forgets_less_than_finetuning_and_less_still_with_si():
    plain = forgotten_by_finetuning()
    alone, learned = forgotten(XdG(off=0.6))
    both, _ = forgotten(Both(XdG(off=0.6), SI(strength=0.5)))
    assert plain > 0.1 and learned > 0.7
    assert alone < 0.85 * plain and both < alone


def test_two_methods_at_once_keep_both_states(tmp_path):
    def make(seed):
        return learner_of(tiny_mlp, Both(XdG(off=0.5), SI()), seed=seed, keep_optimizer=True)

    whole = make(0)
    assert whole.method.name == "xdg+si" and whole.method.label_at_test and not whole.method.replay
    train(whole, 0, 6)
    end(whole, 0)
    train(whole, 1, 3)
    state = reloaded(whole.state_dict(), tmp_path / "state.safetensors")
    other = make(3)
    other.load_state_dict(state)
    assert train(whole, 1, 6, start=3) == train(other, 1, 6, start=3)
    end(whole, 1)
    end(other, 1)
    assert_same(whole.state_dict(), other.state_dict())


def test_penalties_of_two_methods_add_up():
    class Constant(SI):
        def penalty(self, model, batch):
            return torch.tensor(2.0)

    model = nn.Linear(2, 2)
    assert Both(Constant(), Constant()).penalty(model, None) == 4
    assert (
        Both(XdG(), Constant()).penalty(model, None) == 2
        and Both(Constant(), XdG()).penalty(model, None) == 2
    )
    assert Both(XdG(), XdG()).penalty(model, None) is None


def test_the_data_of_a_task_reach_both_methods():
    seen = []

    class Counts(XdG):
        def end_task(self, model, task, data):
            seen.append(sum(len(y) for _, y in data))

    Both(Counts(), Counts()).end_task(
        nn.Linear(1, 1), 0, ((torch.ones(2, 1), torch.ones(2)) for _ in range(3))
    )
    assert seen == [6, 6]


@pytest.mark.parametrize(
    "network", [lambda model: model, with_task_heads], ids=["one head", "heads that are added"]
)
@pytest.mark.parametrize(
    "method",
    [lambda: XdG(off=0.6), lambda: Both(XdG(off=0.6), SI(strength=0.5))],
    ids=["xdg", "xdg+si"],
)
def test_sub_networks_are_trained_and_that_is_exact(method, network):
    """Three tasks, of which the first goes on after its end and then comes back: what SI keeps must follow."""

    def learned(compact):
        torch.manual_seed(0)
        model = network(mlp(8, (24, 24), 3, norm="none")).double()
        learner = gateon.Learner(
            model, optimizer=rounding.SMOOTH_ADAM, method=method(), compact=compact
        )
        for task in (0, 1, 2, 0):
            for part in range(2):
                for s in range(5):
                    x, y = batch(task, seed=10 * part + s)
                    learner.observe(x.double(), y, context=task)
                end_in_double(learner, task)
        return learner

    def end_in_double(learner, task):
        learner.end_task(task, [(x.double(), y) for x, y in [batch(task)]])

    whole, part = learned(False), learned(True)
    assert part.is_compact and not whole.is_compact
    assert_rounded_same(part, whole)


@pytest.mark.parametrize("off", [1.0, -0.1, float("nan")])
def test_a_rate_that_leaves_nothing_is_refused(off):
    model = mlp(4, (8,), 2)
    keys = list(model.state_dict())
    with pytest.raises(ValueError, match="off must be at least 0 and below 1"):
        learner_of(lambda: model, XdG(off=off), partial(ADAM.func, lr=1e-3))
    assert list(model.state_dict()) == keys
