"""Methods on text classifiers: what is frozen, where adapters sit, who may change what, and what tasks hand on to each other."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

import gateon
import rounding
from gateon.anatomy.contextual import show_context
from gateon.anatomy.kinds import is_norm
from gateon.anatomy.wiring import trace
from gateon.learners.training import Outline
from gateon.methods.ewc import EWC
from gateon.methods.language.adapters import Adapter, HatAdapters, branch_ends
from gateon.methods.language.bcl import BCL, AgreementRouting
from gateon.methods.language.capsules import TaskCapsules, routed, squash
from gateon.methods.language.ctr import CTR, TransferRouting
from gateon.methods.language.frozen import Frozen, encoder_of
from gateon.methods.registry import METHODS, make, needs
from gateon.methods.si import SI
from gateon.networks.heads import TaskHeads
from gateon.networks.text import text_classifier
from gateon.storage import checkpoint
from tiny_language import tiny_model

ADAPTERS = {
    "hat-adapters": partial(HatAdapters, width=12, steps=3),
    "bcl": partial(BCL, width=12, steps=3),
    "ctr": partial(CTR, width=12, steps=3, filters=6),
}
EVERY = {"frozen": Frozen, **ADAPTERS, "ewc": partial(EWC, samples=4, strength=1e3), "si": SI}
KINDS = ("bert", "distilbert", "roberta", "electra")
ADAMW, SGD = partial(torch.optim.AdamW, lr=1e-2, weight_decay=0.1), partial(torch.optim.SGD, lr=0.5)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return {kind: tiny_model(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def classifier(made, kind="bert", heads=3, seed=0):
    torch.manual_seed(seed)
    model = text_classifier(made[kind], 2)
    if heads:
        model.head = TaskHeads(model.head.in_features, 2, heads)
    return model


def learner_of(made, method, kind="bert", heads=3, optimizer=ADAMW, seed=0):
    return gateon.Learner(classifier(made, kind, heads, seed), optimizer=optimizer, method=method)


def texts(task, n=6, seed=0, pad=0):
    x = torch.randint(80, 120, (n, 7), generator=torch.Generator().manual_seed(100 * task + seed))
    x[::2, 5:] = pad
    return x, (x[:, 1] > 100).long()


def train(learner, task, steps=3, start=0, pad=0):
    return [
        learner.observe(*texts(task, seed=s, pad=pad), context=task).loss
        for s in range(start, steps)
    ]


def end(learner, task, pad=0):
    learner.end_task(task, [texts(task, seed=s, pad=pad) for s in range(2)])


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("hat-adapters", kind) for kind in KINDS), ("bcl", "bert"), ("ctr", "bert")],
)
def test_two_adapters_in_every_layer_and_only_they_norms_and_heads_learn(made, name, kind):
    learner = learner_of(made, ADAPTERS[name](), kind)
    model = learner.model
    adapters = [module for module in model.modules() if isinstance(module, Adapter)]
    assert len(adapters) == 4
    own = {id(p) for adapter in adapters for p in adapter.parameters()} | {
        id(p) for p in model.head.parameters()
    }
    own |= {id(p) for module in model.modules() if is_norm(module) for p in module.parameters()}
    before, pad = state_of(model), model.pad
    train(learner, 0, pad=pad)
    end(learner, 0, pad=pad)
    train(learner, 1, pad=pad)
    for key, parameter in model.named_parameters():
        if id(parameter) not in own and key in before:
            assert torch.equal(before[key], parameter), key
    moved = {
        key
        for key, p in model.named_parameters()
        if key in before and not torch.equal(before[key], p)
    }
    for part in ("specific.0.weight", "specific.2.weight", "head.weight"):
        assert any(key.endswith(part) for key in moved)
    assert any("orm" in key and "unit_module" not in key for key in moved)


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_sit_behind_attention_and_feed_forward_before_the_residual_sum(made, kind):
    encoder = text_classifier(made[kind], 2).encoder
    ends = branch_ends(trace(encoder))
    assert list(ends.values()) == [32] * 4
    for layer in range(2):
        here = [name for name in ends if f".{layer}." in name]
        assert len(here) == 2 and "attention" in here[0] and "attention" not in here[1]


def test_an_encoder_without_residual_sums_is_refused_with_its_candidates():
    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(
                *(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))
            )
            self.head = nn.Linear(8, 2)

        def forward(self, x):
            return self.head(self.encoder(x))

    model = Chain()
    before = state_of(model)
    with pytest.raises(
        ValueError,
        match=r"No layer of Sequential ends a branch .* places= some of 0\.0, 1\.0, 2\.0",
    ):
        HatAdapters(width=4).prepare(model)
    assert before.keys() == model.state_dict().keys() and all(
        p.requires_grad for p in model.parameters()
    )
    HatAdapters(width=4, places=("1.*",)).prepare(model)
    assert [name for name, m in model.named_modules() if isinstance(m, Adapter)] == [
        "encoder.1.0.unit_module"
    ]
    with pytest.raises(ValueError, match="No layer matches"):
        HatAdapters(width=4, places=("attention*",)).prepare(Chain())
    with pytest.raises(ValueError, match="width must be a whole number"):
        HatAdapters(width=0).prepare(Chain())


def test_the_encoder_is_found_in_classifiers_of_transformers_too():
    from transformers import BertConfig, BertForSequenceClassification

    small = BertConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        vocab_size=20,
    )
    model = BertForSequenceClassification(small)
    assert encoder_of(model) == "bert"
    Frozen().prepare(model)
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {
        "classifier.weight",
        "classifier.bias",
    }
    with pytest.raises(ValueError, match="Nothing of BertModel would be learned"):
        Frozen().prepare(model.bert)
    with pytest.raises(
        ValueError, match="has no child called encoder: name it, encoder= one of 0, 1"
    ):
        Frozen().prepare(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="has no module 'body'"):
        Frozen("body").prepare(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))


def test_a_frozen_encoder_stays_as_it_is_to_the_bit(made):
    learner = learner_of(made, Frozen())
    before = state_of(learner.model)
    train(learner, 0)
    after = learner.model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"head.weight", "head.bias"}


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("hat-adapters", ADAMW), ("hat-adapters", SGD), ("bcl", ADAMW), ("ctr", ADAMW)],
)
def test_units_that_a_past_task_uses_do_not_move_and_others_do(made, name, optimizer):
    learner = learner_of(made, ADAPTERS[name](), optimizer=optimizer)
    train(learner, 0)
    end(learner, 0)
    for mask in learner.method.masks.values():  # half of the units are in full use
        mask.cumulative.copy_(torch.arange(len(mask.cumulative)) % 2)
    learner.method._factors.clear()
    layers = [
        (m.specific[0], m.specific[2]) for m in learner.model.modules() if isinstance(m, Adapter)
    ]
    before = [
        [p.detach().clone() for layer in pair for p in (layer.weight, layer.bias)]
        for pair in layers
    ]
    train(learner, 1, 6)
    for (first, second), (w1, b1, w2, b2) in zip(layers, before, strict=True):
        assert torch.equal(first.weight[1::2], w1[1::2]) and torch.equal(first.bias[1::2], b1[1::2])
        assert torch.equal(second.weight[1::2, 1::2], w2[1::2, 1::2]) and torch.equal(
            second.bias[1::2], b2[1::2]
        )
    assert any(
        not torch.equal(first.weight[::2], w1[::2])
        for (first, _), (w1, *_) in zip(layers, before, strict=True)
    )
    assert any(
        not torch.equal(second.weight[:, ::2], w2[:, ::2])
        for (_, second), (*_, w2, _) in zip(layers, before, strict=True)
    )


def test_masks_harden_once_in_an_epoch_where_a_run_tells_how_long_it_is(made):
    learner = learner_of(made, HatAdapters(width=4, steps=7))
    assert {mask.cycle for mask in learner.method.masks.values()} == {7}
    for (epoch, steps), cycle in {(5, 20): 5, (50, 20): 20, (1, 20): 2}.items():
        learner.expect(Outline(steps=steps, epoch=epoch))
        assert {mask.cycle for mask in learner.method.masks.values()} == {cycle}


def test_what_expands_shared_knowledge_is_masked_too(made):
    learner = learner_of(made, ADAPTERS["bcl"]())
    expands = [name for name in learner.method.masks if name.endswith("shared.expand")]
    assert len(expands) == 4 and len(learner.method.masks) == 12
    train(learner, 0)
    end(learner, 0)
    for mask in learner.method.masks.values():
        mask.cumulative.fill_(1)
    learner.method._factors.clear()
    layers = [learner.model.get_submodule(name) for name in expands]
    before = [layer.weight.clone() for layer in layers]
    train(learner, 1)
    assert all(torch.equal(a, layer.weight) for a, layer in zip(before, layers, strict=True))


@pytest.mark.numeric
def test_routing_coefficients_sum_to_one_and_agreement_raises_them():
    votes = torch.randn(5, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    s, c = routed(votes, 3)
    assert (
        c.shape == (5, 4, 3) and torch.allclose(c.sum(1), torch.ones(5, 3)) and bool((c > 0).all())
    )
    assert torch.allclose(s, (c[..., None] * votes).sum(1), atol=1e-6)
    b = torch.zeros(5, 4, 3)  # the same, literally
    for _ in range(2):
        v = squash(torch.einsum("nij,nijc->njc", b.softmax(1), votes))
        b = b + torch.einsum("nijc,njc->nij", votes, v)
    assert torch.allclose(c, b.softmax(1), atol=1e-6)
    agreed = torch.tensor([[[1.0, 0.0]], [[1.0, 0.1]], [[-1.0, 0.0]]])
    assert routed(agreed, 3)[1][2] < routed(agreed, 1)[1][2]


@pytest.mark.parametrize(
    "make",
    [lambda: AgreementRouting(8, 3, 3, 3, (0, 0)), lambda: TransferRouting(8, 3, 3, 5, (0, 0))],
)
def test_later_tasks_have_no_part_in_an_earlier_one_and_earlier_ones_have_in_a_later(make):
    routing, x = make().eval(), torch.randn(2, 6, 8)
    show_context(routing, 2)
    assert routing.capsules(x).shape == (2, 6, 3, 3, 3)

    def outputs():
        found = []
        for context in range(3):
            show_context(routing, context)
            found.append(routing(x).detach())
        return found

    if isinstance(routing, TransferRouting):  # so that earlier tasks are taken over at all
        nn.init.constant_(routing.decision.bias, 0)
        routing.decision.bias.data[0] = 9.0
    before = outputs()
    with torch.no_grad():
        routing.capsules.maps[1].mul_(-2)
    after = outputs()
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1]) and not torch.equal(before[2], after[2])
    show_context(routing, 0)
    routing(x).sum().backward()
    assert [p.grad is not None and bool(p.grad.any()) for p in routing.capsules.maps] == [
        True,
        False,
        False,
    ]


def test_decisions_are_zero_or_one_for_previous_tasks_and_learn_by_the_soft_choice():
    routing = TransferRouting(8, 3, 3, 5, (0, 0))
    show_context(routing, 3)
    votes = routing.capsules(torch.randn(40, 6, 8)).flatten(-2)
    of_use, similarity = routing.compared(votes)
    assert of_use.shape == (40, 4) and similarity.shape == (40, 4, 9)
    assert set(of_use[:, :-1].unique().tolist()) == {0.0, 1.0} and bool((of_use[:, -1] == 1).all())
    of_use[:, :-1].sum().backward()
    assert routing.decision.weight.grad is not None and bool(routing.decision.weight.grad.any())
    routing.eval()
    again, _ = routing.compared(votes)
    assert torch.equal(again, routing.compared(votes)[0])
    show_context(routing, 0)  # no task before: nothing to decide
    assert (
        routing.compared(routing.capsules(torch.randn(3, 6, 8)).flatten(-2))[0].tolist()
        == [[1.0]] * 3
    )


@pytest.mark.numeric
def test_a_decision_of_zero_leaves_a_task_out():
    routing = TransferRouting(8, 3, 3, 5, (0, 0)).eval()
    show_context(routing, 1)
    x = torch.randn(2, 6, 8)

    def changes(bias):
        with torch.no_grad():
            routing.decision.bias.copy_(torch.tensor(bias))
            before = routing(x)
            kept = routing.similarity.bias.clone()
            routing.capsules.routes[0].mul_(3)
            after = routing(x)
            routing.capsules.routes[0].div_(3)
            routing.similarity.bias.copy_(kept)
        return not torch.allclose(before, after, atol=1e-7)

    assert changes([9.0, -9.0]) and not changes([-9.0, 9.0])


@pytest.mark.numeric
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_prediction_does_not_depend_on_how_far_a_text_was_padded(made, name):
    learner = learner_of(made, ADAPTERS[name]())
    train(learner, 0)
    end(learner, 0)
    train(learner, 1)
    x = texts(1)[0]
    longer = torch.cat([x, torch.randint(80, 120, (1, 7))])
    longer = torch.cat(
        [longer, torch.cat([torch.zeros(6, 5, dtype=torch.long), torch.randint(80, 120, (1, 5))])],
        1,
    )
    rounding.assert_same(learner.predict(x, context=1), learner.predict(longer, context=1)[:6])


def test_capsules_of_a_task_do_not_depend_on_how_many_there_are():
    one, other = (TaskCapsules(8, 3, 3, (4, 1)) for _ in range(2))
    show_context(one, 2)
    other.load_state_dict(one.state_dict())
    assert other.contexts == 3
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not torch.equal(one.maps[0], one.maps[1])
    assert TaskCapsules(8, 3, 3, (4, 2)).maps[0].ne(one.maps[0]).any()


@pytest.mark.parametrize("name", EVERY)
def test_it_goes_on_in_the_middle_of_a_task_as_if_never_stopped(made, name, tmp_path):
    def rest(learner):
        seen = train(learner, 1, 4, start=2)
        end(learner, 1)
        return seen + train(learner, 2, 2)

    heads = int(name in ADAPTERS)
    whole = learner_of(made, EVERY[name](), heads=heads)
    train(whole, 0)
    end(whole, 0)
    train(whole, 1, 2)
    checkpoint.save(whole.state_dict(), tmp_path / "state.safetensors")
    state = checkpoint.load(tmp_path / "state.safetensors")
    losses = rest(whole)
    other = learner_of(made, EVERY[name](), heads=heads, seed=7)
    other.load_state_dict(state)
    assert rest(other) == losses
    one, two = whole.model.state_dict(), other.model.state_dict()
    assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("name", EVERY)
def test_it_learns_and_predicts_without_changing_anything(made, name):
    learner = learner_of(made, EVERY[name](), optimizer=partial(torch.optim.Adam, lr=1e-2))
    x, y = texts(0, 16)
    losses = [learner.observe(x, y, context=0).loss for _ in range(25)]
    assert sum(losses[-3:]) < 0.97 * sum(losses[:3])
    before = state_of(learner.model)
    learner.predict(x, context=0)
    assert all(torch.equal(before[key], value) for key, value in learner.model.state_dict().items())


@pytest.mark.numeric
def test_fisher_information_of_a_transformer_is_that_of_single_samples(made):
    model = classifier(made, heads=0).eval()
    (x, y), p = texts(0, 3), dict(model.named_parameters())
    from gateon.methods.ewc import fisher
    from gateon.methods.shared.samples import gathered

    found = fisher(model, gathered([(x, y)], 0, torch.Generator()), "empirical", torch.Generator())
    names = [
        "head.weight",
        "encoder.encoder.layer.0.attention.self.query.weight",
        "encoder.embeddings.LayerNorm.weight",
    ]
    for name in names:
        expected = torch.zeros_like(p[name])
        for row, label in zip(x, y, strict=True):
            log = model(row[None]).log_softmax(1)[0, label]
            expected += torch.autograd.grad(log, p[name])[0].square() / len(y)
        rounding.assert_same(found[name], expected, f"{name}: ")


def test_names_of_the_command_line_give_these_methods():
    language = {name for name in METHODS if "language" in needs(name)}
    assert language == {"frozen", "hat-adapters", "bcl", "ctr", "lamol"}
    for name in language:
        method = make(name, {}, {"steps": 7}, seed=2)
        assert method.name == name
        if name in ADAPTERS:
            assert (method.steps, method.seed, method.width) == (7, 2, 2000)
            assert (method.s_max, method.strength) == (400, 0.75)
            assert make(name, {"width": 64}, {"steps": 7}, seed=0).width == 64
    with pytest.raises(ValueError, match="LAMOL learns with a learner of its own"):
        gateon.Learner(
            nn.Linear(2, 2),
            optimizer=partial(torch.optim.SGD, lr=0.1),
            method=make("lamol", {}, {}, seed=0),
        )
    with pytest.raises(ValueError, match=r"frozen has no option --method.width"):
        make("frozen", {"width": 64}, {}, seed=0)
