"""A learner that infers its contexts: what it has learned is what it would have learned had it been told them, to the bit."""

from __future__ import annotations

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn

import gateon
import rounding
from easy_tasks import Explodes
from gateon import ContextDetector
from gateon.detection.infer import recognised
from gateon.methods.xdg import XdG
from gateon.networks import mlp
from gateon.storage import checkpoint

ADAM = partial(torch.optim.Adam, lr=3e-2)
COSINE = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=40)
FEATURES, CLASSES, STEPS = 20, 4, 18


def network(dropout=0.0, norm=True, width=32):
    hidden = [gateon.ContextNorm(width)] if norm else []
    return nn.Sequential(
        nn.Linear(FEATURES, width),
        *hidden,
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, CLASSES),
    )


def made(
    detector=None, *, method=None, model=network, seed=0, optimizer=ADAM, per="unit", **options
):
    torch.manual_seed(seed)
    method = method or gateon.GateON(per=per, density=0.5, start=0.9)
    return gateon.Learner(model(), optimizer=optimizer, method=method, contexts=detector, **options)


def batch(task, step, samples=50):
    """Noisy copies of one centre for each class, the features permuted otherwise in every task."""
    rng = torch.Generator().manual_seed(1 + step)
    y = torch.randint(CLASSES, (samples,), generator=rng)
    centres = 1.5 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(5))
    x = centres[y] + 0.5 * torch.randn(samples, FEATURES, generator=rng)
    return x[:, torch.randperm(FEATURES, generator=torch.Generator().manual_seed(100 + task))], y


def stream(tasks, steps=STEPS):
    """(task, x, y) of every batch; no two batches are the same."""
    return [
        (task, *batch(task, n * steps + step))
        for n, task in enumerate(tasks)
        for step in range(steps)
    ]


def infer(learner, batches):
    return [learner.observe(x, y) for _, x, y in batches]


def know(learner, batches):
    return [learner.observe(x, y, context=task) for task, x, y in batches]


def assert_same(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def learned(state):
    """What a learner has learned, without what it infers contexts from."""
    return {name: part for name, part in state.items() if name != "contexts"}


# Inferred = known.

VARIANTS = {
    "per unit": {},
    "per parameter": {"per": "parameter"},
    "per unit, full width": {"compact": False},
    "per parameter, full width": {"per": "parameter", "compact": False},
    "schedule, availability at once": {
        "schedule": COSINE,
        "method": lambda: gateon.GateON(density=0.5, start=0.9, apply="step", obstruct_head=True),
    },
    "the same optimizer for ever": {"keep_optimizer": True},
    "momentum": {"optimizer": partial(torch.optim.SGD, lr=0.2, momentum=0.8)},
    "fixed gates": {"method": partial(XdG, off=0.5)},
}


FULL_WIDTH = {"per unit, full width", "per parameter, full width", "the same optimizer for ever"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_learned_in_inferred_contexts_is_what_is_learned_in_known_ones(variant):
    def learner(detector=None):
        options = dict(VARIANTS[variant])
        method = options.pop("method", lambda: None)()
        return made(detector, method=method, model=partial(network, dropout=0.1), **options)

    batches = stream([0, 1, 2, 0, 1, 2])
    seen = infer(inferring := learner(ContextDetector()), batches)
    told = know(knowing := learner(), batches)
    assert inferring.is_compact == knowing.is_compact == (variant not in FULL_WIDTH)
    assert (inferring.contexts.figures["switches"], inferring.contexts.figures["returns"]) == (5, 3)
    assert [n for n, s in enumerate(seen) if s.switched] == [0] + [
        STEPS * k + 2 for k in range(1, 6)
    ]
    for n, (found, known) in enumerate(zip(seen, told, strict=True)):
        assert found.context == known.context or 0 <= n % STEPS <= 1  # the two in doubt
    assert inferring.state_dict()["contexts"]["doubted"] == []
    assert_same(learned(inferring.state_dict()), learned(knowing.state_dict()))


@pytest.mark.parametrize("compact", [True, False])
def test_no_trace_of_the_batches_in_doubt_is_left_outside_their_own_context(compact):
    learner = made(ContextDetector(), compact=compact)
    infer(learner, stream([0]))
    trusted = copy.deepcopy(learner.state_dict())
    seen = []
    while not (seen and seen[-1].switched):
        seen += infer(learner, [(1, *batch(1, 500 + len(seen)))])
    assert len(seen) == 3 and learner.context == 1
    gates, before, after = (
        gateon.gates_of(learner.model),
        trusted["model"],
        learner.model.state_dict(),
    )
    for name, gain in gates.gain(1).items():
        closed = gain == 0
        assert closed.any() and torch.equal(
            after[f"{name}.weight"][closed], before[f"{name}.weight"][closed]
        )
        assert not torch.equal(after[f"{name}.weight"][~closed], before[f"{name}.weight"][~closed])
    for key in (key for key in before if "context_gate" in key):
        assert torch.equal(after[key][:1], before[key])
    for statistic in ("1.running_mean", "1.running_var"):
        assert torch.equal(after[statistic][0], before[statistic][0]) and not torch.equal(
            after[statistic][1], after[statistic][0]
        )
    # Availabilities go on from the trusted step: three steps in the new context.
    assert (
        int(learner.method.state_dict()["steps"])
        == int(trusted["method"]["steps"]) + 3
        == learner.steps
    )


@pytest.mark.parametrize("compact", [True, False])
def test_batches_in_doubt_are_kept_and_not_learned(compact):
    learner = made(ContextDetector(), compact=compact, model=partial(network, dropout=0.1))
    infer(learner, stream([0]))
    trusted = copy.deepcopy(learned(learner.state_dict()))
    buffer, first, second = batch(1, 500)[0], batch(1, 500), batch(1, 501)
    assert learner.observe(buffer, first[1]).context == 0
    buffer.zero_()  # as a loader may that reuses its memory
    assert learner.observe(*second).context == 0
    state = learner.state_dict()
    assert_same(learned(state), trusted)
    assert_same(state["contexts"]["doubted"], [list(first), list(second)])
    assert learner.observe(*batch(1, 502)).switched and learner.steps == trusted["step"] + 3


def test_an_odd_batch_is_learned_in_its_turn():
    inferring, knowing = made(ContextDetector()), made()
    batches = [*stream([0]), (0, *batch(1, 500)), (0, *batch(1, 501)), *stream([0], 8)]
    assert {seen.context for seen in infer(inferring, batches)} == {0}
    know(knowing, batches)
    assert_same(learned(inferring.state_dict()), learned(knowing.state_dict()))


# Going on.


@pytest.mark.parametrize("compact, robust", [(True, True), (False, True), (True, False)])
def test_resumed_at_every_step_is_uninterrupted(compact, robust, tmp_path):
    def learner(seed):
        detector = ContextDetector(confidence_rate=0.3, robust=robust)
        return made(
            detector,
            model=partial(network, dropout=0.1),
            compact=compact,
            schedule=COSINE,
            seed=seed,
        )

    batches = stream([0, 1, 0], 12)
    expected = infer(whole := learner(0), batches)
    assert sum(seen.switched for seen in expected) >= 2
    generator = torch.get_rng_state()  # the learners compared share one
    asked, got = learner(0), []
    for one in batches:
        got += infer(asked, [one])
        asked.state_dict()
    assert got == expected
    assert_same(torch.get_rng_state(), generator)
    relay, got = learner(0), []
    for one in batches:
        got += infer(relay, [one])
        checkpoint.save(relay.state_dict(), tmp_path / "state")
        relay = learner(7)
        relay.load_state_dict(checkpoint.load(tmp_path / "state"))
    assert got == expected
    for one in (asked, relay):
        assert_same(one.state_dict(), whole.state_dict())


# Unlabelled inputs.


def three_tasks(**options):
    learner = made(model=partial(network, width=64), **options)
    know(learner, stream([0, 1, 2]))
    return learner


@pytest.mark.numeric
@pytest.mark.parametrize("compact", [True, False])
def test_the_context_of_unlabelled_inputs_is_recognised(compact):
    learner = three_tasks(compact=compact)
    before = copy.deepcopy(learner.state_dict())
    right = 0
    for task in range(3):
        x, _ = batch(task, 900, samples=100)
        found = learner.recognise(x)
        assert int(found.context) == task and 0 < float(found.certainty) <= 1
        rounding.assert_same(learner.predict(x, "batch"), learner.predict(x, context=task))
        each = learner.recognise(x, each=True)
        assert each.context.shape == each.certainty.shape == (100,)
        assert ((each.certainty >= 0) & (each.certainty <= 1)).all()
        right += int((each.context == task).sum())
        outputs = learner.predict(x, "sample")
        for n in range(0, 100, 17):
            expected = learner.predict(x, context=int(each.context[n]))[n]
            rounding.assert_same(outputs[n], expected)
    assert right > 210  # of 300; chance is 100
    assert_same(learner.state_dict(), before)


def test_a_context_that_is_no_context_is_refused():
    with pytest.raises(ValueError, match="got 'sampel'"):
        made().predict(batch(0, 0)[0], "sampel")


def test_one_context_is_recognised_for_sure_and_equal_ones_not_at_all():
    outputs = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    one, two = recognised([outputs], each=True), recognised([outputs, outputs], each=True)
    assert one.context.tolist() == [0, 0] and one.certainty.tolist() == [1, 1]
    assert two.certainty.tolist() == [0, 0]
    certain = torch.tensor([[500.0, 0.0]])  # an entropy of exactly 0
    assert torch.isfinite(recognised([certain, certain], each=False).certainty)


@pytest.mark.numeric
@pytest.mark.parametrize("samples", [1, 50, 1500])
def test_one_pass_for_all_contexts_is_a_pass_for_each(samples):
    learner = three_tasks(compact=False)
    x, _ = batch(1, 900, samples)
    together = list(learner.outputs_under(x, range(3)))
    assert len(together) == 3
    for k, outputs in enumerate(together):
        rounding.assert_same(outputs, learner.predict(x, context=k))
    rounding.assert_same(next(iter(learner.outputs_under(x, [2]))), together[2])


# Streams that are not as simple.


def contexts_found(learner, batches):
    return [seen.context for seen in infer(learner, batches)]


@pytest.mark.parametrize("steps", [10, 12, 15])
def test_a_switch_early_in_a_task_is_found(steps):
    found = contexts_found(made(ContextDetector()), stream([0, 1], steps))
    assert found == [0] * (steps + 2) + [1] * (steps - 2)


def test_a_network_that_learns_a_new_task_in_two_steps_does_not_hide_it():
    learner = made(ContextDetector(), optimizer=partial(torch.optim.SGD, lr=0.2, momentum=0.8))
    assert contexts_found(learner, stream([0, 1]))[STEPS:] == [0, 0] + [1] * (STEPS - 2)


@pytest.mark.numeric
@pytest.mark.parametrize("factor", [3, 10, 30])
def test_a_raised_learning_rate_is_no_new_task(factor):
    def noisy(step):
        x, y = batch(0, step)
        return x, torch.where(
            torch.rand(50, generator=torch.Generator().manual_seed(step)) < 0.1, 0, y
        )

    learner = made(ContextDetector())
    usual = [learner.observe(*noisy(step)).loss for step in range(30)][-10:]
    for group in learner.optimizer.param_groups:
        group["lr"] *= factor
    raised = [learner.observe(*noisy(step)).loss for step in range(30, 60)]
    assert learner.contexts.contexts == 1
    if factor == 30:  # enough for an alarm
        assert max(raised) > 5 * max(usual) and learner.contexts.figures["dismissed"] == 1


def test_batches_of_one_sample():
    learner = made(
        ContextDetector(window=5),
        model=partial(network, norm=False),
        optimizer=partial(torch.optim.Adam, lr=3e-3),
    )
    samples = [
        (task, x[n : n + 1], y[n : n + 1])
        for task in (0, 1)
        for x, y in [batch(task, 9, 200)]
        for n in range(200)
    ]
    found = contexts_found(learner, samples)
    assert found[:200] == [0] * 200 and found[-100:] == [1] * 100 and learner.contexts.contexts == 2


def test_a_blurred_boundary_is_one_boundary():
    learner = made(ContextDetector())
    infer(learner, stream([0]))
    for step in range(12):
        (x, y), (new_x, new_y) = batch(0, 300 + step), batch(1, 300 + step)
        of_new = torch.arange(50) < 50 * (step + 1) / 12
        seen = learner.observe(
            torch.where(of_new[:, None], new_x, x), torch.where(of_new, new_y, y)
        )
    later = contexts_found(learner, stream([1]))
    assert learner.contexts.contexts == 2 and set(later) == {1} == {seen.context}
    assert contexts_found(learner, stream([0]))[2:] == [0] * (STEPS - 2)


def test_a_slow_drift_is_followed_without_a_new_context():
    learner = made(ContextDetector())
    infer(learner, stream([0]))
    for step in range(90):  # a quarter turn of half of the features against the others
        x, y = batch(0, 300 + step)
        angle = math.pi / 2 * step / 90
        one, other = x.split(FEATURES // 2, 1)
        turned = torch.cat(
            [
                math.cos(angle) * one - math.sin(angle) * other,
                math.sin(angle) * one + math.cos(angle) * other,
            ],
            1,
        )
        learner.observe(turned, y)
    assert learner.contexts.contexts == 1
    assert learner.observe(torch.cat([-other, one], 1), y).loss < 0.5


@pytest.mark.parametrize("first", [1, 3])
def test_a_first_task_of_a_few_batches_shares_its_context_with_the_next(first):
    learner = made(ContextDetector())
    assert set(contexts_found(learner, [*stream([0], first), *stream([1])])) == {0}
    assert contexts_found(learner, stream([2]))[-1] == 1


def test_inputs_of_any_length_and_named_ones_can_be_in_doubt():
    class Named(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, features):
            return self.inner(features)

    def positions(task, step):
        x, y = batch(task, step)
        return x[:, :, None].expand(-1, -1, 1 + step % 3), y

    pooled = made(
        ContextDetector(),
        model=lambda: nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten(), *network()),
    )
    named = made(ContextDetector(), model=lambda: Named(network()))
    for step in range(2 * STEPS):
        task = step // STEPS
        pooled.observe(*positions(task, step))
        x, y = batch(task, step)
        named.observe({"features": x}, y)
    assert pooled.context == named.context == 1


# Bad input.


def test_who_infers_is_not_told_and_who_does_not_must_be():
    inferring, knowing = made(ContextDetector()), made()
    with pytest.raises(ValueError, match="infers its contexts: leave context out"):
        inferring.observe(*batch(0, 0), context=0)
    with pytest.raises(ValueError, match="Say which context"):
        knowing.observe(*batch(0, 0))
    assert inferring.context is knowing.context is None


def test_a_method_without_contexts_has_none_to_infer():
    with pytest.raises(ValueError, match="Under finetune a network is the same in every context"):
        made(ContextDetector(), method=gateon.Finetune())


@pytest.mark.parametrize("what, doubted", [("loss", 0), ("loss", 1), ("loss", 2), ("gradient", 0)])
def test_what_is_not_finite_leaves_everything_as_it_was(what, doubted):
    learner = made(ContextDetector(), model=partial(network, dropout=0.1))
    infer(learner, stream([0]))
    infer(learner, [(1, *batch(1, 500 + n)) for n in range(doubted)])
    before = copy.deepcopy(learner.state_dict())
    x, y = batch(0, 300)
    usual = learner.loss
    if what == "loss":
        x[3, 2] = math.nan
    else:
        learner.loss = lambda outputs, y: usual(Explodes.apply(outputs), y)
    with pytest.raises(FloatingPointError):
        learner.observe(x, y)
    learner.loss = usual
    assert_same(learner.state_dict(), before)


def test_more_contexts_than_allowed_are_an_error_that_changes_nothing():
    learner = made(ContextDetector(max_contexts=1))
    infer(learner, stream([0]) + [(1, *batch(1, 500 + n)) for n in range(2)])
    before = copy.deepcopy(learner.state_dict())
    for _ in range(2):
        with pytest.raises(ValueError, match="there are 1 already, which is max_contexts"):
            learner.observe(*batch(1, 502))
        assert_same(learner.state_dict(), before)
    assert learner.observe(*batch(0, 300)).context == 0 and learner.steps == before["step"] + 3


def test_or_the_best_fitting_context_is_reused():
    learner = made(ContextDetector(max_contexts=2, when_full="best"))
    found = contexts_found(learner, stream([0, 1, 2]))
    assert set(found) == {0, 1} and learner.steps == 3 * STEPS


def test_algorithm_1_hears_of_every_batch_once(monkeypatch):
    heard, update = [], ContextDetector.update
    monkeypatch.setattr(
        ContextDetector,
        "update",
        lambda self, loss, *rest: heard.append(loss) or update(self, loss, *rest),
    )
    detector = ContextDetector(window=1, confidence_rate=0.3, robust=False)
    found = contexts_found(made(detector), batches := stream([0, 1, 0]))
    assert len(heard) == len(batches) and max(found) > 0


def test_two_contexts_that_are_alike_do_not_send_a_batch_to_and_fro():
    """Each rejects the batch while it is active, and would take it back when it is not: what is settled stays settled."""
    one = made(ContextDetector(window=1, fit=50.0, confident=0.0))
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        x = torch.randn(50, 20, generator=generator)
        one.observe(x, (x[:, 0] > 0).long())
    strange = torch.randn(50, 20, generator=generator)
    for _ in range(6):
        one.observe(strange, (strange[:, 3] < 0).long())
    assert one.contexts.figures["switches"] <= 6


@pytest.mark.numeric
def test_losses_are_compared_without_the_penalty_of_a_method():
    method = gateon.GateON(density=0.5, gate_penalty=5.0)
    one = made(ContextDetector(), method=method)
    x, y = torch.randn(50, 20), torch.zeros(50, dtype=torch.long)
    _, value, restore = one.forward(x, y) if one.switch(0) else (None, 0.0, None)
    restore()
    assert value == pytest.approx(one.loss(one._work.network(x), y).item(), abs=1e-5)


@pytest.mark.numeric
def test_norms_of_the_batch_are_not_mixed_between_contexts():
    one = made(model=partial(mlp, FEATURES, (30,), CLASSES, norm="batch"), compact=False)
    x = torch.randn(40, 20)
    for k in range(3):
        one.observe(x, torch.zeros(40, dtype=torch.long), context=k)
    for k, outputs in enumerate(one.outputs_under(x, range(3))):
        torch.testing.assert_close(outputs, one.predict(x, context=k))


def test_a_context_that_calls_all_strangers_the_same_is_not_taken_for_the_right_one():
    sure = torch.tensor([[4.0, 0.0], [0.0, 4.0]] * 20)  # knows both classes
    stubborn = torch.tensor([[9.0, 0.0]] * 40)  # surer, but of one class only
    assert recognised([stubborn, sure], each=False).context == 1
    assert recognised([stubborn, sure], each=True).context.tolist() == [0] * 40
    # one sample has no variety
    assert recognised([stubborn[:1], sure[:1]], each=False).context == 0
