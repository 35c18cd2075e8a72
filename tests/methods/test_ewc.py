"""EWC: the Fisher information of single samples, the sum of quadratics as one, and what it is for."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from method_tools import SGD, end, forgets_less, learner_of, tiny_cnn, tiny_mlp
from torch import nn

from easy_tasks import batch, train
from gateon import GateON, Learner, attach, obstruct
from gateon.anatomy.contextual import show_context
from gateon.gating.gates import gates_of
from gateon.methods.both import Both
from gateon.methods.ewc import EWC, fisher
from gateon.methods.ogd import OGD
from gateon.methods.shared.calls import trainable
from gateon.methods.shared.quadratic import energy
from gateon.methods.shared.samples import gathered
from gateon.methods.si import SI
from gateon.networks import mlp
from gateon.networks.heads import with_task_heads
from rounding import assert_same

pytestmark = pytest.mark.numeric


class Odd(nn.Module):
    """A layer called twice, one that reads several vectors a sample, weights tied to an embedding, and a gate behind a layer."""

    def __init__(self):
        super().__init__()
        self.embed, self.twice, self.out = (
            nn.Embedding(5, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 5, bias=False),
        )
        self.first, self.last = nn.Linear(4, 4), nn.Linear(5, 3)
        self.out.weight = self.embed.weight
        self.first.register_forward_hook(lambda layer, args, output: 0.5 * output)

    def forward(self, x):
        tokens = self.embed(x.abs().long().clamp(max=4))
        hidden = self.twice(torch.tanh(self.twice(tokens))).mean(1)
        return self.last(torch.tanh(self.out(torch.tanh(self.first(hidden)))))


def literal(model, x, labels):
    """One sample and one class at a time: sum_y weight_y (d log p(y | x))^2, averaged."""
    model.eval()
    parameters = trainable(model)
    sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for n in range(len(x)):
        p = model(x[n : n + 1]).softmax(1)[0].detach()
        chosen = range(len(p)) if labels is None else [int(labels[n])]
        for y in chosen:
            log_p = model(x[n : n + 1]).log_softmax(1)[0, y]
            gradients = torch.autograd.grad(log_p, list(parameters.values()), allow_unused=True)
            for name, g in zip(parameters, gradients, strict=True):
                if g is not None:
                    sums[name] += (p[y] if labels is None else 1) * g**2
    return {name: total / len(x) for name, total in sums.items()}


@pytest.mark.parametrize("network", [tiny_mlp, tiny_cnn, Odd])
@pytest.mark.parametrize("labels", ["exact", "empirical"])
def test_the_fisher_information_is_that_of_single_samples(network, labels):
    torch.manual_seed(0)
    model = network().double()
    x = 2 * batch(0, 11)[0].double()
    y = batch(0, 11)[1]
    samples = gathered([(x[:6], y[:6]), (x[6:], y[6:])], 0, torch.Generator())
    found = fisher(model, samples, labels, torch.Generator())
    expected = literal(model, x, None if labels == "exact" else y)
    assert found.keys() == expected.keys()
    for name, F in expected.items():
        assert F.max() > 0
        assert_same(found[name].float(), F.float())  # outputs are read in float32


def test_labels_drawn_from_the_prediction_agree_with_the_expectation_in_the_mean():
    torch.manual_seed(0)
    model = nn.Linear(8, 3)
    samples = gathered([batch(0, 20)], 0, torch.Generator())
    exact = fisher(model, samples, "exact", torch.Generator())["weight"]
    generator = torch.Generator().manual_seed(1)
    draws = torch.stack(
        [fisher(model, samples, "sampled", generator)["weight"] for _ in range(400)]
    )
    assert not torch.equal(draws[0], draws[1])
    error = draws.std(0) / 20
    assert ((draws.mean(0) - exact).abs() < 5 * error + 1e-6).all()
    empirical = fisher(model, samples, "empirical", torch.Generator())["weight"]
    assert ((empirical - exact).abs() > 5 * error).any()


def test_squaring_the_gradient_of_a_batch_is_something_else():
    torch.manual_seed(0)
    model, (x, y) = nn.Linear(8, 3), batch(0, 50)
    found = fisher(model, gathered([(x, y)], 0, torch.Generator()), "empirical", torch.Generator())[
        "weight"
    ]
    (mean,) = torch.autograd.grad(
        model(x).log_softmax(1)[torch.arange(50), y].mean(), [model.weight]
    )
    assert (mean**2).sum() < 0.5 * found.sum()


@pytest.mark.parametrize("online", [False, True])
def test_the_penalty_and_its_gradient_are_the_published_sum(online):
    learner = learner_of(tiny_mlp, EWC(strength=7.0, online=online, decay=0.5, samples=None), SGD)
    method, model = learner.method, learner.model
    past = []
    for task in range(3):
        train(learner, task, 5)
        data = [batch(task, seed=s) for s in range(3)]
        F = fisher(model, gathered(data, task, torch.Generator()), "exact", torch.Generator())
        past.append((F, {name: p.detach().clone() for name, p in trainable(model).items()}))
        learner.end_task(task, data)
    if online:
        running = {
            name: sum(0.5 ** (2 - k) * F[name] for k, (F, _) in enumerate(past))
            for name in past[0][0]
        }
        past = [(running, past[-1][1])]
    with torch.no_grad():
        for p in trainable(model).values():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    value = (
        7.0
        / 2
        * sum((F[n] * (p - c[n]) ** 2).sum() for F, c in past for n, p in trainable(model).items())
    )
    assert_same(method.value(model), value.detach())
    value.backward()
    expected = {name: p.grad.clone() for name, p in trainable(model).items()}
    before = {name: p.detach().clone() for name, p in trainable(model).items()}
    learner.optimizer.zero_grad()
    for p in trainable(model).values():
        p.grad = torch.zeros_like(p)
    learner.optimizer.step()  # the hook alone moves the parameters
    for name, p in trainable(model).items():
        assert_same((before[name] - p.detach()) / 0.1, expected[name])


def test_the_penalty_is_nothing_before_the_first_task_ends_and_grows_as_the_second_is_learned():
    learner = learner_of(tiny_mlp, EWC())
    train(learner, 0, 20)
    assert learner.method.value(learner.model) == 0
    end(learner, 0)
    assert learner.method.value(learner.model) == 0 and all(
        (F >= 0).all() for F in learner.method.importance.values()
    )
    assert sum(F.sum() for F in learner.method.importance.values()) > 0
    values = []
    for s in range(3):
        learner.observe(*batch(1, seed=s), context=1)
        values.append(float(learner.method.value(learner.model)))
    assert 0 < values[0] < values[1] < values[2]


def test_strength_zero_is_plain_and_a_great_strength_holds_the_parameters():
    def moved(strength):
        learner = learner_of(tiny_mlp, EWC(strength=strength), partial(torch.optim.SGD, lr=1e-3))
        train(learner, 0, 20)
        end(learner, 0)
        losses = train(learner, 1, 20)
        return float(
            energy(learner.model, learner.method.importance, learner.method.centre)
        ), losses

    plain = learner_of(tiny_mlp, None, partial(torch.optim.SGD, lr=1e-3))
    train(plain, 0, 20)
    assert moved(0.0)[1] == train(plain, 1, 20)
    assert moved(3e3)[0] < 0.5 * moved(0.0)[0]


def test_it_forgets_less_than_finetuning():
    for method in (EWC(strength=300.0, samples=300), EWC(strength=300.0, samples=300, online=True)):
        assert forgets_less(method, margin=0.05)


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"strength": -1.0}, "strength must be a finite number of at least 0"),
        ({"strength": float("nan")}, "strength"),
        ({"decay": -0.1}, "decay"),
        ({"labels": "true"}, "labels must be one of exact"),
        ({"samples": 0}, "at least 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        EWC(**wrong)


def test_a_task_without_data_is_told_and_changes_nothing():
    learner = learner_of(tiny_mlp, EWC())
    train(learner, 0, 2)
    with pytest.raises(ValueError, match="Task 0 ended without data"):
        learner.end_task(0, [])
    assert learner.method.importance == {} and learner.method.tasks == 0


def test_a_parameter_that_changed_its_shape_or_went_away_is_named():
    learner = learner_of(tiny_mlp, EWC())
    train(learner, 0, 2)
    end(learner, 0)
    learner.model.layers[5] = nn.Linear(24, 4)
    with pytest.raises(
        ValueError,
        match=r"'layers.5.weight' was \(3, 24\) when it was last seen and is \(4, 24\) now",
    ):
        learner.observe(*batch(1), context=1)
    with pytest.raises(ValueError, match="layers"):
        end(learner, 1)
    learner.model.layers[5] = nn.Identity()
    with pytest.raises(ValueError, match=r"'layers\.5\.weight' .* is gone"):
        end(learner, 1)


def test_parameters_that_are_new_have_no_past():
    learner = learner_of(tiny_mlp, EWC())
    train(learner, 0, 2)
    end(learner, 0)
    learner.model.extra = nn.Parameter(torch.zeros(3))
    train(learner, 1, 2)
    end(learner, 1)
    assert not learner.method.importance["extra"].any()


def test_norms_that_mix_the_samples_of_a_batch_are_refused():
    for model in (
        mlp(8, (4,), 3, norm="batch"),
        nn.Sequential(nn.Linear(8, 3), nn.BatchNorm1d(3, track_running_stats=False)),
    ):
        with pytest.raises(ValueError, match="uses the statistics of the batch"):
            learner_of(lambda model=model: model, EWC())


def test_a_state_of_another_model_is_refused_and_nothing_is_taken_over():
    learner = learner_of(tiny_mlp, EWC())
    train(learner, 0, 2)
    end(learner, 0)
    other = learner_of(tiny_cnn, EWC())
    with pytest.raises(ValueError, match="The parameter 'layers"):
        other.method.load_state_dict(learner.method.state_dict())
    assert other.method.importance == {}
    with pytest.raises(ValueError, match="call prepare"):
        EWC().load_state_dict(learner.method.state_dict())


@pytest.mark.parametrize("make", [EWC, SI, partial(OGD, memory=5)])
def test_on_a_gated_model_it_looks_after_the_shared_weights_and_leaves_relevance_alone(make):
    torch.manual_seed(0)
    optimizer = partial(torch.optim.SGD, lr=0.1)
    gated = Learner(tiny_mlp(), optimizer=optimizer, method=Both(GateON(density=1.0), make()))
    for context in range(3):
        x, y = batch(context)
        gated.observe(x, y, context=context)
        taps = [gate.tap for gate in gates_of(gated.model).gates.values()]
        gated.end_task(context, [(x, y)])
        assert [gate.tap for gate in gates_of(gated.model).gates.values()] == taps
        assert all(tap.grad is None for tap in taps)
    state = gated.method.second.state_dict()
    kept = state.get("importance") or state["shapes"]
    assert kept.keys() == trainable(gated.model).keys() and not any("gate" in name for name in kept)


def test_the_fisher_information_of_a_gated_model_is_that_of_its_context():
    torch.manual_seed(0)
    model = tiny_mlp()
    gates = attach(model, contexts=2, density=0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    obstruct(optimizer, gates)
    gates.switch(1)
    x, y = batch(0)
    found = fisher(model, gathered([(x, y)], 0, torch.Generator()), "exact", torch.Generator())
    expected = literal(model, x, None)
    assert_same(found, expected)
    site, gain = next(iter(gates.gain(1).items()))
    rows = found[f"{site}.weight"].any(1)
    assert torch.equal(rows | (gain > 0), gain > 0) and 0 < rows.sum() < len(rows)


def test_the_fisher_information_of_a_head_for_every_task_is_that_of_the_active_one():
    torch.manual_seed(0)
    model = with_task_heads(mlp(8, (6,), 3, norm="none"))
    show_context(model, 1)
    x, y = batch(0)
    found = fisher(model, gathered([(x, y)], 0, torch.Generator()), "exact", torch.Generator())
    expected = literal(model, x, None)
    assert_same(found, expected)
    heads = [name for name in expected if name.endswith(("weight_1", "bias_1"))]
    assert len(heads) == 2 and all(found[name].any() for name in heads)
