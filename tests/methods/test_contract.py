"""What every method keeps: it learns, its state round-trips, it resumes exactly, it moves nothing outside its claim."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from method_tools import ADAM, SGD, Marked, end, learner_of, reloaded, tiny_cnn, tiny_mlp
from torch import nn
from transformers import BertConfig, BertModel

from easy_tasks import assert_same, batch, train
from gateon import Finetune, Method
from gateon.methods.adahat import AdaHAT
from gateon.methods.both import Both
from gateon.methods.closed_form import NCM, RanPAC
from gateon.methods.dendrites import Dendrites
from gateon.methods.ewc import EWC
from gateon.methods.hat import HAT
from gateon.methods.joint import Joint
from gateon.methods.language.adapters import HatAdapters
from gateon.methods.language.bcl import BCL
from gateon.methods.language.ctr import CTR
from gateon.methods.language.frozen import Frozen
from gateon.methods.lwf import LwF
from gateon.methods.ogd import OGD
from gateon.methods.replay import Replay
from gateon.methods.rmn import RMN
from gateon.methods.si import SI
from gateon.methods.xdg import XdG


@dataclass
class Case:
    """A method, how it is made, and the optimizer it is published with."""

    name: str
    make: Callable[[], Method]
    optimizer: Callable[..., Any] = ADAM

    def learner(self, network, **options):
        return learner_of(network, self.make(), self.optimizer, **options)


METHODS = [
    Case("finetune", Finetune),
    Case("ewc", lambda: EWC(samples=50)),
    Case("ewc-online", lambda: EWC(online=True, decay=0.9, samples=50, labels="sampled")),
    Case("si", SI),
    Case("lwf", LwF),
    Case("replay", lambda: Replay(memory=40, balance="class")),
    Case("joint", Joint),
    Case("ogd", lambda: OGD(memory=10), SGD),
    Case("xdg", lambda: XdG(off=0.5)),
    Case("xdg+si", lambda: Both(XdG(off=0.5), SI())),
    Case("hat", lambda: HAT(steps=4)),
    Case("adahat", lambda: AdaHAT(steps=4)),
    Case("rmn", lambda: RMN(steps=6)),
    Case("ranpac", lambda: RanPAC(width=64)),
    Case("ncm", NCM),
    Case("dendrites", lambda: Dendrites(inputs=8, mean=0.0, std=1.0, on=0.4)),
    Case("dendrites+si", lambda: Both(Dendrites(inputs=8, mean=0.0, std=1.0, on=0.4), SI())),
]

ON_ENCODERS = [
    Case("frozen", lambda: Frozen("layers.encoder")),
    Case("hat-adapters", lambda: HatAdapters(width=8, steps=4, encoder="layers.encoder")),
    Case("bcl", lambda: BCL(width=8, steps=4, encoder="layers.encoder")),
    Case("ctr", lambda: CTR(width=8, steps=4, filters=4, encoder="layers.encoder")),
]
ON_ANYTHING = [case for case in METHODS if case.name in {"finetune", "ewc", "si", "replay"}]


class Sentence(nn.Module):
    """Every number of an input is a token of a tiny BERT."""

    def __init__(self):
        super().__init__()
        small = {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 16,
            "vocab_size": 16,
        }
        self.token, self.head = nn.Linear(1, 16), nn.Linear(128, 3)
        self.encoder = BertModel(
            BertConfig(**small, max_position_embeddings=8), add_pooling_layer=False
        )
        self.encoder.embeddings.word_embeddings.requires_grad_(False)  # which nothing reads

    def forward(self, x):
        return self.head(
            self.encoder(inputs_embeds=self.token(x[..., None])).last_hidden_state.flatten(1)
        )


def tiny_bert():
    return Marked(Sentence())


MATRIX = [(case, network) for case in METHODS for network in (tiny_mlp, tiny_cnn)]
MATRIX += [(case, tiny_bert) for case in (*ON_ANYTHING, *ON_ENCODERS)]
contract = pytest.mark.parametrize(
    ("case", "network"), MATRIX, ids=[f"{case.name}-{network.__name__}" for case, network in MATRIX]
)


def in_second_task(case, network):
    learner = case.learner(network)
    train(learner, 0, 3)
    end(learner, 0)
    train(learner, 1, 2)
    return learner


@contract
def test_it_learns_one_task(case, network):
    losses = train(case.learner(network), 0, 80)
    assert sum(losses[-5:]) < 0.75 * sum(losses[:5])


@contract
def test_it_goes_on_in_the_middle_of_a_task_as_if_never_stopped(case, network, tmp_path):
    def rest(learner):
        seen = train(learner, 1, 9, start=5)
        end(learner, 1)
        return seen + train(learner, 2, 3)

    whole = case.learner(network)
    train(whole, 0, 6)
    end(whole, 0)
    train(whole, 1, 5)
    state = reloaded(whole.state_dict(), tmp_path / "state.safetensors")
    assert_same(state, whole.state_dict())
    losses = rest(whole)
    other, loaded = case.learner(network, seed=5), copy.deepcopy(state)
    other.load_state_dict(state)
    assert rest(other) == losses
    assert_same(state, loaded)  # what was loaded may be loaded again
    assert_same(whole.state_dict(), other.state_dict())


@contract
def test_it_moves_what_is_trained_and_nothing_else(case, network):
    learner = case.learner(network)
    # a method may keep what it knows in the model, in modules of its own
    own = network().state_dict().keys()

    def state():
        return copy.deepcopy(
            {name: value for name, value in learner.model.state_dict().items() if name in own}
        )

    first = state()
    for task in range(2):
        train(learner, task, 4)
        before = state()
        modes = [module.training for module in learner.model.modules()]
        end(learner, task)
        assert_same(before, state())
        assert modes == [module.training for module in learner.model.modules()]
        assert all(p.grad is None for p in learner.model.parameters())
    after = state()
    assert torch.equal(first["shift"], after["shift"]) and torch.equal(first["mark"], after["mark"])
    parameters = {name: p for name, p in learner.model.named_parameters() if name in own}
    moved = {name for name, p in parameters.items() if not torch.equal(first[name], p)}
    assert moved == {name for name, p in parameters.items() if p.requires_grad}


@contract
def test_a_batch_that_is_not_finite_changes_nothing(case, network):
    learner = in_second_task(case, network)
    before = copy.deepcopy(
        {key: value for key, value in learner.state_dict().items() if key != "generator"}
    )
    x, y = batch(1)
    x[0, 0] = float("nan")
    with pytest.raises(FloatingPointError, match="at step 5"):
        learner.observe(x, y, context=1)
    assert_same(
        before, {key: value for key, value in learner.state_dict().items() if key != "generator"}
    )


@contract
def test_predicting_leaves_its_state_alone(case, network):
    learner = in_second_task(case, network)
    before = copy.deepcopy(learner.state_dict())
    learner.predict(batch(0)[0], context=0)
    assert_same(before, learner.state_dict())


@pytest.mark.parametrize("case", [*METHODS, *ON_ENCODERS], ids=lambda c: c.name)
def test_a_method_prepared_again_has_forgotten_its_first_model(case):
    method, network = case.make(), tiny_bert if case in ON_ENCODERS else tiny_mlp
    first = learner_of(network, method, case.optimizer)
    train(first, 0, 3)
    end(first, 0)
    used = train(learner_of(network, method, case.optimizer, seed=3), 0, 4)
    assert used == train(case.learner(network, seed=3), 0, 4)


def test_names_are_those_of_the_command_line_and_replay_is_marked():
    assert [case.name for case in (*METHODS, *ON_ENCODERS)] == [
        case.make().name for case in (*METHODS, *ON_ENCODERS)
    ]
    assert not any(case.make().replay for case in ON_ENCODERS)
    assert [case.make().label_at_test for case in ON_ENCODERS] == [False, True, True, True]
    marked = {case.name for case in METHODS if case.make().replay}
    assert {"replay", "joint"} <= marked and not marked & {
        "finetune",
        "ewc",
        "si",
        "lwf",
        "ogd",
        "xdg",
        "hat",
        "rmn",
        "dendrites",
    }
    labelled = {case.name for case in METHODS if case.make().label_at_test}
    assert labelled == {"xdg", "xdg+si", "hat", "adahat", "rmn"}
