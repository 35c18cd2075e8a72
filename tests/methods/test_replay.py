"""Replay and joint training: what is kept, what is drawn, and how it is weighed."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from method_tools import SGD, end, forgets_less, learner_of, tiny_mlp
from test_ogd import Heads
from torch import nn

from easy_tasks import batch, train
from gateon.methods.joint import Joint
from gateon.methods.replay import Replay
from gateon.methods.shared.samples import Memory, gathered

pytestmark = pytest.mark.numeric


def filled(size, balance, labels, seed=0):
    """A memory after tasks with the labels given; inputs tell task and row."""
    memory, generator = Memory(size, balance), torch.Generator().manual_seed(seed)
    for task, y in enumerate(labels):
        x = torch.stack([torch.full((len(y),), float(task)), torch.arange(len(y)).float()], 1)
        memory.add(gathered([(x, torch.tensor(y))], task, generator))
    return memory


def test_a_balanced_memory_gives_every_group_its_room():
    tasks = [[0] * 100, [1] * 30 + [2] * 70, [3] * 3]
    by_class = torch.cat([part.y for part in filled(40, "class", tasks).parts]).bincount()
    assert by_class.tolist() in ([13, 12, 12, 3], [12, 13, 12, 3], [12, 12, 13, 3])
    assert [len(part.y) for part in filled(43, "task", tasks).parts] == [20, 20, 3]
    assert len(filled(None, "reservoir", tasks)) == 203


def test_a_reservoir_keeps_each_sample_as_likely_as_any_other():
    counts = torch.zeros(2, 20)
    for seed in range(300):
        for part in filled(10, "reservoir", [[0] * 20, [1] * 20], seed).parts:
            for task, row in part.x.long().tolist():
                counts[task, row] += 1
    assert counts.sum() == 3000
    assert (counts / 300 - 0.25).abs().max() < 0.12  # 4.8 standard deviations
    assert (counts.sum(1) / 3000 - 0.5).abs().max() < 0.05


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=30), min_size=1, max_size=4),
    st.integers(1, 40),
    st.sampled_from(["reservoir", "class", "task"]),
)
def test_a_memory_is_as_full_as_it_can_be_and_holds_no_sample_twice(labels, size, balance):
    memory = filled(size, balance, labels)
    assert len(memory) == min(size, sum(map(len, labels)))
    rows = [tuple(x) for part in memory.parts for x in part.x.tolist()]
    assert len(set(rows)) == len(rows)
    for part in memory.parts:
        for (task, row), y in zip(part.x.long().tolist(), part.y.tolist(), strict=True):
            assert labels[task][row] == y
    if balance == "class":  # a class with room to spare is wholly there
        kept = torch.cat([part.y for part in memory.parts]).bincount(minlength=5)
        seen = torch.tensor([y for task in labels for y in task]).bincount(minlength=5)
        for c in range(5):
            assert kept[c] == seen[c] or kept[c] >= kept.max() - 1


def test_draws_are_uniform_over_everything_kept():
    memory = filled(None, "reservoir", [[0] * 10, [1] * 30])
    drawn = memory.draw(8000, torch.Generator().manual_seed(0))
    counts = torch.cat(
        [
            torch.bincount(part.x[:, 1].long(), minlength=len(memory.parts[k].y))
            for k, part in enumerate(drawn)
        ]
    )
    assert counts.sum() == 8000 and (counts - 200).abs().max() < 5 * 200**0.5


def assert_weighed(method, share):
    """The step equals that of share * L_new + (1 - share) * L_old on the samples that were drawn."""
    learner = learner_of(tiny_mlp, method, SGD)
    tasks = 2
    for task in range(tasks):
        train(learner, task, 3)
        end(learner, task)
    x, y = batch(2)
    learner.observe(x, y, context=2)
    twin = copy.deepcopy(learner.model)
    drawn = []
    usual, learner.method.kept.draw = (
        learner.method.kept.draw,
        lambda n, g: drawn.extend(usual(n, g)) or drawn,
    )
    learner.observe(x, y, context=2)
    assert sum(len(part.y) for part in drawn) == len(y)
    old = F.cross_entropy(
        twin(torch.cat([part.x for part in drawn])), torch.cat([part.y for part in drawn])
    )
    (share * F.cross_entropy(twin(x), y) + (1 - share) * old).backward()
    for p, q in zip(twin.parameters(), learner.model.parameters(), strict=True):
        if p.grad is not None:
            torch.testing.assert_close(p - 0.1 * p.grad, q)


def test_new_and_old_are_weighed_as_published():
    assert_weighed(Replay(memory=50), 1 / 2)
    assert_weighed(Replay(memory=50, share="tasks"), 1 / 3)
    assert_weighed(Joint(), 1 / 3)


def test_samples_are_replayed_in_the_context_they_were_learned_in():
    learner = learner_of(
        lambda: nn.Sequential(nn.Linear(8, 6), nn.Tanh(), Heads()), Replay(memory=60), SGD
    )
    for task in range(2):
        train(learner, task, 3)
        end(learner, task)
    learner.observe(*batch(2), context=2)
    heads = learner.model[2]
    before = [head.weight.detach().clone() for head in heads.heads]
    learner.observe(*batch(2), context=2)
    assert heads.context == 2
    assert all(
        not torch.equal(head.weight, then) for head, then in zip(heads.heads, before, strict=True)
    )


def test_the_memory_of_a_run_counts():
    learner = learner_of(tiny_mlp, Replay(memory=100, balance="task"))
    kept = []
    for task in range(3):
        train(learner, task, 2)
        end(learner, task)  # 192 samples
        kept.append([len(part.y) for part in learner.method.kept.parts])
    assert [sorted(k) for k in kept] == [[100], [50, 50], [33, 33, 34]]
    everything = learner_of(tiny_mlp, Joint())
    for task in range(3):
        train(everything, task, 2)
        end(everything, task)
    assert len(everything.method.kept) == 3 * 192


def test_other_seeds_keep_and_draw_others():
    def state(seed):
        learner = learner_of(tiny_mlp, Replay(memory=20, seed=seed))
        train(learner, 0, 2)
        end(learner, 0)
        return learner.method.kept.parts[0].x, train(learner, 1, 2)

    (x, losses), (again, same), (other, different) = state(0), state(0), state(1)
    assert torch.equal(x, again) and losses == same
    assert not torch.equal(x, other) and losses != different


def test_every_step_draws_anew():
    learner = learner_of(tiny_mlp, Replay(memory=50))
    train(learner, 0, 2)
    end(learner, 0)
    drawn = []
    usual, learner.method.kept.draw = (
        learner.method.kept.draw,
        lambda n, g: drawn.append(usual(n, g)) or drawn[-1],
    )
    train(learner, 1, 2)
    assert not torch.equal(drawn[0][0].x, drawn[1][0].x)


def test_they_forget_less_than_finetuning():
    assert forgets_less(Replay(memory=300, balance="class"), margin=0.05) and forgets_less(
        Joint(), margin=0.08
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": 0},
        {"memory": -5},
        {"memory": True},
        {"balance": "random"},
        {"share": "third"},
        {"seed": -1},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="at least 1" if "memory" in wrong else next(iter(wrong))):
        Replay(**wrong)


@pytest.mark.parametrize("method", [partial(Replay, memory=10), Joint])
def test_a_task_without_data_is_told_and_changes_nothing(method):
    learner = learner_of(tiny_mlp, method())
    train(learner, 0, 2)
    for data in ([], [(torch.zeros(0, 8), torch.zeros(0, dtype=torch.long))]):
        with pytest.raises(ValueError, match="Task 0 ended without data"):
            learner.end_task(0, data)
    assert len(learner.method.kept) == 0 and learner.method.tasks == 0
