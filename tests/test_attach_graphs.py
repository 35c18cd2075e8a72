"""Layers of torch_geometric: channels of nodes are units."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gateon
from rounding import assert_same

layers = pytest.importorskip("torch_geometric.nn")

EDGES = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 0]])


class Graphs(nn.Module):
    def __init__(self, kind, heads=1, **options):
        super().__init__()
        more = {"heads": heads} if heads > 1 else {}
        self.first = kind(5, 8, **more, **options)
        self.second = kind(8 * heads, 6, **options)
        self.head = nn.Linear(6, 3)

    def forward(self, x, edges):
        return self.head(F.elu(self.second(F.relu(self.first(x, edges)), edges)))


KINDS = {
    "gcn": lambda: Graphs(layers.GCNConv),
    "gat": lambda: Graphs(layers.GATConv, heads=2),
    "sage": lambda: Graphs(layers.SAGEConv),
    "sage, normalised": lambda: Graphs(layers.SAGEConv, normalize=True),
}
every_kind = pytest.mark.parametrize("name", KINDS)


def graphs(name):
    torch.manual_seed(0)
    return KINDS[name]().double(), torch.randn(4, 5, dtype=torch.float64)


@every_kind
@pytest.mark.numeric
def test_channels_are_gated_and_found_without_data(name):
    model, x = graphs(name)
    plain = copy.deepcopy(model)
    gates = gateon.attach(model, contexts=2, density=0.5)
    assert [s.name for s in gates.sites.values() if s.gated] == ["first", "second"]
    gates.switch(1)
    g = gates.gain()
    h = F.relu(g["first"] * plain.first(x, EDGES))
    h = g["second"] * F.elu(plain.second(h, EDGES))
    assert_same(model(x, EDGES), plain.head(h))
    assert_same(model(x, edges=EDGES), plain.head(h))


@every_kind
def test_every_parameter_has_an_availability_and_moves_by_it(name):
    model, x = graphs(name)
    gates = gateon.attach(model, contexts=2, density=0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, rate=0.5)
    for _ in range(3):
        model(x, EDGES).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    gates.switch(1)
    held = {n: A.clone() for n, A in handle.availability.items()}
    by_unit = {"gcn": True, "sage": True}.get(name, False)
    assert by_unit == (not any(n.startswith("first.lin") for n in held))
    assert all((A < 1).any() for A in held.values())
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    model(x, EDGES).square().sum().backward()
    optimizer.step()
    for n, p in model.named_parameters():
        if n.startswith(("first.", "second.")) and "context_gate" not in n:
            scale = held.get(n, held.get(n.split(".")[0]))
            scale = scale.view(-1, *[1] * (p.dim() - 1)) if scale.shape != p.shape else scale
            torch.testing.assert_close(p - before[n], -0.1 * p.grad * scale)


def test_a_closed_channel_of_a_plain_sum_over_neighbours_gets_no_gradient():
    for name in ("gcn", "sage"):
        model, x = graphs(name)
        gates = gateon.attach(model, density=0.5)
        model(x, EDGES).square().sum().backward()
        shut = gates.gain()["first"] == 0
        assert shut.any()
        for part, p in model.first.named_parameters():
            assert "context_gate" in part or not p.grad[shut].any()


def test_models_of_the_library_are_gated_too():
    x = torch.randn(4, 5)
    model = layers.GCN(5, 8, 2, 3)
    gates = gateon.attach(model, density=0.5, example=(x, EDGES))
    assert [s.name for s in gates.sites.values() if s.gated] == ["convs.0"]
    assert model(x, EDGES).shape == (4, 3)
    mixed = layers.GIN(5, 8, 2, 3)
    gates = gateon.attach(mixed, density=0.5, example=(x, EDGES))
    assert {"convs.0.nn.lins.0", "convs.1.nn.lins.0"} <= {
        s.name for s in gates.sites.values() if s.gated
    }


def test_weights_of_unknown_meaning_are_not_taken_for_those_that_read():
    model, _ = graphs("gcn")
    gates = gateon.attach(model, density=0.5)
    with pytest.raises(ValueError, match="with which weights site 'first' is read"):
        gateon.obstruct(torch.optim.SGD(model.parameters(), lr=0.1), gates, relevance="next-layer")
