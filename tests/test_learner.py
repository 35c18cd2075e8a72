"""The learner, and the contract every method keeps: learns, round-trips its state, moves nothing outside its claim."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

import gateon
from easy_tasks import Explodes, assert_same, batch, train
from gateon.networks import mlp

ADAM = partial(torch.optim.Adam, lr=5e-3)


def small_mlp():
    return mlp(8, (24, 24), 3)


def small_cnn():
    return gateon.context_norms(
        nn.Sequential(
            nn.Unflatten(1, (1, 2, 4)),
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64, 16),
            nn.ReLU(),
            nn.Linear(16, 3),
        )
    )


class TinyBert(nn.Module):
    """A BERT that reads the sign of eight numbers as tokens."""

    def __init__(self):
        super().__init__()
        config = BertConfig(
            vocab_size=20,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            num_labels=3,
            hidden_dropout_prob=0.1,
        )
        self.bert = BertForSequenceClassification(config)

    def forward(self, x):
        return self.bert(input_ids=torch.arange(8) * 2 + (x > 0)).logits


def tiny_bert():
    return TinyBert()


NETWORKS = [small_mlp, small_cnn, tiny_bert]


def methods(network):
    example = torch.zeros(2, 8) if network is tiny_bert else None
    start = 0.9 if network is tiny_bert else "random"
    base = partial(gateon.GateON, example=example, start=start, density=0.5, width=1.0, power=1)
    return {
        "n-gateon": lambda: base(per="unit"),
        "p-gateon": lambda: base(per="parameter", epsilon=0.0),
        "n-gateon at once": lambda: base(per="unit", apply="step", obstruct_head=True),
        "gating-only": lambda: gateon.gating_only(base()),
        "obstruction-only": lambda: gateon.obstruction_only(base()),
        "finetune": gateon.Finetune,
    }


NAMES = list(methods(small_mlp))


def made(network, name, seed=0, **options):
    torch.manual_seed(seed)
    return gateon.Learner(
        network(),
        optimizer=options.pop("optimizer", ADAM),
        method=methods(network)[name](),
        **options,
    )


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", NAMES)
def test_every_method_learns_a_task(network, name):
    learner = made(
        network,
        name,
        optimizer=partial(torch.optim.Adam, lr=2e-2 if network is tiny_bert else 5e-3),
    )
    losses = train(learner, 0, 80)
    assert sum(losses[-5:]) < 0.85 * sum(losses[:5])


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", NAMES)
def test_going_on_from_a_state_is_going_on(network, name):
    schedule = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=50)
    whole = made(network, name, schedule=schedule)
    train(whole, 0, 5)
    train(whole, 1, 4)
    state = copy.deepcopy(whole.state_dict())
    after = [whole.observe(*batch(1, seed=s), context=1) for s in range(4, 8)] + [
        whole.observe(*batch(2), context=2)
    ]
    other = made(network, name, seed=5, schedule=schedule)
    other.load_state_dict(state)
    again = [other.observe(*batch(1, seed=s), context=1) for s in range(4, 8)] + [
        other.observe(*batch(2), context=2)
    ]
    assert after == again
    assert_same(whole.state_dict(), other.state_dict())


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
@pytest.mark.parametrize("name", ["n-gateon", "p-gateon", "gating-only"])
def test_units_outside_a_context_are_not_moved_by_it(network, name):
    learner = made(network, name)
    train(learner, 0, 10)
    learner.observe(*batch(1), context=1)
    gates = gateon.gates_of(learner.model)
    closed = {name: gain == 0 for name, gain in gates.gain(1).items()}
    before = {k: v.clone() for k, v in learner.model.state_dict().items()}
    rows = {name: gate.weight[0].clone() for name, gate in gates.gates.items()}
    train(learner, 1, 10)
    after = learner.model.state_dict()
    moved = 0
    for site, mask in closed.items():
        for key in (f"{site}.weight", f"{site}.bias"):
            assert torch.equal(after[key][mask], before[key][mask])
            moved += (after[key][~mask] != before[key][~mask]).sum()
        assert torch.equal(gates.gates[site].weight[0], rows[site])
    assert moved > 0


@pytest.mark.numeric
def test_gateon_forgets_less_than_finetuning():
    def forgetting(name):
        learner = made(lambda: mlp(8, (128, 128), 3), name)
        train(learner, 0, 120)
        x, y = batch(0, 500, seed=999)
        first = (learner.predict(x, context=0).argmax(1) == y).float().mean()
        for task in (1, 2, 3):
            train(learner, task, 120)
        return first - (learner.predict(x, context=0).argmax(1) == y).float().mean()

    plain = forgetting("finetune")
    assert plain > 0.2
    assert forgetting("n-gateon") < 0.5 * plain and forgetting("p-gateon") < 0.3 * plain


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_a_loss_that_is_not_finite_changes_nothing_and_names_the_step(network, bad):
    learner = made(network, "n-gateon")
    train(learner, 0, 3)
    before = copy.deepcopy(learner.state_dict())
    x, y = batch(0)
    x[3, 2] = bad
    with pytest.raises(FloatingPointError, match="at step 3 in context 0"):
        learner.observe(x, y, context=0)
    assert_same(before, learner.state_dict())
    learner.observe(*batch(0), context=0)


def test_predicting_changes_nothing_and_uses_the_context_asked_for():
    learner = made(small_mlp, "n-gateon")
    train(learner, 0, 5)
    train(learner, 1, 5)
    before = copy.deepcopy(learner.state_dict())
    x, _ = batch(0)
    first, second = learner.predict(x, context=0), learner.predict(x, context=1)
    assert not torch.equal(first, second) and torch.equal(second, learner.predict(x))
    assert_same(before, learner.state_dict())
    assert learner.model.training
    with pytest.raises(IndexError, match="Context 7"):
        learner.predict(x, context=7)


def test_the_optimizer_starts_anew_at_a_switch_and_the_availability_does_not():
    learner = made(small_mlp, "n-gateon")
    train(learner, 0, 10)
    old, availability = (
        learner.optimizer,
        {k: v.clone() for k, v in learner.method.handle.availability.items()},
    )
    assert learner.observe(*batch(1), context=1).switched
    assert learner.optimizer is not old and not learner.observe(*batch(1), context=1).switched
    assert any((A < 1).any() for A in availability.values())
    for name, applied in learner.method.handle.applied.items():
        assert torch.equal(applied, availability[name])


def test_bf16_autocast_keeps_weights_and_availabilities_in_float32():
    learner = made(small_mlp, "n-gateon", precision="bf16")
    losses = train(learner, 0, 40)
    assert losses[-1] < losses[0]
    assert {p.dtype for p in learner.model.parameters()} == {torch.float32}
    assert {A.dtype for A in learner.method.handle.availability.values()} == {torch.float32}


def test_presets_are_the_papers_the_codes_and_the_best():
    assert (
        gateon.preset("best") == gateon.GateON()
        and gateon.preset("paper", "parameter").per == "parameter"
    )
    with pytest.raises(ValueError, match="choose one of room, paper, released, language, best"):
        gateon.preset("papper")


def test_an_optimizer_in_the_place_of_a_factory_is_told_so():
    model = small_mlp()
    with pytest.raises(TypeError, match="factory"):
        gateon.Learner(model, optimizer=torch.optim.Adam(model.parameters()))
    with pytest.raises(ValueError, match="precision"):
        gateon.Learner(model, optimizer=ADAM, precision="fp8")
    with pytest.raises(IndexError, match="Context -1"):
        made(small_mlp, "n-gateon").observe(*batch(0), context=-1)


@pytest.mark.parametrize("wrong", [-1, "a", 1.5, True])
def test_a_context_that_cannot_be_leaves_the_learner_as_it_was(wrong):
    learner, twin = made(small_mlp, "n-gateon"), made(small_mlp, "n-gateon")
    for one in (learner, twin):
        train(one, 0, 3)
    with pytest.raises(IndexError, match="whole numbers"):
        learner.observe(*batch(0), context=wrong)
    for one in (learner, twin):
        one.observe(*batch(0, seed=9), context=0)
    assert_same(learner.state_dict()["model"], twin.state_dict()["model"])


@pytest.mark.parametrize("name", ["n-gateon", "p-gateon"])
def test_a_gradient_that_is_not_finite_poisons_no_later_batch(name):
    learner, twin = made(small_mlp, name), made(small_mlp, name)
    for one in (learner, twin):
        train(one, 0, 3)
    usual, learner.loss = learner.loss, lambda output, y: Explodes.apply(output).square().mean()
    with pytest.raises(FloatingPointError, match="Nothing was changed"):
        learner.observe(*batch(0, seed=7), context=0)
    learner.loss = usual
    for one in (learner, twin):
        one.observe(*batch(0, seed=9), context=0)
    assert_same(learner.state_dict()["model"], twin.state_dict()["model"])


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"relevance": "grad"}, "relevance must be"),
        ({"apply": "stepp"}, "apply must be"),
        ({"floor": 2.0}, "floor must be between"),
        ({"epsilon": -1.0}, "epsilon must be at least"),
        ({"rate": -0.1}, "at least 0"),
        ({"frozen": "nothing*"}, "No parameter matches"),
    ],
)
def test_settings_that_mean_nothing_are_refused_before_the_model_is_changed(wrong, words):
    model = small_mlp()
    with pytest.raises(ValueError, match=words):
        gateon.Learner(model, optimizer=ADAM, method=gateon.GateON(**wrong))
    assert gateon.gates_of(model) is None


def test_the_learner_tells_whether_it_works_on_the_sub_network():
    learner = made(small_mlp, "n-gateon")
    assert not learner.is_compact
    train(learner, 0, 1)
    assert learner.is_compact
    decayed = made(
        small_mlp, "n-gateon", optimizer=partial(torch.optim.Adam, lr=1e-3, weight_decay=0.1)
    )
    train(decayed, 0, 1)
    assert not decayed.is_compact
