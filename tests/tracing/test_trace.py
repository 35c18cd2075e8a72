"""A trace: what is read is what the network and its availabilities had, and memory is bounded."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import gateon
import reference
from gateon import GateON, Learner
from gateon.models import mlp
from gateon.tracing.recorder import Recorder, new_trace
from gateon.tracing.trace import QUANTITIES, Trace, sampled
from rounding import SMOOTH_ADAM, assert_same


def own_loop(per="unit", steps=12, every=1, **options):
    """A loop of one's own in float64, its trace, and what was seen by hand in every step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 3))
    gates = gateon.attach(model.double(), contexts=2, density=0.6)
    optimizer = SMOOTH_ADAM(model.parameters())
    handle = gateon.obstruct(optimizer, gates, per=per, rate=0.05, apply="step", **options)
    by_hand = []
    with gateon.trace(gates, handle, every=every) as kept:
        for step in range(steps):
            gates.switch(step * 2 // steps)
            x = torch.randn(8, 5, dtype=torch.double)
            hidden = model[1](model[0](x))
            gains = {name: gain.clone() for name, gain in gates.gain().items()}
            before = {name: A.clone() for name, A in handle.availability.items()}
            (model[2:](hidden).square().sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
            after = {name: A.clone() for name, A in handle.availability.items()}
            by_hand.append((gains, hidden.detach(), before, after))
    return kept, by_hand, (model, handle)


@pytest.mark.numeric
def test_gain_activity_and_availability_are_those_of_the_step():
    kept, by_hand, _ = own_loop()
    assert kept.steps.tolist() == list(range(12)) and kept.contexts.tolist() == [0] * 6 + [1] * 6
    for step, (gains, hidden, _, after) in enumerate(by_hand):
        for site in ("0", "2"):
            assert_same(torch.tensor(kept.gain[site][step]), gains[site].float())
            assert_same(torch.tensor(kept.availability[site][step]), after[site].float())
        assert_same(torch.tensor(kept.activity["0"][step]), hidden.abs().mean(0).float())


@pytest.mark.numeric
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_the_traced_relevance_is_what_moved_the_availability(epsilon):
    kept, by_hand, _ = own_loop(epsilon=epsilon)
    assert not np.isnan(kept.relevance["0"]).any()
    for step, (_, _, before, after) in enumerate(by_hand):
        for site in ("0", "2"):
            mu = torch.tensor(kept.relevance[site][step]).double()
            expected = reference.availability(before[site], mu, 0.05, epsilon)
            assert_same(after[site].float(), expected.float())


@pytest.mark.numeric
def test_per_parameter_units_have_the_means_of_the_weights_they_read_with():
    kept, by_hand, _ = own_loop(per="parameter")
    for step, (_, _, before, after) in enumerate(by_hand):
        assert_same(torch.tensor(kept.availability["2"][step]), after["2.weight"].mean(1).float())
        # A falls by rate mu A, as long as it is not clipped.
        fallen = (before["2.weight"] - after["2.weight"]) / (0.05 * before["2.weight"])
        if (after["2.weight"] > 0).all():
            assert_same(torch.tensor(kept.relevance["2"][step]), fallen.mean(1).float())
    assert (kept.relevance["2"] > 0).any()


def test_watching_changes_nothing():
    _, _, (model, _) = own_loop()
    _, _, (other, _) = own_loop(every=5)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )


def test_when_it_ends_nothing_is_left_in_the_model():
    _, _, (model, handle) = own_loop()
    assert not handle.watchers
    hooks = [h for m in model.modules() if isinstance(m, gateon.Gate) for h in m._forward_hooks]
    assert not hooks


def test_a_copy_of_a_watched_model_is_not_watched():
    torch.manual_seed(0)
    model = mlp(4, (6,), 2)
    gates = gateon.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates)
    with gateon.trace(gates, handle) as kept:
        other = copy.deepcopy(model)
        gateon.gates_of(other).orphaned = False
        model(torch.ones(2, 4)).sum().backward()
        other(100 * torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert kept.activity["1"].max() < 10


# Sub-networks


def learned(compact, per="unit", steps=9, watch=None, sites="*", every=1, **options):
    """Three tasks, the first of which returns; the trace of all units."""
    torch.manual_seed(0)
    method = GateON(per=per, **{"density": 0.4, "rate": 0.05, **options})
    learner = Learner(
        mlp(6, (14, 10), 3).double(), optimizer=SMOOTH_ADAM, method=method, compact=compact
    )
    recorder = Recorder(learner, new_trace(method.gates, [sites], every))
    generator = torch.Generator().manual_seed(0)
    for task, context in enumerate((0, 1, 0)):
        recorder.begin_task(task)
        for _ in range(steps):
            x = torch.randn(12, 6, generator=generator, dtype=torch.double)
            learner.observe(x, x[:, :3].argmax(1), context=context)
            if watch is not None:
                watch(learner, recorder)
    assert learner.is_compact == compact
    return recorder.trace


@pytest.mark.numeric
@pytest.mark.parametrize("per", ["unit", "parameter"])
@pytest.mark.parametrize("apply", ["step", "switch"])
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_the_trace_of_sub_networks_is_that_of_the_whole_network(per, apply, epsilon):
    narrow, whole = (
        learned(compact, per, apply=apply, epsilon=epsilon) for compact in (True, False)
    )
    assert narrow.steps.tolist() == whole.steps.tolist() == list(range(27))
    assert narrow.tasks.tolist() == [0] * 9 + [1] * 9 + [2] * 9
    for quantity in QUANTITIES:
        for site, table in getattr(narrow, quantity).items():
            assert table.shape == (27, whole.layers[site])
            assert_same(torch.tensor(table), torch.tensor(getattr(whole, quantity)[site]))
    assert (narrow.gain["1"] == 0).any() and (narrow.gain["1"] > 0).any()


def test_looking_at_the_model_on_the_way_changes_no_trace():
    def look(learner, recorder):
        learner.model  # noqa: B018 (writes the sub-network back)

    for per in ("unit", "parameter"):
        one, other = learned(True, per, epsilon=0.5), learned(True, per, epsilon=0.5, watch=look)
        assert all(
            np.array_equal(one.availability[s], other.availability[s]) for s in one.availability
        )


def test_a_recorder_that_goes_on_elsewhere_keeps_the_same_trace(tmp_path):
    """Saved in the middle of a task, with a trace that is ahead of the learner by some steps."""
    whole = learned(True, epsilon=0.5, every=2)
    states = {}

    def keep(learner, recorder):
        if learner.steps == 13:
            states["learner"] = copy.deepcopy(learner.state_dict())
        if learner.steps == 16:
            recorder.trace.save(tmp_path / "trace.npz")

    learned(True, epsilon=0.5, every=2, watch=keep)
    torch.manual_seed(5)
    method = GateON(density=0.4, rate=0.05, epsilon=0.5)
    learner = Learner(mlp(6, (14, 10), 3).double(), optimizer=SMOOTH_ADAM, method=method)
    learner.load_state_dict(states["learner"])
    recorder = Recorder(learner, Trace.load(tmp_path / "trace.npz"))
    assert recorder.trace.steps.max() == 12
    generator = torch.Generator().manual_seed(0)
    for step in range(27):
        x = torch.randn(12, 6, generator=generator, dtype=torch.double)
        if step >= 13:
            recorder.begin_task(step // 9)
            learner.observe(x, x[:, :3].argmax(1), context=(0, 1, 0)[step // 9])
    same_traces(recorder.trace, whole)


def same_traces(one, other):
    assert one.starts == other.starts and one.every == other.every
    assert np.array_equal(one.steps, other.steps) and np.array_equal(one.contexts, other.contexts)
    for quantity in QUANTITIES:
        for site in other.sites:
            pair = (getattr(trace, quantity)[site] for trace in (one, other))
            assert np.array_equal(*pair, equal_nan=True)


def test_without_obstruction_only_gain_and_activity_are_known():
    kept = learned(False, rate=0.0)
    assert np.isnan(kept.relevance["1"]).all() and (kept.availability["1"] == 1).all()
    assert (kept.gain["1"] > 0).any() and (kept.activity["1"] > 0).any()


def test_convolutions_and_inferred_contexts_are_traced():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 8),
        nn.ReLU(),
        nn.Linear(8, 3),
    )
    learner = Learner(
        net,
        optimizer=partial(torch.optim.Adam, lr=1e-2),
        method=GateON(),
        contexts=gateon.ContextDetector(),
    )
    recorder = Recorder(learner, new_trace(gateon.gates_of(net), ["*"], 1))
    for _ in range(8):
        learner.observe(torch.rand(10, 16), torch.randint(0, 3, (10,)))
    kept = recorder.trace
    assert len(kept) == learner.steps and kept.layers == {"1": 6, "5": 8}
    shut = kept.gain["1"] == 0
    assert shut.any() and (kept.activity["1"][shut] == 0).all()
    assert (kept.activity["1"][~shut] > 0).any()


# Memory, tables and files


def test_memory_is_bounded_whatever_the_length():
    kept = Trace({"0": 4}, {"0": [0, 1]}, every=3, most=10)
    for step in range(1000):
        if kept.is_due(step):
            kept.add(step, 0, {"0": np.full((4, 2), step)})
        assert len(kept) <= 10
    assert kept.every == 3 * 64 and kept.steps.tolist() == list(range(0, 1000, 192))
    assert (kept.gain["0"][:, 0] == kept.steps).all()


def test_a_large_layer_is_sampled_evenly_and_many_sites_share_the_bound():
    units = sampled({str(n): 1000 for n in range(30)}, ["*"])
    assert sum(map(len, units.values())) <= 512
    assert units["3"][0] == 0 and np.ptp(np.diff(units["3"])) <= 1
    with pytest.raises(ValueError, match="No site matches 'nothing'"):
        sampled({"a": 3}, ["nothing"])


def test_the_tidy_table_has_a_row_for_every_step_and_unit(monkeypatch):
    kept, _, _ = own_loop(steps=4)
    rows = kept.frame("list")
    assert len(rows) == 4 * 16 and list(rows[0]) == [
        *("step", "task", "context", "site", "unit"),
        *QUANTITIES,
    ]
    one = next(r for r in rows if (r["step"], r["site"], r["unit"]) == (3, "2", 5))
    assert one["availability"] == kept.availability["2"][3, 5] and one["task"] == -1
    monkeypatch.setattr("gateon.tracing.trace.find_spec", lambda name: None)
    assert kept.frame() == rows


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_library_that_is_there_makes_the_table(kind):
    pytest.importorskip(kind)
    kept, _, _ = own_loop(steps=4)
    assert list(kept.frame(kind).columns) == list(kept.frame("list")[0])
    assert len(kept.frame(kind)) == len(kept.frame()) == 64


def test_a_file_gives_back_what_was_saved(tmp_path):
    kept, _, _ = own_loop()
    kept.begin_task(0, 0)
    kept.save(tmp_path / "trace.npz")
    same_traces(Trace.load(tmp_path / "trace.npz"), kept)


@pytest.mark.parametrize("damage", ["cut", "text", "pickle", "shape", "folder"])
def test_a_file_that_is_no_trace_is_one_sentence(tmp_path, damage):
    kept, _, _ = own_loop(steps=3)
    path = tmp_path / "trace.npz"
    kept.save(path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-400])
    elif damage == "text":
        path.write_text("not a trace")
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        with np.load(path) as found:
            arrays = {name: found[name] for name in found.files}
        wrong = {"pickle": np.array([{}], dtype=object), "shape": np.zeros((2, 2), np.float32)}
        np.savez(path, **arrays | {"gain 0": wrong[damage]})
    with pytest.raises(ValueError, match=r"trace.npz is no trace, or a damaged one: move it away"):
        Trace.load(path)


@pytest.mark.parametrize(
    ("units", "words"), [({"9": [0]}, "There is no site '9'"), ({"0": [9]}, "numbers from 0 to 8")]
)
def test_units_that_do_not_exist_are_one_sentence(units, words):
    with pytest.raises(ValueError, match=words):
        Trace({"0": 9}, units)
