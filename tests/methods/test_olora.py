"""O-LoRA: its penalty is that of the equation, and a task moves its own ranks only."""

import copy

import pytest
import torch
from method_tools import learner_of
from torch import nn

import gateon.integrations.hf
import reference
from easy_tasks import train
from gateon.methods.base import Outline
from gateon.methods.language.olora import OLoRA
from lora_models import adapters, learn, llama, tokens
from rounding import SMOOTH_ADAM, assert_same

peft = pytest.importorskip("peft")


def adapted(rank=6, **options):
    torch.manual_seed(1)
    return peft.get_peft_model(llama(), peft.LoraConfig(task_type="CAUSAL_LM", r=rank, **options))


def taught(model, method, optimizer, tasks, steps=3):
    for task in range(tasks):
        for k in range(steps):
            loss, penalty = model(input_ids=tokens(k), labels=tokens(k)).loss, method.penalty(model)
            (loss if penalty is None else loss + penalty).backward()
            optimizer.step()
            optimizer.zero_grad()
        method.end_task(model, task)


@pytest.mark.numeric
def test_the_penalty_is_that_of_the_equation():
    model = adapted().double()
    method = OLoRA(ranks=2, strength=0.3, shrink=0.1)
    optimizer = SMOOTH_ADAM(model.parameters())
    method.prepare(model)(optimizer)
    for task in range(3):
        expected = 0.0
        old, new = range(2 * task), range(2 * task, 2 * task + 2)
        for name, A in model.named_parameters():
            if "lora_A" in name:
                B = model.get_parameter(name.replace("lora_A", "lora_B")).detach()
                expected += reference.orthogonal_penalty(A.detach(), B, old, new, 0.3, 0.1)
        assert_same(method.penalty(model).detach(), torch.tensor(expected, dtype=torch.float64))
        taught(model, method, optimizer, 1)
    assert expected > 0


@pytest.mark.numeric
def test_one_large_adapter_learns_as_adapters_added_one_by_one():
    """As published, every task gets a new adapter; the outputs of all are summed."""
    large = adapted(rank=4, lora_alpha=8).double()
    first = {n: p.detach().clone() for n, p in adapters(large).items()}
    method = OLoRA(ranks=2, strength=0.5)
    optimizer = SMOOTH_ADAM([p for p in large.parameters() if p.requires_grad])
    method.prepare(large)(optimizer)
    taught(large, method, optimizer, 1)
    optimizer = SMOOTH_ADAM([p for p in large.parameters() if p.requires_grad])
    method._adopt(optimizer)
    taught(large, method, optimizer, 1)

    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=4)
    small = peft.get_peft_model(llama(), config, adapter_name="task0").double()
    small.add_adapter("task1", config)
    small = small.double()
    for name, p in first.items():
        for task in range(2):
            part = p[2 * task : 2 * task + 2] if "lora_A" in name else p[:, 2 * task : 2 * task + 2]
            small.get_parameter(name.replace("default", f"task{task}")).data.copy_(part)
    for task in range(2):
        small.base_model.set_adapter([f"task{u}" for u in range(task + 1)])
        for name, p in small.named_parameters():
            p.requires_grad_(f"task{task}." in name)
        optimizer = SMOOTH_ADAM([p for p in small.parameters() if p.requires_grad])
        for k in range(3):
            loss = small(input_ids=tokens(k), labels=tokens(k)).loss
            for name, A in small.named_parameters():
                if task and "lora_A.task1" in name:
                    old = small.get_parameter(name.replace("task1", "task0")).detach()
                    loss = loss + 0.5 * (old @ A.T).abs().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        assert_same(large(input_ids=tokens()).logits, small(input_ids=tokens()).logits)


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_a_task_moves_its_own_ranks_only(optimizer):
    model, method = adapted(), OLoRA(ranks=2)
    base = {n: p.detach().clone() for n, p in model.named_parameters() if ".lora_" not in n}
    adopt = method.prepare(model)
    steps = optimizer(model.parameters(), lr=1e-2, weight_decay=0.1)
    adopt(steps)
    for task in range(3):
        before = adapters(model)
        taught(model, method, steps, 1)
        for name, p in adapters(model).items():
            moved = (p != before[name]).any(1 if "lora_A" in name else 0)
            assert moved.tolist() == [2 * task <= i < 2 * task + 2 for i in range(6)], name
    assert all(torch.equal(model.get_parameter(name), p) for name, p in base.items())


def test_rows_of_a_later_task_become_nearly_orthogonal_to_earlier_ones():
    def overlaps(strength):
        model, method = adapted(), OLoRA(ranks=2, strength=strength)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        method.prepare(model)(optimizer)
        taught(model, method, optimizer, 2, steps=40)
        rows = [p for name, p in adapters(model).items() if "lora_A" in name]
        return sum((A[:2] @ A[2:4].T).abs().sum().item() for A in rows)

    assert overlaps(0.5) < 0.2 * overlaps(0.0)


def test_it_resumes_in_the_task_it_was_in():
    def at_work(model):
        method = OLoRA(ranks=2)
        optimizer = SMOOTH_ADAM(model.parameters())
        method.prepare(model)(optimizer)
        return method, optimizer

    model = adapted().double()
    method, optimizer = at_work(model)
    taught(model, method, optimizer, 1)
    again = adapted().double()
    other, steps = at_work(again)
    again.load_state_dict(model.state_dict())
    steps.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    other.load_state_dict(method.state_dict())
    taught(model, method, optimizer, 1)
    taught(again, other, steps, 1)
    assert_same(adapters(again), adapters(model))


def test_it_learns_with_the_learner():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    model = peft.get_peft_model(
        network, peft.LoraConfig(r=8, target_modules=["0"], modules_to_save=["2"])
    )
    learner = learner_of(lambda: model, OLoRA(ranks=4))
    first = model.base_model.model[0].lora_A.default.weight
    before = first.detach().clone()
    train(learner, 0)
    assert (first[:4] != before[:4]).any() and torch.equal(first[4:], before[4:])


def test_what_it_cannot_work_with_is_refused_before_anything_is_changed():
    with pytest.raises(ValueError, match="LlamaForCausalLM has no LoRA layers: call peft"):
        OLoRA().prepare(llama())
    with pytest.raises(ValueError, match="8 ranks a task, but the adapters have 6"):
        OLoRA(ranks=8).prepare(adapted())
    with pytest.raises(ValueError, match="ranks of at least 1, and strength"):
        OLoRA(ranks=0).prepare(adapted())
    gated = adapted()
    gates = gateon.hf.attach(gated)
    with pytest.raises(ValueError, match=r"gates that close some: detach\(\) them first"):
        OLoRA(ranks=2).prepare(gated)
    gates.detach()
    optimizer = torch.optim.AdamW(gated.parameters(), lr=1e-2)
    learn(gated, optimizer, tokens())
    with pytest.raises(ValueError, match="adapters that do nothing yet, with B = 0"):
        OLoRA(ranks=2).prepare(gated)
    model, method = adapted(), OLoRA(ranks=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    method.prepare(model)(optimizer)
    taught(model, method, optimizer, 2)
    with pytest.raises(ValueError, match="6 ranks, enough for 2 tasks of 3"):
        method.expect(Outline(steps=3, epoch=3))
