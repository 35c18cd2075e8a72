"""The learner protocol: a run takes whatever fits it, and all learners of the library do."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

import gateon
from gateon import streams
from gateon.detection.infer import Observation
from gateon.learners.isolated import Isolated
from gateon.learners.lamol import Lamol
from gateon.learners.protocol import AnyLearner
from gateon.learners.zoo import Zoo

SGD = partial(torch.optim.SGD, lr=0.1)
ASKED = [name for name in vars(AnyLearner) if not name.startswith("_")]


class NearestMean:
    """A learner without a network: the mean of every class in every context."""

    name, replay, label_at_test, separate, contexts = "means", False, True, False, None
    description = {"method": "NearestMean()"}  # noqa: RUF012

    def __init__(self):
        self.model, self.context = nn.Module(), None
        self.sums, self.counts = torch.zeros(0, 2, 784), torch.zeros(0, 2)
        self.told = []

    def expect(self, outline):
        self.told.append(outline.steps)

    def switch(self, context):
        other, self.context = context != self.context, context
        missing = max(0, context + 1 - len(self.sums))
        self.sums = torch.cat([self.sums, torch.zeros(missing, 2, 784)])
        self.counts = torch.cat([self.counts, torch.zeros(missing, 2)])
        return other

    def observe(self, x, y, context=None):
        switched = self.switch(context)
        self.sums[context].index_add_(0, y, x.flatten(1))
        self.counts[context].index_add_(0, y, torch.ones(len(y)))
        loss = nn.functional.cross_entropy(self.predict(x, context), y).item()
        return Observation(loss, context, switched)

    def predict(self, x, context=None):
        means = self.sums[context] / self.counts[context].clamp_min(1)[:, None]
        return -torch.cdist(x.flatten(1), means)

    def end_task(self, task, data):
        assert sum(len(y) for _, y in data) > 0

    def state_dict(self):
        return {"sums": self.sums, "counts": self.counts, "context": self.context}

    def load_state_dict(self, state, inputs=None):
        self.sums, self.counts, self.context = (state[k] for k in ("sums", "counts", "context"))


def test_a_users_own_learner_runs_and_resumes(tmp_path):
    stream = streams.split_mnist(data="mnist-5k")
    whole = gateon.run(stream, NearestMean(), steps=4, batch=50)
    assert whole.name == "split-mnist means" and whole.summary["continual_accuracy"] > 0.8

    class Stops(NearestMean):
        def observe(self, x, y, context=None):
            if context == 2:
                raise ValueError("stop")
            return super().observe(x, y, context)

    with pytest.raises(ValueError, match="stop"):
        gateon.run(stream, Stops(), tmp_path, steps=4, batch=50)
    resumed = NearestMean()
    record = gateon.run(stream, resumed, tmp_path, steps=4, batch=50)
    assert record.accuracy == whole.accuracy and resumed.told == [4, 4, 4]


def learner():
    return gateon.Learner(nn.Linear(4, 2), optimizer=SGD, method=gateon.Finetune())


def lamol():
    from transformers import GPT2Config, GPT2LMHeadModel

    tiny = {"vocab_size": 20, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 32}
    model = GPT2LMHeadModel(GPT2Config(**tiny, bos_token_id=None, eos_token_id=None))
    return Lamol(model, optimizer=SGD, samples=40, classes=2)


MADE = {
    "finetune": learner,
    "isolated": lambda: Isolated(learner),
    "zoo": lambda: Zoo(lambda: nn.Linear(4, 2), optimizer=SGD),
    "lamol": lamol,
}


@pytest.mark.parametrize("name", MADE)
def test_every_learner_has_what_the_protocol_asks_for(name):
    one = MADE[name]()
    assert one.name == name and set(ASKED) <= set(dir(one))
    x = torch.randint(1, 20, (6, 5)) if name == "lamol" else torch.randn(6, 4)
    assert one.switch(1) and not one.switch(1)
    seen = one.observe(x, torch.randint(0, 2, (6,)), context=1)
    assert not seen.switched and seen.context == 1
    assert one.predict(x, context=1).shape == (6, 2)
    assert list(one.description) == [
        "model",
        "method",
        "schedule",
        "loss",
        "precision",
        "optimizer",
    ]
    with pytest.raises(IndexError, match="contexts are whole numbers"):
        one.switch(-1)


def test_isolated_networks_are_made_once_each():
    made = []

    def make():
        made.append(learner())
        return made[-1]

    one = Isolated(make)
    for context in (3, 3, 4, 3):
        one.observe(torch.randn(6, 4), torch.randint(0, 2, (6,)), context=context)
    assert len(made) == 3
    other = Isolated(make)
    other.load_state_dict(one.state_dict())
    assert len(made) == 4 and other.context == 3
