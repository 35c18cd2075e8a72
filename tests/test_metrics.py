"""Metrics against literal loops of their formulas, hand-computed examples, properties, and bad input."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gateon.runs import metrics

NAN = math.nan
unhurried = settings(deadline=None)  # a busy machine is no failure
FRACTION = st.integers(0, 1000).map(lambda n: n / 1000)

# Three tasks; task 0 falls from 0.9 to 0.5, task 1 gains, entries above the diagonal as a full
# evaluation leaves them.
EXAMPLE = [[0.9, 0.2, 0.1], [0.7, 0.8, 0.3], [0.5, 0.9, 0.6]]

MATRIX_METRICS = [
    metrics.immediate_accuracy,
    metrics.continual_accuracy,
    metrics.forgetting_rate,
    metrics.final_accuracy,
    metrics.lopez_paz_backward_transfer,
    metrics.chaudhry_forgetting,
    metrics.diaz_rodriguez_accuracy,
    metrics.rebuffi_incremental_accuracy,
]
MATRIX_FUNCTIONS = [
    *MATRIX_METRICS,
    metrics.immediate_accuracies,
    metrics.continual_accuracies,
    metrics.forgetting_rates,
    metrics.summary,
]


@st.composite
def matrices(draw, min_tasks=1):
    tasks = draw(st.integers(min_tasks, 6))
    return draw(hnp.arrays(np.float64, (tasks, tasks), elements=FRACTION))


@st.composite
def thin_matrices(draw, min_tasks=1):
    """Only some rows were evaluated, the last among them; the diagonal always is."""
    matrix = draw(matrices(min_tasks))
    tasks = len(matrix)
    matrix[np.triu_indices(tasks, 1)] = NAN
    for k in range(tasks - 1):
        if not draw(st.booleans()):
            matrix[k, :k] = NAN
    return matrix


def above_diagonal_missing(matrix):
    lower = np.array(matrix, dtype=float)
    lower[np.triu_indices(len(lower), 1)] = NAN
    return lower


# The formulas as printed: loops over tasks 1 to K, entry by entry.


def literal_continual(a, k):
    """Mean over those k' >= k that were evaluated; all of them are in a full schedule."""
    terms = [a[kk - 1][k - 1] for kk in range(k, len(a) + 1) if not math.isnan(a[kk - 1][k - 1])]
    return sum(terms) / len(terms)


def literal_means(a):
    K = len(a)
    immediate = sum(a[k - 1][k - 1] for k in range(1, K + 1)) / K
    continual = sum(literal_continual(a, k) for k in range(1, K + 1)) / K
    final = sum(a[K - 1][j - 1] for j in range(1, K + 1)) / K
    return {
        "immediate_accuracy": immediate,
        "continual_accuracy": continual,
        "forgetting_rate": sum(a[k - 1][k - 1] - literal_continual(a, k) for k in range(1, K + 1))
        / K,
        "final_accuracy": final,
    }


def literal_chaudhry(a):
    K = len(a)
    total = 0.0
    for j in range(1, K):
        best = max(a[ell - 1][j - 1] for ell in range(j, K) if not math.isnan(a[ell - 1][j - 1]))
        total += best - a[K - 1][j - 1]
    return total / (K - 1)


def literal_pearson(x, y):
    n = len(x)
    mean_x, mean_y = sum(x) / n, sum(y) / n
    covariance = sum((p - mean_x) * (q - mean_y) for p, q in zip(x, y, strict=True)) / n
    variance_x = sum((p - mean_x) ** 2 for p in x) / n
    variance_y = sum((q - mean_y) ** 2 for q in y) / n
    return covariance / math.sqrt(variance_x * variance_y)


def literal_macro_f1(labels, predictions, classes):
    scores = []
    for c in range(classes):
        pairs = list(zip(labels, predictions, strict=True))
        hit = sum(y == c and p == c for y, p in pairs)
        false_alarm = sum(y != c and p == c for y, p in pairs)
        miss = sum(y == c and p != c for y, p in pairs)
        if hit + false_alarm + miss == 0:
            continue
        precision = hit / (hit + false_alarm) if hit + false_alarm else 0.0
        recall = hit / (hit + miss) if hit + miss else 0.0
        scores.append(2 * precision * recall / (precision + recall) if precision + recall else 0.0)
    return sum(scores) / len(scores)


# By hand


def test_the_papers_measures_by_hand():
    assert metrics.immediate_accuracies(EXAMPLE) == pytest.approx([0.9, 0.8, 0.6])
    assert metrics.continual_accuracies(EXAMPLE) == pytest.approx([0.7, 0.85, 0.6])
    assert metrics.forgetting_rates(EXAMPLE) == pytest.approx([0.2, -0.05, 0.0])
    assert metrics.immediate_accuracy(EXAMPLE) == pytest.approx(2.3 / 3)
    assert metrics.continual_accuracy(EXAMPLE) == pytest.approx(2.15 / 3)
    assert metrics.forgetting_rate(EXAMPLE) == pytest.approx(0.05)
    assert metrics.final_accuracy(EXAMPLE) == pytest.approx(2.0 / 3)
    assert metrics.accuracy_deviation(EXAMPLE, [0.9, 0.7, 0.9]) == pytest.approx(-0.08)
    assert metrics.accuracy_deviations(EXAMPLE, [0.9, 0.4, 0.8]) == pytest.approx([0.0, 1.0, -0.25])


def test_deviation_is_a_ratio_of_means():
    isolated = [0.9, 0.4, 0.8]
    mean_of_ratios = metrics.accuracy_deviations(EXAMPLE, isolated).mean()
    assert metrics.accuracy_deviation(EXAMPLE, isolated) == pytest.approx(2.3 / 2.1 - 1)
    assert metrics.accuracy_deviation(EXAMPLE, isolated) != pytest.approx(mean_of_ratios)


def test_a_zero_among_isolated_is_harmless_to_the_ratio_of_means():
    assert metrics.accuracy_deviation(EXAMPLE, [0.0, 0.5, 0.5]) == pytest.approx(1.3)


def test_the_fields_measures_by_hand():
    assert metrics.lopez_paz_backward_transfer(EXAMPLE) == pytest.approx((-0.4 + 0.1) / 2)
    assert metrics.lopez_paz_forward_transfer(EXAMPLE, [NAN, 0.1, 0.1]) == pytest.approx(
        (0.1 + 0.2) / 2
    )
    assert metrics.chaudhry_forgetting(EXAMPLE) == pytest.approx((0.4 - 0.1) / 2)
    assert metrics.diaz_rodriguez_accuracy(EXAMPLE) == pytest.approx(
        (0.9 + 0.7 + 0.8 + 0.5 + 0.9 + 0.6) / 6
    )
    assert metrics.rebuffi_incremental_accuracy(EXAMPLE) == pytest.approx(
        (0.9 + 0.75 + 2.0 / 3) / 3
    )


def test_chaudhry_counts_from_the_best_not_from_the_diagonal():
    peak_later = [[0.5, NAN, NAN], [0.9, 0.6, NAN], [0.5, 0.6, 0.7]]
    assert metrics.chaudhry_forgetting(peak_later) == pytest.approx(0.2)
    assert metrics.lopez_paz_backward_transfer(peak_later) == pytest.approx(0.0)


def test_chaudhry_ignores_tests_before_the_task_was_trained():
    lucky_before = [[0.5, 1.0, NAN], [0.5, 0.6, NAN], [0.5, 0.6, 0.7]]
    assert metrics.chaudhry_forgetting(lucky_before) == pytest.approx(0.0)


def test_one_task():
    assert metrics.summary([[0.75]], isolated=[0.5]) == {
        "immediate_accuracy": 0.75,
        "continual_accuracy": 0.75,
        "forgetting_rate": 0.0,
        "final_accuracy": 0.75,
        "accuracy_deviation": 0.5,
    }


def test_thin_schedule_by_hand():
    thin = [[0.9, NAN, NAN], [NAN, 0.8, NAN], [0.5, 0.6, 0.7]]
    assert metrics.continual_accuracies(thin) == pytest.approx([0.7, 0.7, 0.7])
    assert metrics.forgetting_rate(thin) == pytest.approx(0.1)
    assert metrics.chaudhry_forgetting(thin) == pytest.approx(0.3)


def test_task_locked_accuracy_leaves_the_first_task_out():
    curves = [[NAN, 0.0, 0.0], [0.1, 0.5, 0.9], [0.3, 0.5, 0.7]]
    assert metrics.task_locked_accuracy(curves) == pytest.approx([0.2, 0.5, 0.8])


def test_context_correlation_by_hand():
    #    open: 0 1 . .     0 . 2 .     0 1 2 .     all    none
    gates = [[1, 2, 0, -1], [1, -5, 3, 0], [1, 1, 1, -1], [1, 1, 1, 1], [0, -1, 0, -1]]
    with np.errstate(
        all="raise"
    ):  # a constant row is NaN on purpose, not a division that went wrong
        correlation = metrics.context_correlation(gates)
    assert correlation[0, 1] == 0.0
    assert correlation[0, 2] == pytest.approx(1 / math.sqrt(3))
    constant = correlation[3:]
    assert np.isnan(constant[0, [0, 1, 2, 4]]).all()
    assert np.isnan(constant[1, [0, 1, 2, 3]]).all()
    assert (correlation.diagonal() == 1).all()


def test_only_the_sign_of_a_gate_weight_counts():
    gates = np.array([[0.1, 0.2, -0.3, 0.0], [5.0, -1.0, 2.0, 0.0]])
    np.testing.assert_array_equal(
        metrics.context_correlation(gates), metrics.context_correlation(np.sign(gates))
    )


def test_confusion_rows_are_labels():
    np.testing.assert_array_equal(
        metrics.confusion([0, 0, 2, 2], [0, 1, 1, 2], 3), [[1, 1, 0], [0, 0, 0], [0, 1, 1]]
    )


def test_macro_f1_by_hand():
    # class 0: 1 hit, 1 miss; class 1: predicted twice, never right; class 2: 1 hit, 1 miss; class 3
    # appears nowhere.
    assert metrics.macro_f1([0, 0, 2, 2], [0, 1, 1, 2], 4) == pytest.approx((2 / 3 + 0 + 2 / 3) / 3)
    assert metrics.macro_f1([0, 1], [0, 1], 10) == 1.0
    assert metrics.macro_f1([0, 1], [1, 0], 2) == 0.0


def test_small_integer_types_do_not_overflow():
    labels = np.array([200, 199], dtype=np.uint8)
    assert metrics.confusion(labels, labels, 201)[200, 200] == 1
    assert metrics.macro_f1(labels, labels, 201) == 1.0


def test_matrix_metrics_take_macro_f1_unchanged():
    labels = [[0, 0, 1, 1], [0, 1, 2, 2], [1, 1, 1, 0]]
    predictions = [
        [[0, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]],
        [[0, 0, 0, 1], [0, 1, 2, 1], [0, 0, 0, 0]],
        [[1, 0, 0, 1], [0, 0, 2, 1], [1, 1, 1, 0]],
    ]
    f1 = [
        [metrics.macro_f1(y, p, 3) for y, p in zip(labels, row, strict=True)] for row in predictions
    ]
    plain = [
        [np.mean(np.equal(y, p)) for y, p in zip(labels, row, strict=True)] for row in predictions
    ]
    assert f1[1][1] == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
    isolated = [1.0, 0.8, 0.9]
    expected = literal_means(f1)
    expected["accuracy_deviation"] = (expected["immediate_accuracy"] - 0.9) / 0.9
    assert metrics.summary(f1, isolated) == pytest.approx(expected)
    assert metrics.chaudhry_forgetting(f1) == pytest.approx(literal_chaudhry(f1))
    assert metrics.summary(f1)["continual_accuracy"] != pytest.approx(
        metrics.summary(plain)["continual_accuracy"]
    )


# Against the literal loops


@unhurried
@given(thin_matrices())
def test_summary_is_the_literal_formulas(matrix):
    assert metrics.summary(matrix) == pytest.approx(literal_means(matrix.tolist()))


@unhurried
@given(matrices(min_tasks=2), st.data())
def test_transfer_is_the_literal_formulas(matrix, data):
    a, K = matrix.tolist(), len(matrix)
    b = data.draw(st.lists(FRACTION, min_size=K, max_size=K))
    backward = sum(a[K - 1][j - 1] - a[j - 1][j - 1] for j in range(1, K)) / (K - 1)
    forward = sum(a[j - 2][j - 1] - b[j - 1] for j in range(2, K + 1)) / (K - 1)
    everything = sum(a[k - 1][j - 1] for k in range(1, K + 1) for j in range(1, k + 1)) / (
        K * (K + 1) / 2
    )
    so_far = sum(sum(a[k - 1][j - 1] for j in range(1, k + 1)) / k for k in range(1, K + 1)) / K
    assert metrics.lopez_paz_backward_transfer(matrix) == pytest.approx(backward)
    assert metrics.lopez_paz_forward_transfer(matrix, b) == pytest.approx(forward)
    assert metrics.diaz_rodriguez_accuracy(matrix) == pytest.approx(everything)
    assert metrics.rebuffi_incremental_accuracy(matrix) == pytest.approx(so_far)


@unhurried
@given(thin_matrices(min_tasks=2))
def test_chaudhry_forgetting_is_the_literal_formula(matrix):
    assert metrics.chaudhry_forgetting(matrix) == pytest.approx(literal_chaudhry(matrix.tolist()))


@unhurried
@given(matrices(), st.data())
def test_accuracy_deviation_is_the_literal_formula(matrix, data):
    isolated = data.draw(st.lists(st.floats(0.01, 1), min_size=len(matrix), max_size=len(matrix)))
    K = len(matrix)
    average = sum(isolated) / K
    expected = (1 / average) * (sum(matrix[k, k] for k in range(K)) / K - average)
    assert metrics.accuracy_deviation(matrix, isolated) == pytest.approx(expected)
    per_task = [(matrix[k, k] - isolated[k]) / isolated[k] for k in range(K)]
    assert metrics.accuracy_deviations(matrix, isolated) == pytest.approx(per_task)
    assert metrics.summary(matrix, isolated)["accuracy_deviation"] == pytest.approx(expected)


@unhurried
@given(hnp.arrays(np.float64, st.tuples(st.integers(2, 5), st.integers(1, 6)), elements=FRACTION))
def test_task_locked_accuracy_is_the_literal_formula(curves):
    K, steps = curves.shape
    expected = [
        sum(curves[k - 1][step] for k in range(2, K + 1)) / (K - 1) for step in range(steps)
    ]
    assert metrics.task_locked_accuracy(curves) == pytest.approx(expected)


GATES = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 8)),
    elements=st.sampled_from([-0.5, 0.0, 0.5]),
)


@unhurried
@given(GATES)
def test_context_correlation_is_the_literal_formula(gates):
    correlation = metrics.context_correlation(gates)
    binarised = [[1 if v > 0 else 0 for v in row] for row in gates]
    for i, x in enumerate(binarised):
        for j, y in enumerate(binarised):
            if i == j:
                assert correlation[i, j] == 1
            elif len(set(x)) == 1 or len(set(y)) == 1:
                assert math.isnan(correlation[i, j])
            else:
                assert correlation[i, j] == pytest.approx(literal_pearson(x, y), abs=1e-12)


SAMPLES = st.integers(1, 5).flatmap(
    lambda classes: st.tuples(
        st.just(classes),
        st.lists(
            st.tuples(st.integers(0, classes - 1), st.integers(0, classes - 1)),
            min_size=1,
            max_size=30,
        ),
    )
)


@unhurried
@given(SAMPLES)
def test_macro_f1_and_confusion_are_the_literal_counts(drawn):
    classes, samples = drawn
    labels, predictions = [y for y, _ in samples], [p for _, p in samples]
    counts = metrics.confusion(labels, predictions, classes)
    assert counts.tolist() == [
        [samples.count((i, j)) for j in range(classes)] for i in range(classes)
    ]
    assert metrics.macro_f1(labels, predictions, classes) == pytest.approx(
        literal_macro_f1(labels, predictions, classes)
    )


# Properties


@unhurried
@given(st.lists(FRACTION, min_size=2, max_size=6))
def test_no_forgetting_is_zero_everywhere(immediate):
    kept = np.tile(immediate, (len(immediate), 1))
    assert metrics.forgetting_rates(kept) == pytest.approx(np.zeros(len(immediate)), abs=1e-12)
    assert metrics.continual_accuracy(kept) == pytest.approx(metrics.immediate_accuracy(kept))
    assert metrics.lopez_paz_backward_transfer(kept) == 0
    assert metrics.chaudhry_forgetting(kept) == 0


@unhurried
@given(thin_matrices())
def test_continual_accuracy_lies_between_worst_and_best(matrix):
    continual = metrics.continual_accuracies(matrix)
    for k, value in enumerate(continual):
        assert np.nanmin(matrix[k:, k]) - 1e-12 <= value <= np.nanmax(matrix[k:, k]) + 1e-12


@unhurried
@given(thin_matrices(min_tasks=2))
def test_chaudhry_forgetting_is_at_least_the_backward_loss(matrix):
    assert (
        metrics.chaudhry_forgetting(matrix) >= -metrics.lopez_paz_backward_transfer(matrix) - 1e-12
    )


@unhurried
@given(matrices(min_tasks=2))
def test_entries_above_the_diagonal_change_nothing(matrix):
    for metric in MATRIX_METRICS:
        assert metric(matrix) == metric(above_diagonal_missing(matrix)), metric.__name__


@unhurried
@given(GATES, st.randoms(use_true_random=False))
def test_permuting_contexts_permutes_the_correlation_and_units_do_not_matter(gates, random):
    contexts, units = list(range(gates.shape[0])), list(range(gates.shape[1]))
    random.shuffle(contexts)
    random.shuffle(units)
    correlation = metrics.context_correlation(gates)
    np.testing.assert_array_equal(
        metrics.context_correlation(gates[contexts]), correlation[np.ix_(contexts, contexts)]
    )
    np.testing.assert_array_equal(metrics.context_correlation(gates[:, units]), correlation)
    np.testing.assert_array_equal(correlation, correlation.T)
    assert (np.abs(correlation[np.isfinite(correlation)]) <= 1).all()


def test_equal_and_opposite_gates_correlate_exactly_at_any_width():
    random = np.random.default_rng(0)
    for units in (3, 1000, 20_011):
        gates = random.normal(size=units)
        gates[:2] = 1, -1
        correlation = metrics.context_correlation([gates, 2 * gates, -gates])
        np.testing.assert_array_equal(correlation, [[1, 1, -1], [1, 1, -1], [-1, -1, 1]])


@unhurried
@given(SAMPLES, st.randoms(use_true_random=False))
def test_macro_f1_does_not_depend_on_class_names_or_roles(drawn, random):
    classes, samples = drawn
    labels, predictions = np.array(samples).T
    rename = np.array(random.sample(range(classes), classes))
    score = metrics.macro_f1(labels, predictions, classes)
    assert metrics.macro_f1(rename[labels], rename[predictions], classes) == pytest.approx(score)
    assert metrics.macro_f1(predictions, labels, classes) == score
    assert metrics.macro_f1(labels, labels, classes) == 1.0


# Kinds of input


@pytest.mark.parametrize("function", MATRIX_FUNCTIONS, ids=lambda f: f.__name__)
def test_lists_arrays_and_tensors_agree_and_stay_as_they_are(function):
    lower = above_diagonal_missing(EXAMPLE)
    with_none = [[None if math.isnan(a) else a for a in row] for row in lower.tolist()]
    frozen = lower.copy()
    frozen.flags.writeable = False
    tensor = torch.tensor(lower, requires_grad=True)
    expected = function(lower.tolist())
    for values in (with_none, frozen, tensor):
        np.testing.assert_equal(function(values), expected)
    np.testing.assert_array_equal(frozen, above_diagonal_missing(EXAMPLE))


def test_results_are_no_views_of_the_input():
    accuracy = np.array(EXAMPLE)
    for result in (metrics.immediate_accuracies(accuracy), metrics.continual_accuracies(accuracy)):
        result[:] = 0
    np.testing.assert_array_equal(accuracy, EXAMPLE)


def test_scalars_are_python_floats():
    assert all(
        type(value) is float
        for value in metrics.summary(np.float32(EXAMPLE), isolated=EXAMPLE[0]).values()
    )
    assert type(metrics.macro_f1([0], [0], 1)) is float


def test_gate_parameters_and_half_precision_are_read():
    weights = [[0.5, -0.5, 0.5], [0.5, 0.5, -0.5]]
    parameter = torch.nn.Parameter(torch.tensor(weights, dtype=torch.bfloat16))
    np.testing.assert_array_equal(
        metrics.context_correlation(parameter), metrics.context_correlation(weights)
    )


def test_labels_may_be_tensors_or_booleans():
    assert metrics.macro_f1(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), 2) == pytest.approx(
        2 / 3
    )
    assert metrics.macro_f1([0, 1, 1], np.array([False, True, False]), 2) == pytest.approx(2 / 3)


def test_the_module_does_not_import_torch():
    source = f"import sys, {metrics.__name__}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", source], check=True)


# Bad input: a ValueError that names the place and says what to do


@pytest.mark.parametrize("function", MATRIX_FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("accuracy", "message"),
    [
        ([[0.5, 0.5]], r"shape \(1, 2\): give a square matrix"),
        ([0.5, 0.5], r"accuracy has shape \(2,\): give 2 dimension"),
        ([], "none of them empty"),
        (np.empty((0, 0)), "none of them empty"),
        (None, r"shape \(\)"),
        ([[0.5], [0.5, 0.5]], "give every row the same length"),
        ([["good", "bad"], ["bad", "good"]], "give numbers only"),
        ([[0.5, {}], [0.5, 0.5]], "give numbers only"),
        (
            [[97.0, NAN], [95.0, 98.0]],
            r"accuracy\[0\]\[0\] is 97, not in 0 to 1: give fractions, not percent",
        ),
        ([[0.5, NAN], [-0.1, 0.5]], r"accuracy\[1\]\[0\] is -0.1"),
        ([[0.5, math.inf], [0.1, 0.5]], r"accuracy\[0\]\[1\] is inf"),
    ],
)
def test_every_metric_refuses_what_is_no_matrix_of_fractions(function, accuracy, message):
    with pytest.raises(ValueError, match=message):
        function(accuracy)


@pytest.mark.parametrize(
    "function",
    [f for f in MATRIX_FUNCTIONS if f is not metrics.final_accuracy],
    ids=lambda f: f.__name__,
)
def test_a_missing_diagonal_names_the_task(function):
    with pytest.raises(
        ValueError,
        match=r"needs accuracy\[1\]\[1\], which is NaN: test task 1 after training task 1",
    ):
        function([[0.5, 0.5, 0.5], [0.5, NAN, 0.5], [0.5, 0.5, 0.5]])


@pytest.mark.parametrize(
    "function",
    [
        metrics.final_accuracy,
        metrics.summary,
        metrics.lopez_paz_backward_transfer,
        metrics.chaudhry_forgetting,
        metrics.diaz_rodriguez_accuracy,
        metrics.rebuffi_incremental_accuracy,
    ],
)
def test_a_missing_last_row_names_the_entry(function):
    with pytest.raises(
        ValueError, match=r"accuracy\[2\]\[0\], which is NaN: test task 0 after training task 2"
    ):
        function([[0.5, NAN, NAN], [0.5, 0.5, NAN], [NAN, 0.5, 0.5]])


@pytest.mark.parametrize(
    "function",
    [
        metrics.continual_accuracy,
        metrics.forgetting_rate,
        metrics.forgetting_rates,
        metrics.summary,
    ],
)
def test_a_task_never_tested_again_has_no_continual_accuracy(function):
    never_again = [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0.5, NAN, 0.5]]
    with pytest.raises(
        ValueError,
        match=r"continual accuracy of task 1 .* at least after the last one, in accuracy\[2\]",
    ):
        function(never_again)


def test_only_what_a_metric_needs_is_required():
    assert metrics.final_accuracy([[NAN, NAN], [0.25, 0.75]]) == 0.5
    assert metrics.immediate_accuracy([[0.25, NAN], [NAN, 0.75]]) == 0.5
    just_above = [[NAN, 0.5, NAN], [NAN, NAN, 0.5], [NAN, NAN, NAN]]
    assert metrics.lopez_paz_forward_transfer(just_above, [NAN, 0.25, 0.25]) == 0.25


@pytest.mark.parametrize(
    "function", [metrics.lopez_paz_backward_transfer, metrics.chaudhry_forgetting]
)
def test_transfer_needs_two_tasks(function):
    with pytest.raises(ValueError, match="undefined for 1 task: give 2 tasks or more"):
        function([[0.5]])


@pytest.mark.parametrize(
    "function", [metrics.accuracy_deviation, metrics.accuracy_deviations, metrics.summary]
)
@pytest.mark.parametrize(
    ("isolated", "message"),
    [
        ([0.9, 0.9], "isolated has 2 entries for 3 tasks: give one accuracy for each task"),
        ([[0.9, 0.9, 0.9]], r"isolated has shape \(1, 3\)"),
        (0.9, r"isolated has shape \(\)"),
        ([0.9, NAN, 0.9], r"isolated\[1\] is NaN: give the accuracy of task 1"),
        ([0.9, 90, 0.9], r"isolated\[1\] is 90, .* fractions, not percent"),
        ([0.0, 0.0, 0.0], "is zero .* nothing is relative to zero: check"),
    ],
)
def test_bad_isolated_accuracies(function, isolated, message):
    with pytest.raises(ValueError, match=message):
        function(EXAMPLE, isolated)


def test_one_zero_among_isolated_has_no_deviation_of_its_own():
    with pytest.raises(ValueError, match=r"isolated\[1\] is zero"):
        metrics.accuracy_deviations(EXAMPLE, [0.5, 0.0, 0.5])


@pytest.mark.parametrize(
    ("accuracy", "untrained", "message"),
    [
        (
            above_diagonal_missing(EXAMPLE),
            [0.1, 0.1, 0.1],
            r"accuracy\[0\]\[1\], which is NaN: test task 1 after",
        ),
        (EXAMPLE, [0.1, 0.1], "untrained has 2 entries for 3 tasks"),
        (EXAMPLE, [0.1, 0.1, NAN], r"untrained\[2\] is NaN"),
        ([[0.5]], [0.1], "give 2 tasks or more"),
    ],
)
def test_bad_input_to_forward_transfer(accuracy, untrained, message):
    with pytest.raises(ValueError, match=message):
        metrics.lopez_paz_forward_transfer(accuracy, untrained)


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ([[0.1, 0.2]], "give two tasks or more"),
        ([[0.1, 0.2], [0.1, NAN]], r"curves\[1\]\[1\] is NaN: keep only the steps"),
        ([[0.1, 0.2], [0.1]], "curves is not a regular array"),
        ([[0.1], [20.0]], r"curves\[1\]\[0\] is 20"),
        ([[], []], "none of them empty"),
    ],
)
def test_bad_curves(curves, message):
    with pytest.raises(ValueError, match=message):
        metrics.task_locked_accuracy(curves)


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        ([0.5, 0.5], "gate_weights has shape"),
        ([[0.5, 0.5], [NAN, 0.5]], r"gate_weights\[1\]\[0\] is nan: give finite"),
        ([[0.5, math.inf]], r"gate_weights\[0\]\[1\] is inf"),
        (np.empty((3, 0)), "none of them empty"),
    ],
)
def test_bad_gate_weights(gates, message):
    with pytest.raises(ValueError, match=message):
        metrics.context_correlation(gates)


@pytest.mark.parametrize("function", [metrics.macro_f1, metrics.confusion])
@pytest.mark.parametrize(
    ("labels", "predictions", "classes", "message"),
    [
        ([0, 1], [0, 2], 2, r"predictions\[1\] is 2, not in 0 to 1"),
        ([0, -1], [0, 1], 2, r"labels\[1\] is -1, not in 0 to 1"),
        ([0, 1, 1], [0, 1], 2, "labels has 3 entries and predictions 2"),
        ([], [], 2, "labels has shape"),
        ([0, 1], [[0.1, 0.9], [0.9, 0.1]], 2, r"predictions has shape \(2, 2\): give 1 dimension"),
        ([0, 1], [0.1, 0.9], 2, "predictions holds float64 values: give class indices"),
        (["cat", "dog"], [0, 1], 2, "labels holds .* values: give class indices"),
        ([0, 1], [0, 1], 0, "classes is 0: give the number of classes"),
    ],
)
def test_bad_labels(function, labels, predictions, classes, message):
    with pytest.raises(ValueError, match=message):
        function(labels, predictions, classes)
