"""The options of GateON that neither `attach` nor `obstruct` has."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import gateon
from gateon.networks import mlp, wide_resnet
from gateon.networks.heads import with_task_heads

pytestmark = pytest.mark.numeric


def test_rescaled_weights_start_as_large_as_those_of_a_network_as_wide_as_the_sub_network():
    torch.manual_seed(0)
    wide, narrow = wide_resnet(10, 8, 5), wide_resnet(10, 2, 5)
    before = copy.deepcopy(wide)
    method = gateon.GateON(density={"group3*": 0.125, "*": 0.25}, rescale=True)
    method.prepare(wide)
    for name in ("group1.0.conv1", "group2.0.conv2", "group2.0.shortcut"):
        sizes = [model.get_submodule(name).weight.std().item() for model in (wide, narrow)]
        assert abs(sizes[0] / sizes[1] - 1) < 0.05
    torch.testing.assert_close(wide.group3[0].conv1.weight, before.group3[0].conv1.weight * 8**0.5)
    torch.testing.assert_close(wide.head.weight, before.head.weight * 8**0.5)
    assert torch.equal(wide.head.bias, before.head.bias)


def test_rescaling_leaves_norms_alone_and_reaches_the_head_of_every_task():
    torch.manual_seed(0)
    model = with_task_heads(mlp(4, (16, 16), 3, affine=True), tasks=2)
    before = copy.deepcopy(model)
    gateon.GateON(density=0.25, rescale=True).prepare(model)
    for name, tensor in before.named_parameters():
        grows = tensor.dim() > 1
        torch.testing.assert_close(model.get_parameter(name), tensor * (2 if grows else 1))


def test_without_it_and_in_what_is_read_back_weights_stay_as_they_are():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    before = model[0].weight.clone()
    gateon.GateON(density=0.5).prepare(model)
    assert torch.equal(model[0].weight, before)
    learners = [
        gateon.Learner(
            nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
            optimizer=torch.optim.Adam,
            method=gateon.GateON(density=0.5, rescale=True),
        )
        for _ in range(2)
    ]
    learners[0].observe(torch.randn(6, 4), torch.randint(0, 2, (6,)), context=0)
    learners[1].load_state_dict(learners[0].state_dict())
    assert torch.equal(learners[1].model[0].weight, learners[0].model[0].weight)
