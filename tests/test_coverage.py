"""What gates do not reach, and what contexts share, is said in a sentence."""

import warnings
from functools import partial

import pytest
import torch
from torch import nn

import gateon

SGD = partial(torch.optim.SGD, lr=0.1)


def test_a_model_that_is_mostly_ungated_is_named_with_its_largest_modules():
    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.out = nn.Linear(4, 6), nn.Linear(6, 2)
            self.table = nn.Parameter(torch.ones(6, 50))

        def forward(self, x):
            return self.out(torch.relu(self.first(x)) @ self.table @ self.table.T)

    sentence = r"91% of the parameters of Tables have no gate.*'' \(300, no units of its own\)"
    with pytest.warns(UserWarning, match=sentence) as caught:
        gateon.attach(Tables())
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gateon.attach(Tables(), sites="first")  # asked for
        gateon.attach(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 300)))


def test_the_learner_offers_statistics_for_each_context():
    def network():
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))

    with pytest.warns(
        UserWarning, match=r"has 1 BatchNorm layers.*gateon\.context_norms\(model\)"
    ) as got:
        gateon.Learner(network(), optimizer=SGD, method=gateon.GateON())
    assert got[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = gateon.Learner(
            gateon.context_norms(network()), optimizer=SGD, method=gateon.GateON(density=0.5)
        )
        gateon.Learner(network(), optimizer=SGD, method=gateon.methods.Finetune())
    learner.observe(torch.randn(8, 4), torch.randint(0, 2, (8,)), context=0)
    assert learner.is_compact
