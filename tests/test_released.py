"""The preset "released" against an independent implementation of the released code's rules."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import gateon
import reference
from gateon.networks import mlp
from rounding import SMOOTH_ADAM, assert_same

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize("per", ["unit", "parameter"])
@pytest.mark.parametrize("norm", [True, False])
def test_released_preset_follows_the_released_rules_over_50_steps_and_a_switch(per, norm):
    torch.manual_seed(0)
    model = mlp(20, (30, 25), 5, norm="batch" if norm else "none", unit_length=True).double()
    learner = gateon.Learner(
        model,
        optimizer=SMOOTH_ADAM,
        method=gateon.preset("released", per=per),
        loss=lambda output, y: F.cross_entropy(output.softmax(1), y),
    )
    gates = gateon.gates_of(model)
    gates.add_context()
    linears = [m for m in model if isinstance(m, torch.nn.Linear)]
    twin = reference.Released(
        [m.weight.detach() for m in linears],
        [m.bias.detach() for m in linears],
        [gate.weight.detach() for gate in gates.gates.values()],
        per,
        norm,
        eps=SMOOTH_ADAM.keywords["eps"],
    )
    for step in range(50):
        context = 0 if step < 25 else 1
        if step == 25:
            twin.begin(1)
        x, y = torch.randn(40, 20).double(), torch.randint(0, 5, (40,))
        learner.observe(x, y, context=context)
        twin.step(x, y)
    availability = learner.method.handle.availability
    for i, site in enumerate(gates.gates):
        if per == "unit":
            assert_same(availability[site], twin.A[i])
        else:
            assert_same(availability[f"{site}.weight"], twin.A[i])
            # before a batch norm a bias has no gradient: its normalised relevance is rounding noise
            if not norm:
                assert_same(availability[f"{site}.bias"], twin.A_bias[i])
    assert min(A.min() for A in twin.A) < 0.3, "nothing froze: the comparison would show nothing"
    assert any((applied < 0.9).any() for applied in twin.applied), "the switch applied nothing"
    for mine, other in zip(linears, twin.W, strict=True):
        assert_same(mine.weight, other)
