"""Inheritance: a new context starts as a copy of another, where that costs no context anything."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

import gateon
from gateon.networks import cnn, mlp, wide_resnet
from gateon.subnetwork.inherit import paired
from reference import inherited
from rounding import SMOOTH_ADAM, assert_same

pytestmark = pytest.mark.numeric

ADAM = partial(torch.optim.Adam, lr=3e-2)


def obstructed(model, *, per="parameter", contexts=2, **options):
    gates = gateon.attach(model, contexts=contexts, density=0.5, seed=1)
    handle = gateon.obstruct(ADAM(model.parameters()), gates, per=per, head=True, **options)
    return gates, handle


def outputs(model, gates, context, x):
    gates.show(context)
    model.eval()
    with torch.no_grad():
        return model(x)


NETWORKS = {
    "mlp": (lambda: mlp(6, (16, 12), 3, norm="none"), (5, 6)),
    "cnn": (lambda: cnn((1, 8, 8), (6, 8), (10,), 3, norm="none"), (5, 1, 8, 8)),
    "wide resnet": (lambda: wide_resnet(10, 1, 3, shape=(1, 8, 8), norm="none"), (5, 1, 8, 8)),
}


@pytest.mark.parametrize("per", ["unit", "parameter"])
@pytest.mark.parametrize("name", NETWORKS)
def test_where_everything_is_available_an_heir_does_what_its_parent_does(name, per):
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    model = make().double()
    gates, _ = obstructed(model, per=per)
    # No unit is open in both: then nothing of the parent is overwritten.
    for gate in gates.gates.values():
        closed = (gate.weight.data[0] <= 0).nonzero().flatten()
        gate.weight.data[1] = -1.0
        gate.weight.data[1, closed[: gate.site.units - len(closed)]] = 0.5
    x = torch.randn(shape, dtype=torch.float64)
    before = outputs(model, gates, 0, x)
    assert not torch.allclose(outputs(model, gates, 1, x), before)
    gates.switch(1)
    gateon.inherit(gates, parent=0, context=1)
    assert torch.equal(outputs(model, gates, 0, x), before)
    torch.testing.assert_close(outputs(model, gates, 1, x), before)


def test_weights_move_by_their_availability_as_the_literal_twin_says():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 2)
    ).double()
    gates, handle = obstructed(model)
    for applied in handle.applied.values():
        applied.uniform_()
    W, A = model[2].weight.detach().clone(), handle.applied["2.weight"].clone()
    theirs, ours = paired(gates, 0, 1)
    gateon.inherit(gates, parent=0, context=1)
    units = [t["2"].tolist() for t in (ours, theirs)]
    inputs = [t["0"].tolist() for t in (ours, theirs)]
    torch.testing.assert_close(
        model[2].weight.data, inherited(W, A, units[0], inputs[0], units[1], inputs[1])
    )
    assert not torch.equal(model[2].weight.data, W)


def test_pairs_are_as_many_of_both_and_what_is_open_in_both_is_itself():
    gates, _ = obstructed(mlp(6, (20,), 3, norm="none"))
    theirs, ours = paired(gates, 0, 1)
    for name in ours:
        old, new = (set(gates.gain(k)[name].nonzero().flatten().tolist()) for k in (0, 1))
        assert set(theirs[name].tolist()) == old and set(ours[name].tolist()) == new
        same = [a == b for a, b in zip(theirs[name].tolist(), ours[name].tolist(), strict=True)]
        assert sum(same) == len(old & new)


@pytest.mark.parametrize("per", ["unit", "parameter"])
def test_what_is_frozen_is_not_overwritten_and_gains_are_the_parents(per):
    model = mlp(6, (16, 12), 3, norm="none")
    gates, handle = obstructed(model, per=per)
    for applied in handle.applied.values():
        applied.zero_()
    before = {name: p.clone() for name, p in model.named_parameters() if "gate" not in name}
    theirs, ours = paired(gates, 0, 1)
    gateon.inherit(gates, parent=0, context=1)
    assert all(
        torch.equal(p, before[name]) for name, p in model.named_parameters() if name in before
    )
    for name, gain in gates.gain(1).items():
        assert torch.equal(gain[ours[name]], gates.gain(0)[name][theirs[name]])


def test_an_output_layer_without_availability_stays_as_it_is():
    model = mlp(6, (16,), 3, norm="none")
    gates = gateon.attach(model, contexts=2, density=0.5)
    gateon.obstruct(ADAM(model.parameters()), gates, head=False)
    head = model[-1].weight.clone()
    gateon.inherit(gates, parent=0, context=1)
    assert torch.equal(model[-1].weight, head)


def test_without_availabilities_it_is_refused():
    gates = gateon.attach(mlp(6, (16,), 3), contexts=2)
    with pytest.raises(ValueError, match=r"obstruct\(\) them first"):
        gateon.inherit(gates, parent=0, context=1)


def learned(compact, inherit=True, contexts=(0, 1, 0, 2), optimizer=ADAM):
    torch.manual_seed(0)
    method = gateon.GateON(
        per="parameter",
        rate=0.1,
        epsilon=0.0,
        obstruct_head=True,
        density=0.25,
        prefer=3.0,
        inherit=inherit,
    )
    learner = gateon.Learner(
        mlp(6, (64, 48), 3, norm="none").double(),
        optimizer=optimizer,
        method=method,
        compact=compact,
    )
    rule, losses = torch.randn(6, 3, dtype=torch.float64), {}
    for context in contexts:
        for s in range(30):
            x = torch.randn(32, 6, generator=torch.Generator().manual_seed(s), dtype=torch.float64)
            losses.setdefault(context, []).append(
                learner.observe(x, (x @ rule).argmax(1), context=context).loss
            )
    return learner, losses


def test_a_learners_new_contexts_begin_where_the_one_before_them_ended():
    _, losses = learned(compact=True)
    _, afresh = learned(compact=True, inherit=False)
    assert losses[0][:30] == afresh[0][:30]  # the first has no parent
    assert losses[1][0] < 0.8 * afresh[1][0] and losses[2][0] < 0.8 * afresh[2][0]


def test_sub_networks_inherit_as_the_whole_does():
    (part, _), (whole, _) = (
        learned(compactly, optimizer=SMOOTH_ADAM) for compactly in (True, False)
    )
    assert part.is_compact and not whole.is_compact
    assert_same(dict(part.model.named_parameters()), dict(whole.model.named_parameters()))


def test_a_context_that_comes_back_inherits_nothing():
    learner, _ = learned(compact=True, contexts=(0, 1))
    before = {name: p.clone() for name, p in learner.model.named_parameters()}
    learner.switch(0)
    learner.switch(1)
    assert all(torch.equal(p, before[name]) for name, p in learner.model.named_parameters())


def test_it_goes_on_from_a_state_as_if_never_stopped():
    learner, _ = learned(compact=True, contexts=(0, 1))
    other, _ = learned(compact=True, contexts=())
    other.load_state_dict(learner.state_dict())
    x = torch.randn(8, 6, dtype=torch.float64)
    y = torch.randint(0, 3, (8,))
    for one in (learner, other):
        one.observe(x, y, context=2)
    assert torch.equal(learner.predict(x, context=2), other.predict(x, context=2))
