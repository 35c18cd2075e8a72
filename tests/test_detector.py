"""The detector on losses alone: Algorithm 1 as its literal twin has it, and what the robust rule must do better."""

from __future__ import annotations

import copy
import math
import random
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import reference
from gateon import ContextDetector
from gateon.storage import checkpoint

PAPERS = ["paper-mnist", "paper-asc", "paper-dsc", "paper-20news"]
WORST = 5.0  # the loss of a batch in a context that does not know it

seeds = st.integers(0, 2**32 - 1)
windows = st.integers(1, 5)


def fits_none(contexts):
    return [WORST for _ in contexts]


def fits(*losses):
    """A probe that finds these losses, and the worst in the contexts after them."""
    return lambda contexts: [[*losses, *[WORST] * 99][k] for k in contexts]


def fed(detector, losses, probe=fits_none):
    return [detector.update(loss, probe) for loss in losses]


def switches(verdicts):
    return [step for step, verdict in enumerate(verdicts) if verdict.switched]


def learned(steps, start=2.3, end=0.1, speed=0.3, noise=0.05, seed=0):
    """The losses of a task: they fall from start towards end, and every batch differs a little."""
    rng = random.Random(seed)
    return [
        (end + (start - end) * math.exp(-speed * t)) * (1 + noise * rng.uniform(-1, 1))
        for t in range(steps)
    ]


def settled(steps=40, **options):
    """A detector that has seen a task being learned."""
    detector = ContextDetector(**options)
    assert not switches(fed(detector, learned(steps)))
    return detector


# Algorithm 1.


def twin_of(detector, tables):
    s = detector
    return reference.change_points(
        tables, s.threshold, s.window, s.loss_rate, s.confidence_rate, s.confident
    )


def run_on(detector, tables):
    found = []
    for table in tables:
        verdict = detector.update(
            table[min(detector.active, len(table) - 1)],
            lambda ks, t=table: [t[min(k, len(t) - 1)] for k in ks],
        )
        found.append((verdict.context, verdict.new))
    return found


def random_tables(seed, steps, contexts=4):
    """Phases in which one context knows the batches and the others do not, with noise; sometimes no context does."""
    rng = random.Random(seed)
    tables = []
    while len(tables) < steps:
        good, level = rng.randrange(contexts + 1), rng.uniform(0.1, 1)
        for _ in range(rng.randint(1, 60)):
            tables.append(
                [
                    level * rng.uniform(0.8, 1.2) * (1 if k == good else rng.uniform(1, 8))
                    for k in range(contexts)
                ]
            )
    return tables[:steps]


@pytest.mark.parametrize("name", PAPERS)
@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_the_papers_presets_are_algorithm_1(name, seed):
    tables = random_tables(seed, 400)
    detector = ContextDetector.preset(name)
    assert run_on(detector, tables) == twin_of(detector, tables)


@given(
    seed=seeds,
    threshold=st.floats(1.001, 4),
    window=windows,
    rates=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)),
    confident=st.floats(0, 0.99),
)
@settings(max_examples=60, deadline=None)
def test_algorithm_1_with_any_settings_is_its_literal_twin(
    seed, threshold, window, rates, confident
):
    tables = random_tables(seed, 120)
    detector = ContextDetector(threshold, window, *rates, confident=confident, robust=False)
    assert run_on(detector, tables) == twin_of(detector, tables)


def test_the_twin_finds_switches_and_returns_at_all():
    tables = random_tables(3, 2000)
    found = twin_of(ContextDetector.preset("paper-mnist"), tables)
    contexts = [context for context, _ in found]
    assert sum(new for _, new in found) >= 2
    assert any(b < a for a, b in pairwise(contexts))


def test_the_first_context_that_passes_is_taken_by_algorithm_1_and_the_best_one_by_the_robust_rule():
    for robust, expected in ((False, 1), (True, 2)):
        detector = ContextDetector(2.0, 1, confidence_rate=0.5, robust=robust)
        for k in range(4):  # contexts 0 to 3 are opened, with losses of about 1
            fed(detector, [1.0] * 20)
            if k < 3:
                assert (
                    detector.update(
                        50.0, fits_none if robust else lambda ks: [50.0 for _ in ks]
                    ).context
                    == k + 1
                )
                fed(detector, [] if robust else [1.0] * 60)
        found = detector.update(20.0, lambda ks: [20.0, 1.1, 0.9, 20.0]).context
        assert found == expected


# What is no switch.


@given(seed=seeds, window=st.integers(2, 5), size=st.floats(2, 1e6), at=st.integers(0, 60))
def test_fewer_odd_batches_than_the_window_never_switch(seed, window, size, at):
    losses = learned(70, seed=seed)
    odd = losses[:at] + [size * WORST] * (window - 1) + losses[at:]
    detector = ContextDetector(window=window)
    assert not switches(fed(detector, odd)) and detector.contexts == 1


def test_odd_batches_leave_no_trace_once_the_detector_is_confident():
    plain, disturbed = settled(), settled()
    fed(disturbed, [100.0, 200.0])
    for one in (plain, disturbed):
        fed(one, [0.1])
    assert plain.state_dict() == disturbed.state_dict()


STEADY = {
    "falls slowly": lambda t, rng: 2 * 0.995**t,
    "falls fast": lambda t, rng: 2 * 0.5**t,
    "falls on a line below zero": lambda t, rng: 2 - 0.05 * t,
    "falls in steps": lambda t, rng: 2.0 / (1 + t // 25),
    "constant": lambda t, rng: 0.7,
    "zero": lambda t, rng: 0.0,
    "constant and negative": lambda t, rng: -3.0,
    "negative and falling": lambda t, rng: -3.0 - math.log1p(t),
    "label noise": lambda t, rng: 1.5 + 0.1 * rng.gauss(0, 1),
    "noise about zero": lambda t, rng: rng.gauss(0, 1),
    "falls under noise": lambda t, rng: (0.2 + 2 * math.exp(-0.1 * t)) * rng.uniform(0.7, 1.3),
    "saw-tooth": lambda t, rng: 1 + 0.2 * (t % 5),
    "high and low in turns": lambda t, rng: 0.1 if t % 2 else 1.0,
    "rises slowly": lambda t, rng: 0.5 * 1.005**t,
}


@pytest.mark.parametrize("kind", STEADY)
@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_a_task_that_goes_on_is_no_switch(kind, seed):
    rng = random.Random(seed)
    detector = ContextDetector()
    verdicts = fed(detector, [STEADY[kind](t, rng) for t in range(300)])
    assert not switches(verdicts) and detector.figures == {
        "switches": 0,
        "returns": 0,
        "dismissed": 0,
    }


@given(st.lists(st.floats(-1e6, 1e6), max_size=40), windows)
def test_whatever_the_losses_are_the_books_stay_sound(losses, window):
    detector = ContextDetector(window=window)
    verdicts = fed(detector, losses)
    assert (
        detector.contexts
        == 1 + sum(verdict.new for verdict in verdicts)
        == 1 + detector.figures["switches"]
    )
    assert all(0 <= confidence <= 1 for confidence in detector.confidences)
    assert all(verdict.context < detector.contexts for verdict in verdicts)
    for before, after in pairwise(verdicts):
        assert after.switched == (after.context != before.context)
        assert not (after.switched and (after.suspected or after.dismissed))


# What is one.


@given(seed=seeds, window=windows, steps=st.integers(8, 120), jump=st.floats(1.5, 100))
@example(seed=0, window=3, steps=8, jump=1.5)
def test_a_jump_is_found_within_the_window_early_or_late(seed, window, steps, jump):
    detector = ContextDetector(window=window)
    assert not switches(fed(detector, learned(steps, seed=seed)))
    verdicts = fed(detector, [2.3 * jump] * window)
    assert (
        switches(verdicts) == [window - 1]
        and all(v.suspected for v in verdicts[:-1])
        and verdicts[-1].new
    )


@given(seed=seeds, tasks=st.integers(2, 6), steps=st.integers(15, 60))
def test_task_after_task_is_found_and_nothing_else(seed, tasks, steps):
    detector = ContextDetector()
    for task in range(tasks):
        for n, loss in enumerate(learned(steps, seed=seed + task)):
            # Until the switch is found the loss is that of the old context.
            verdict = detector.update(loss if detector.active == task else 3.0, fits_none)
            assert verdict.context == task if n > 1 else not verdict.switched
    assert detector.figures == {"switches": tasks - 1, "returns": 0, "dismissed": 0}


def test_a_switch_is_seen_in_a_network_that_has_nothing_left_to_learn():
    detector = ContextDetector()
    fed(detector, [2.3 * 0.1**t for t in range(60)])  # down to 1e-59
    assert not switches(fed(detector, [0.01] * 5))  # a thousandth of what was learned is nothing
    assert switches(fed(detector, [0.1] * 5)) == [2]


def test_a_steep_fall_is_not_taken_for_noise():
    # of a small network
    falling = [
        1.37,
        1.35,
        1.31,
        1.22,
        1.1,
        0.95,
        0.81,
        0.65,
        0.42,
        0.28,
        0.22,
        0.14,
    ]
    detector = ContextDetector()
    fed(detector, falling)
    # noise of the size of those steps would reach it; a level this loss has left does not
    assert detector.update(1.1).suspected


def test_nothing_is_a_switch_before_there_is_confidence():
    detector = ContextDetector()
    verdicts = fed(detector, [0.1] + [9.0] * 6 + [0.1] * 3)
    assert detector.confidences[0] > 0.9 and not any(v.switched or v.suspected for v in verdicts)


def test_a_window_of_one_switches_at_once():
    detector = settled(window=1)
    verdict = detector.update(WORST, fits_none)
    assert verdict.switched and verdict.new and not verdict.suspected


def test_a_first_task_of_one_batch_is_too_short_to_be_told_apart():
    detector = ContextDetector()
    fed(detector, [2.3])
    assert not switches(fed(detector, learned(40, start=3.0)))
    assert switches(fed(detector, [WORST] * 3)) == [2]


# What the probe says.


def test_a_context_that_still_fits_is_not_left_and_its_new_level_is_taken():
    detector = settled()
    verdicts = fed(detector, [0.8] * 3, fits(0.1))  # a learning rate was raised
    assert [v.dismissed for v in verdicts] == [False, False, True] and verdicts[-1].context == 0
    assert detector.losses == [0.8] and detector.figures["dismissed"] == 1
    assert not any(v.suspected or v.switched for v in fed(detector, [0.8, 0.9, 0.7, 0.85] * 5))
    assert switches(fed(detector, [WORST] * 3)) == [2]


def returning():
    """Contexts 0, 1 and 2, settled at about 0.1 each."""
    detector = settled()
    for _ in range(2):
        fed(detector, [WORST] * 3)
        fed(detector, learned(40))
    assert detector.contexts == 3 and detector.active == 2
    return detector


@pytest.mark.parametrize(
    "probed, context",
    [
        ([0.12, 0.1, WORST], 1),
        ([0.1, 0.12, WORST], 0),
        ([WORST, 0.19, WORST], 1),
        ([1.0, 0.9, WORST], 3),
    ],
)
def test_the_best_fitting_old_context_returns_if_one_fits(probed, context):
    detector = returning()
    verdict = fed(detector, [WORST] * 3, fits(*probed))[-1]
    assert (verdict.switched, verdict.context, verdict.new) == (True, context, context == 3)
    assert detector.figures == {"switches": 3, "returns": int(context < 3), "dismissed": 0}


def test_a_returning_context_goes_on_with_its_own_books():
    detector = returning()
    losses, confidences = detector.losses, detector.confidences
    fed(detector, [WORST] * 3, fits(0.1, WORST, WORST))
    assert (
        detector.active == 0 and detector.losses == losses and detector.confidences == confidences
    )
    assert not switches(fed(detector, [0.1] * 10))
    assert detector.confidences[0] > confidences[0] and detector.confidences[1:] == confidences[1:]


def test_the_probe_is_asked_only_once_the_window_is_full():
    asked = []

    def probe(contexts):
        asked.append(list(contexts))
        return [WORST for _ in contexts]

    detector = ContextDetector()
    fed(detector, [*learned(40), WORST, 0.1, WORST, WORST, 0.1], probe)
    assert asked == []
    fed(detector, [WORST] * 3, probe)
    assert asked == [[0]]


def test_a_probe_that_fails_changes_nothing():
    def broken(contexts):
        raise RuntimeError("no such network")

    detector = settled()
    fed(detector, [WORST] * 2)
    before = copy.deepcopy(detector.state_dict())
    with pytest.raises(RuntimeError, match="no such network"):
        detector.update(WORST, broken)
    assert detector.state_dict() == before
    assert detector.update(WORST, fits_none).switched


@pytest.mark.parametrize("robust", [True, False])
def test_without_a_probe_every_switch_opens_a_context(robust):
    detector = ContextDetector(confidence_rate=0.3, robust=robust)
    for _ in range(3):
        fed(detector, [0.1] * 60 + [WORST] * 3, None)
    assert detector.contexts == 4 and detector.figures["returns"] == 0


@pytest.mark.parametrize("robust", [True, False])
def test_a_context_whose_probe_is_not_finite_fits_nothing(robust):
    detector = ContextDetector(confidence_rate=0.3, robust=robust)
    fed(detector, [0.1] * 60)
    assert fed(detector, [WORST] * 3, lambda ks: [math.nan for _ in ks])[-1].context == 1


# Bounds.


@pytest.mark.parametrize("robust", [True, False])
def test_more_contexts_than_allowed_are_an_error_that_changes_nothing(robust):
    detector = ContextDetector(confidence_rate=0.3, max_contexts=1, robust=robust)
    fed(detector, [0.1] * 60 + [WORST] * 2)
    before = copy.deepcopy(detector.state_dict())
    for probe in (fits_none, None):
        with pytest.raises(
            ValueError,
            match="there are 1 already, which is max_contexts: raise it, or choose when_full",
        ):
            detector.update(WORST, probe)
        assert detector.state_dict() == before and detector.contexts == 1


@pytest.mark.parametrize("robust", [True, False])
def test_or_the_best_fitting_one_is_reused(robust):
    detector = ContextDetector(confidence_rate=0.3, max_contexts=2, when_full="best", robust=robust)
    fed(detector, [0.1] * 60 + [WORST] * 3)
    fed(detector, [0.1] * 60)
    assert detector.active == 1 and detector.contexts == 2
    assert fed(detector, [WORST] * 3, fits(3.0, 4.0))[-1].context == 0
    fed(detector, [0.1] * 60)
    # the one at hand is the best there is
    assert fed(detector, [WORST] * 3, fits(3.0, 4.0))[-1].context == 0
    assert detector.contexts == 2


@pytest.mark.parametrize("robust", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None, "0.3"])
def test_a_loss_that_is_no_finite_number_is_refused_and_changes_nothing(bad, robust):
    detector = ContextDetector(robust=robust)
    fed(detector, learned(40) + [WORST] * 2)
    before = copy.deepcopy(detector.state_dict())
    with pytest.raises(ValueError, match="finite numbers only"):
        detector.update(bad, fits_none)
    assert detector.state_dict() == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": 1.0},
        {"threshold": math.nan},
        {"threshold": math.inf},
        {"window": 0},
        {"window": 1.5},
        {"loss_rate": 0.0},
        {"loss_rate": 1.1},
        {"confidence_rate": math.nan},
        {"confident": 1.0},
        {"confident": -0.1},
        {"spread": -1.0},
        {"share": math.inf},
        {"fit": 0.0},
        {"fit": math.inf},
        {"max_contexts": 0},
        {"when_full": "oldest"},
    ],
    ids=str,
)
def test_settings_that_mean_nothing_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ContextDetector(**wrong)


def test_presets_have_names():
    assert ContextDetector.preset("best") == ContextDetector()
    with pytest.raises(ValueError, match="choose one of best, paper-mnist"):
        ContextDetector.preset("paper")


@given(seed=seeds, exponent=st.integers(-40, 40), robust=st.booleans())
def test_the_scale_of_the_losses_does_not_matter(seed, exponent, robust):
    tables = random_tables(seed, 150)
    scaled = [[loss * 2.0**exponent for loss in table] for table in tables]  # without rounding
    one, other = (ContextDetector(confidence_rate=0.3, robust=robust) for _ in range(2))
    assert run_on(one, tables) == run_on(other, scaled)


@given(seed=seeds, at=st.integers(0, 150), robust=st.booleans(), window=windows)
@settings(deadline=None, max_examples=40)
def test_going_on_from_a_checkpoint_is_going_on(seed, at, robust, window, tmp_path_factory):
    tables = random_tables(seed, 150)
    whole, first, second = (
        ContextDetector(confidence_rate=0.3, window=window, robust=robust) for _ in range(3)
    )
    expected = run_on(whole, tables)
    before = run_on(first, tables[:at])
    path = tmp_path_factory.mktemp("detector") / "state"
    checkpoint.save(first.state_dict(), path)
    second.load_state_dict(checkpoint.load(path))
    assert before + run_on(second, tables[at:]) == expected
    assert repr(second.state_dict()) == repr(whole.state_dict())  # NaN is no equal of itself


def test_a_state_taken_between_two_suspects_and_a_new_one_come_back_whole(tmp_path):
    detector = settled()
    fed(detector, [WORST] * 2)
    for one in (detector, ContextDetector()):  # the second has no losses yet, only NaN
        checkpoint.save(one.state_dict(), tmp_path / "state")
        other = ContextDetector()
        other.load_state_dict(checkpoint.load(tmp_path / "state"))
        assert repr(other.state_dict()) == repr(one.state_dict())
    checkpoint.save(detector.state_dict(), tmp_path / "state")
    other.load_state_dict(checkpoint.load(tmp_path / "state"))
    assert other.update(WORST, fits_none).switched


# Beside Algorithm 1, with the paper's settings, counted over the same sequences.


def test_the_robust_rule_is_better_where_algorithm_1_fails():
    trials = range(20)
    odd = [[*learned(300, noise=0.0), WORST, *learned(100, start=0.1, noise=0.0)] for _ in trials]
    falling = [learned(400, seed=seed) for seed in trials]
    noisy = [
        [1.5 + 0.1 * random.Random(1000 * seed + t).gauss(0, 1) for t in range(400)]
        for seed in trials
    ]

    def paper():
        return ContextDetector.preset("paper-mnist")

    def false_alarms(make, sequences):
        return sum(bool(switches(fed(make(), losses))) for losses in sequences)

    def found(make, steps):
        return sum(
            switches(fed(make(), learned(steps, speed=0.1 + 0.01 * n, noise=0.0) + [3.0] * 5)) != []
            for n in trials
        )

    assert (false_alarms(paper, odd), false_alarms(ContextDetector, odd)) == (20, 0)
    assert (false_alarms(paper, falling), false_alarms(ContextDetector, falling)) == (20, 0)
    assert (false_alarms(paper, noisy), false_alarms(ContextDetector, noisy)) == (20, 0)
    assert (found(paper, 12), found(ContextDetector, 12)) == (0, 20)  # a task of twelve batches
    # a smooth one of four hundred
    assert (found(paper, 400), found(ContextDetector, 400)) == (
        20,
        20,
    )
