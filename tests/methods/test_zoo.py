"""Model Zoo: rounds, boosting, ensembles of those that saw the task, replay."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from forgetting import forgotten_by_finetuning, learn_digits
from method_tools import ADAM, end, reloaded
from torch import nn

import gateon
from easy_tasks import assert_same, batch, train
from gateon.learners.zoo import Zoo
from gateon.networks import mlp
from gateon.networks.heads import with_task_heads

pytestmark = pytest.mark.numeric


def small():
    return with_task_heads(mlp(8, (16,), 3))


def learned(contexts, zoo=None, steps=3, **options):
    zoo = zoo or Zoo(small, optimizer=ADAM, **options)
    for task in contexts:
        train(zoo, task, steps)
        end(zoo, task)
    return zoo


def test_every_round_has_the_new_task_and_at_most_the_stated_number():
    zoo = learned(range(6), tasks=3)
    assert [len(seen) for seen in zoo.rounds] == [1, 2, 3, 3, 3, 3]
    assert all(task in seen and len(set(seen)) == len(seen) for task, seen in enumerate(zoo.rounds))
    assert all(max(seen) == task for task, seen in enumerate(zoo.rounds))


def test_only_networks_that_saw_the_task_are_asked():
    zoo = learned(range(4), tasks=2)
    x = batch(0)[0]
    asked = []
    for n, member in enumerate(zoo._members):
        member.network.register_forward_hook(lambda *_, n=n: asked.append(n))
    for task in range(4):
        asked.clear()
        predicted = zoo.predict(x, context=task)
        assert asked == [n for n, seen in enumerate(zoo.rounds) if task in seen]
        probabilities = []
        for member in zoo._members:
            if task in member.tasks:
                gateon.anatomy.contextual.show_context(member.network, member.tasks.index(task))
                probabilities.append(member.network.eval()(x).softmax(1))
        assert torch.allclose(predicted, torch.stack(probabilities).mean(0).log(), atol=1e-6)
    assert len({len(seen) for seen in zoo.rounds}) > 1


def test_old_tasks_are_drawn_in_proportion_to_the_exponential_of_their_loss():
    zoo = learned(range(3))
    losses = torch.tensor([0.5, 1.0, 3.0])
    zoo._stored_loss = lambda task: losses[task].item()
    expected = ((losses - 1.5) / 1.5).exp()
    assert torch.allclose(zoo._weights([0, 1, 2]), expected)
    zoo._stored_loss = lambda task: 0.0
    first, second = zoo._weights([0, 1]).tolist()
    assert first == second > 0


def test_the_stored_loss_is_the_zoos_on_stored_data():
    zoo = learned(range(2))
    x, y = (torch.cat(parts) for parts in zip(*(batch(0, seed=s) for s in range(3)), strict=True))
    assert zoo._stored_loss(0) == pytest.approx(
        nn.functional.nll_loss(zoo.predict(x, 0), y).item(), rel=1e-5
    )


def test_old_networks_do_not_change_and_new_ones_differ():
    zoo = learned(range(2))
    before = {name: value.clone() for name, value in zoo._members[0].network.state_dict().items()}
    train(zoo, 2, 3)
    assert_same(before, dict(zoo._members[0].network.state_dict()))
    assert not torch.equal(zoo._members[0].network[1].weight, zoo._members[1].network[1].weight)


def test_so_many_samples_are_kept():
    zoo = learned([0, 1], keep=10)
    assert [len(y) for _, y in zoo.stored.values()] == [10, 10]
    everything = learned([0, 1])
    assert [len(y) for _, y in everything.stored.values()] == [192, 192]
    assert zoo.replay and zoo.name == "zoo"


@pytest.mark.parametrize("make", [small, lambda: mlp(8, (16,), 3, norm="none")])
def test_it_goes_on_in_the_middle_of_a_task_as_if_never_stopped(make, tmp_path):
    schedule = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=8)

    def zoo():
        return Zoo(make, optimizer=ADAM, schedule=schedule, tasks=2, keep=50)

    def rest(learner):
        seen = train(learner, 2, 6, start=3)
        end(learner, 2)
        return seen + train(learner, 3, 3)

    whole = learned(range(2), zoo())
    train(whole, 2, 3)
    state = reloaded(whole.state_dict(), tmp_path / "state.safetensors")
    assert_same(state, whole.state_dict())
    losses = rest(whole)
    other, loaded = zoo(), copy.deepcopy(state)
    other.load_state_dict(state)
    assert rest(other) == losses and other.rounds == whole.rounds
    assert_same(state, loaded)
    assert_same(whole.state_dict(), other.state_dict())


def test_a_batch_that_is_not_finite_changes_nothing():
    zoo = learned(range(2))
    train(zoo, 2, 2)
    state = {key: value for key, value in zoo.state_dict().items() if key != "generator"}
    before = [value.clone() for value in zoo._members[-1].network.state_dict().values()]
    x, y = batch(2)
    x[0, 0] = float("nan")
    with pytest.raises(FloatingPointError, match="at step 8 in context 2"):
        zoo.observe(x, y, context=2)
    assert all(
        torch.equal(a, b)
        for a, b in zip(before, zoo._members[-1].network.state_dict().values(), strict=True)
    )
    assert_same(
        state, {key: value for key, value in zoo.state_dict().items() if key != "generator"}
    )


def test_it_runs_a_stream_and_forgets_less_than_finetuning():
    zoo = Zoo(lambda: with_task_heads(mlp(784, (60,), 10, norm="none")), optimizer=ADAM)
    lost, first = learn_digits(zoo, steps=30)
    assert min(first) > 0.7 and lost < 0.3 * forgotten_by_finetuning()
    stream = gateon.streams.split_mnist(data="mnist-5k", tasks=2)
    record = gateon.run(stream, Zoo(partial(mlp, 784, (20,), 2), optimizer=ADAM), steps=5)
    assert record.summary["continual_accuracy"] > 0.6


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="tasks and keep must be at least 1, got 0"):
        Zoo(small, optimizer=ADAM, tasks=0)
    with pytest.raises(ValueError, match="got 5 and 0"):
        Zoo(small, optimizer=ADAM, keep=0)
    zoo = Zoo(small, optimizer=ADAM)
    with pytest.raises(IndexError, match="No network has seen context None"):
        zoo.predict(batch(0)[0])
    with pytest.raises(IndexError, match="contexts are whole numbers"):
        zoo.observe(*batch(0), context=-1)
    train(zoo, 0, 1)
    with pytest.raises(IndexError, match="No network has seen context 5"):
        zoo.predict(batch(0)[0], context=5)
    with pytest.raises(ValueError, match="with its data"):
        zoo.end_task(0, [])


def test_old_heads_learn_stored_samples_and_all_tasks_count_alike():
    zoo = learned([0])
    x, y = batch(1)
    zoo.observe(x, y, context=1)
    network, read = zoo._members[-1].network, []
    network.register_forward_hook(
        lambda module, args, output: read.append((module[-1].context, args[0], output.detach()))
    )
    loss = zoo.observe(x, y, context=1).loss
    (head, old_x, old), (_, new_x, new) = read
    stored_x, stored_y = zoo.stored[0]
    places = torch.cdist(old_x, stored_x).argmin(1)
    assert head == 0 and torch.equal(old_x, stored_x[places]) and torch.equal(new_x, x)
    losses = nn.functional.cross_entropy(old, stored_y[places]), nn.functional.cross_entropy(new, y)
    assert loss == pytest.approx(sum(losses).item() / 2, rel=1e-5)


def test_a_round_is_drawn_by_those_weights():
    zoo = learned(range(4), tasks=2)
    zoo._weights = lambda tasks: torch.tensor([float(task == 2) for task in tasks])
    zoo.observe(*batch(4), context=4)
    assert zoo.rounds[-1] == [2, 4]
