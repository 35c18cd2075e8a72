"""Networks that the tests of gates share, and ways to compare them."""

import pytest
import torch
from torch import nn


class Net(nn.Module):
    """A forward pass that is a function of the modules given."""

    def __init__(self, forward, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self.__dict__["passing"] = forward

    def forward(self, x):
        return self.passing(self, x)


def mlp(units=16, norm=None):
    torch.manual_seed(0)
    norms = [] if norm is None else [norm(units)]
    return nn.Sequential(
        nn.Linear(5, units),
        *norms,
        nn.ReLU(),
        nn.Linear(units, units),
        nn.Tanh(),
        nn.Linear(units, 3),
    )


def cnn():
    torch.manual_seed(0)
    convolutions = [
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 2),
        nn.GroupNorm(2, 8),
        nn.GELU(),
    ]
    return nn.Sequential(
        *convolutions,
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(8 * 4, 10),
        nn.ReLU(),
        nn.Linear(10, 3),
    )


class Encoder(nn.Module):
    """A small transformer, with an activation that is a function and so has its gate in front of the next layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(
            8, 2, 12, dropout=0.1, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True)
        self.head = nn.Linear(8, 3)

    def forward(self, ids):
        return self.head(self.encoder(self.words(ids)).mean(1))


MODELS = {
    "mlp": (mlp, lambda: torch.randn(6, 5)),
    "mlp with batch norm": (lambda: mlp(norm=nn.BatchNorm1d), lambda: torch.randn(6, 5)),
    "cnn": (cnn, lambda: torch.randn(6, 3, 8, 8)),
    "transformer": (Encoder, lambda: torch.randint(0, 11, (6, 4))),
}
every_model = pytest.mark.parametrize("name", MODELS)


def make(name):
    model, example = MODELS[name]
    torch.manual_seed(1)
    return model(), example()


def anatomy(model):
    """Everything that is in a model besides the values of its tensors."""
    parts = []
    for name, module in model.named_modules():
        plain = {}
        for key, value in module.__dict__.items():
            plain[key] = dict(value) if isinstance(value, dict) else value
        plain = {
            k: list(v) if k in ("_parameters", "_buffers", "_modules") else v
            for k, v in plain.items()
        }
        parts.append((name, type(module), plain))
    return parts


def run(model, x, seed=3):
    """Output and gradients of one pass."""
    torch.manual_seed(seed)
    model.zero_grad()
    y = model(x)
    y.square().sum().backward()
    return y.detach(), {
        n: p.grad.clone()
        for n, p in model.named_parameters()
        if p.grad is not None and "context_gate" not in n
    }


def train(model, x, steps=3, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


def same(a, b):
    return set(a) == set(b) and all(torch.equal(a[k], b[k]) for k in a)
