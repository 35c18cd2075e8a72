"""New contexts open their gates on the more available units."""

from functools import partial

import pytest
import torch

import gateon
from gateon.networks import mlp


def learner(per, prefer, units=200):
    torch.manual_seed(0)
    method = gateon.GateON(per=per, epsilon=0.0, rate=1.0, density=0.25, prefer=prefer)
    return gateon.Learner(
        mlp(20, (units, units), 3), optimizer=partial(torch.optim.Adam, lr=5e-3), method=method
    )


def learned(per, prefer, contexts=3, steps=15):
    one = learner(per, prefer)
    generator = torch.Generator().manual_seed(1)
    for k in range(contexts):
        for _ in range(steps):
            x = torch.randn(32, 20, generator=generator)
            one.observe(x.roll(k, 1), (x[:, 0] > 0).long(), context=k)
    return one


@pytest.mark.parametrize("per", ["unit", "parameter"])
def test_gates_open_where_availability_is_left(per):
    room = {}
    for prefer in (0.0, 5.0):
        one = learned(per, prefer)
        gates, handle = gateon.gates_of(one.model), one.method.handle
        before = {name: handle.room(gates.sites[name]).clone() for name in gates.gates}
        one.switch(3)
        gains = gateon.gates_of(one.model).gain(3)
        room[prefer] = [before[name][gain > 0].mean().item() for name, gain in gains.items()]
        assert all(
            (gain > 0).float().mean().item() == pytest.approx(0.25) for gain in gains.values()
        )
    assert all(with_ > without + 0.02 for with_, without in zip(room[5.0], room[0.0], strict=True))


def test_room_of_units_is_the_mean_over_their_weights():
    one = learned("parameter", 0.0)
    handle, gates = one.method.handle, gateon.gates_of(one.model)
    site = next(iter(gates.gates))
    weight = f"{gates.sites[site].owns[0]}.weight"
    torch.testing.assert_close(handle.room(gates.sites[site]), handle.availability[weight].mean(1))


def test_the_same_seed_opens_the_same_gates():
    one, other = (learned("parameter", 1.0, contexts=4) for _ in range(2))
    for a, b in zip(
        gateon.gates_of(one.model).gates.values(),
        gateon.gates_of(other.model).gates.values(),
        strict=True,
    ):
        assert torch.equal(a.weight, b.weight)


def test_a_negative_preference_is_refused():
    with pytest.raises(ValueError, match="prefer must be at least 0"):
        learner("unit", -1.0)
