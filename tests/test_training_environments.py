"""Obstruction in the loops people have: accumulation, clipping, GradScaler, compiled models, autocast, copies, processes."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gateon
from rounding import assert_same

both_views = pytest.mark.parametrize("per", ["unit", "parameter"])
MEASURES = ("gradient", "activity", "next-layer", "next-layer-gated")
# Every way relevance is measured: of parameters, and of units in each measure.
every_way = pytest.mark.parametrize(
    "way", [{"per": "parameter"}, *({"per": "unit", "relevance": m} for m in MEASURES)], ids=str
)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def gated_network(contexts=2, dtype=torch.float32, inplace=False):
    torch.manual_seed(0)
    layers = [
        nn.Linear(6, 9),
        nn.ReLU(inplace=inplace),
        nn.Linear(9, 7),
        nn.Tanh(),
        nn.Linear(7, 3),
    ]
    model = nn.Sequential(*layers).to(dtype)
    return model, gateon.attach(model, contexts=contexts, density=0.7)


def made(
    optimizer=torch.optim.SGD, contexts=2, dtype=torch.float32, lr=0.1, inplace=False, **options
):
    model, gates = gated_network(contexts, dtype, inplace)
    built = optimizer(model.parameters(), lr=lr)
    defaults = {"rate": 0.1, "epsilon": 0.3, "apply": "step"}
    return model, built, gateon.obstruct(built, gates, **defaults | options)


def batch(n=0, size=12, dtype=torch.float32):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(size, 6, generator=generator).to(dtype), torch.randint(
        0, 3, (size,), generator=generator
    )


def learn(model, optimizer, steps=1, first=0):
    for n in range(first, first + steps):
        x, y = batch(n, dtype=next(model.parameters()).dtype)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def everything(model, optimizer, handle):
    """All that a step may change."""
    names = {p: name for name, p in model.named_parameters()}
    memory = {
        f"{names[p]}:{k}": torch.as_tensor(v).clone()
        for p, s in optimizer.state.items()
        for k, v in s.items()
    }
    return (
        {n: p.detach().clone() for n, p in model.named_parameters()} | memory | handle.state_dict()
    )


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for key in one:
        assert torch.equal(one[key], other[key]), key


# Trap 8: micro-batches are one batch.


@pytest.mark.numeric
@every_way
@pytest.mark.parametrize("set_to_none", [True, False])
def test_micro_batches_equal_one_batch(way, set_to_none):
    results = []
    for parts in (1, 4):
        model, optimizer, handle = made(dtype=torch.float64, **way)
        for n in range(5):
            x, y = batch(n, dtype=torch.float64)
            for some_x, some_y in zip(x.chunk(parts), y.chunk(parts), strict=True):
                (F.cross_entropy(model(some_x), some_y) / parts).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
        assert all((A < 1).any() for A in handle.availability.values())
        results.append(everything(model, optimizer, handle))
    assert_same(*results)


@pytest.mark.numeric
@every_way
def test_two_forward_passes_in_one_loss_equal_one_batch(way):
    results = []
    for together in (True, False):
        model, optimizer, handle = made(dtype=torch.float64, **way)
        for n in range(3):
            (x, y), (x2, y2) = batch(n, dtype=torch.float64), batch(n + 10, dtype=torch.float64)
            if together:
                loss = F.cross_entropy(model(torch.cat([x, x2])), torch.cat([y, y2]))
            else:
                loss = (F.cross_entropy(model(x), y) + F.cross_entropy(model(x2), y2)) / 2
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append(everything(model, optimizer, handle))
    assert_same(*results)


@pytest.mark.numeric
def test_accumulation_works_where_a_layers_weight_takes_no_gradient():
    results = []
    for parts in (1, 3):
        model, optimizer, handle = made(dtype=torch.float64)
        model[0].weight.requires_grad_(False)
        x, y = batch(dtype=torch.float64)
        for some_x, some_y in zip(x.chunk(parts), y.chunk(parts), strict=True):
            (F.cross_entropy(model(some_x), some_y) / parts).backward()
        optimizer.step()
        results.append(handle.availability)
    assert_same(*results)


@every_way
@pytest.mark.parametrize("set_to_none", [True, False])
def test_discarded_gradients_leave_no_trace(way, set_to_none):
    model, optimizer, handle = made(**way)
    clean_model, clean_optimizer, clean = made(**way)
    learn(model, optimizer)
    learn(clean_model, clean_optimizer)
    x, y = batch(50)
    (100 * F.cross_entropy(model(x), y)).backward()  # its gradients are thrown away
    optimizer.zero_grad(set_to_none=set_to_none)
    model(x)  # and this is never learned from
    with torch.no_grad():
        model(x)
    learn(model, optimizer, first=1)
    learn(clean_model, clean_optimizer, first=1)
    assert_equal(
        everything(model, optimizer, handle), everything(clean_model, clean_optimizer, clean)
    )


@every_way
def test_evaluation_between_steps_leaves_no_trace(way):
    model, optimizer, handle = made(**way)
    clean_model, clean_optimizer, clean = made(**way)
    for n in range(3):
        model.eval()
        with torch.no_grad():
            handle.gates.show(1)
            model(batch(60)[0])
            handle.gates.show(0)
        model.train()
        learn(model, optimizer, first=n)
        learn(clean_model, clean_optimizer, first=n)
    assert_equal(
        everything(model, optimizer, handle), everything(clean_model, clean_optimizer, clean)
    )


@every_way
def test_activations_in_place_are_observed_the_same(way):
    results = []
    for inplace in (False, True):
        model, optimizer, handle = made(inplace=inplace, **way)
        learn(model, optimizer, 3)
        results.append(everything(model, optimizer, handle))
    assert_equal(*results)


@pytest.mark.numeric
@both_views
def test_clipping_sees_the_models_gradients_and_nothing_else(per):
    plain, gates = gated_network()
    del gates
    model, optimizer, handle = made(per=per)
    x, y = batch()
    for network in (plain, model):
        F.cross_entropy(network(x), y).backward()
    assert [n for n, _ in plain.named_parameters()] == [n for n, _ in model.named_parameters()]
    norms = [
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1e-3) for network in (plain, model)
    ]
    assert torch.equal(*norms) and norms[0] > 1e-3
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.step()
    moved = torch.stack(
        [(p - b).norm() for p, b in zip(model.parameters(), before, strict=True)]
    ).norm()
    assert 0 < moved <= 0.1 * 1e-3 * 1.001
    # Relevance has mean one, so that a clipped batch counts as much as any other.
    other_model, other_optimizer, other = made(per=per)
    learn(other_model, other_optimizer)
    assert_same(handle.availability, other.availability)


# GradScaler, on the CPU.


def fused_adam(parameters, lr):
    return torch.optim.Adam(parameters, lr=lr, fused=True)


scaled_optimizers = pytest.mark.parametrize(
    "optimizer", [torch.optim.SGD, torch.optim.Adam, fused_adam]
)


def scaled_step(model, optimizer, scaler, n, poison=False, unscale=False):
    x, y = batch(n)
    loss = F.cross_entropy(model(x), y)
    scaler.scale(loss * (float("inf") if poison else 1.0)).backward()
    if unscale:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


@pytest.mark.numeric
@every_way
@scaled_optimizers
@pytest.mark.parametrize("unscale", [False, True])
def test_a_scaled_loss_changes_nothing(way, optimizer, unscale):
    model, plain, handle = made(optimizer, **way)
    scaled_model, scaled, scaled_handle = made(optimizer, **way)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for n in range(4):
        learn(model, plain, first=n)
        scaled_step(scaled_model, scaled, scaler, n, unscale=unscale)
    assert scaled_handle.steps == 4 and all(
        (A < 1).any() for A in scaled_handle.availability.values()
    )
    one, other = everything(model, plain, handle), everything(scaled_model, scaled, scaled_handle)
    assert_same(one, other)


@every_way
@scaled_optimizers
def test_a_step_that_the_scaler_skips_changes_nothing_and_leaves_no_trace(way, optimizer):
    model, built, handle = made(optimizer, **way)
    clean_model, clean_built, clean = made(optimizer, **way)
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**4) for _ in range(2)]
    for n in range(2):
        scaled_step(model, built, scalers[0], n)
        scaled_step(clean_model, clean_built, scalers[1], n)
    before = everything(model, built, handle)
    scaled_step(model, built, scalers[0], 50, poison=True)
    assert scalers[0].get_scale() == 2.0**3  # it was skipped indeed
    assert_equal(before, everything(model, built, handle))
    scalers[1].update(2.0**3)
    scaled_step(model, built, scalers[0], 2)
    scaled_step(clean_model, clean_built, scalers[1], 2)
    assert_equal(everything(model, built, handle), everything(clean_model, clean_built, clean))


# Trap 9: what is not finite changes nothing.


@every_way
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, fused_adam])
def test_a_gradient_that_is_not_finite_stops_at_its_step_and_changes_nothing(
    way, poison, optimizer
):
    model, built, handle = made(optimizer, **way)
    learn(model, built, 3)
    before = everything(model, built, handle)
    x, y = batch(50)
    (F.cross_entropy(model(x), y) * poison).backward()
    with pytest.raises(FloatingPointError, match=r"not finite in step 3: .*Nothing was changed"):
        built.step()
    assert_equal(before, everything(model, built, handle))
    built.zero_grad()
    learn(model, built, first=3)
    clean_model, clean_built, clean = made(optimizer, **way)
    learn(clean_model, clean_built, 4)
    assert_equal(everything(model, built, handle), everything(clean_model, clean_built, clean))


@both_views
def test_a_zero_loss_leaves_availability_as_it_was(per):
    model, optimizer, handle = made(per=per)
    learn(model, optimizer, 2)
    before = handle.availability
    before = {k: A.clone() for k, A in before.items()}
    (model(batch()[0]) * 0).sum().backward()
    optimizer.step()
    assert_equal(before, handle.availability)


# Trap 7: compiled models.


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@every_way
def test_a_compiled_model_learns_as_the_eager_one(way, fresh_compiler):
    results = []
    for compiled in (False, True):
        model, optimizer, handle = made(dtype=torch.float64, **way)
        runs = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        for n in range(3):
            handle.gates.switch(n % 2)
            x, y = batch(n, dtype=torch.float64)
            F.cross_entropy(runs(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert all((A < 1).any() for A in handle.availability.values())
        results.append(everything(model, optimizer, handle))
    assert_same(*results)


@both_views
def test_switching_contexts_does_not_recompile(per, fresh_compiler):
    model, optimizer, handle = made(contexts=5, per=per)
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=counting, fullgraph=True)
    outputs = []
    for n in range(5):
        handle.gates.switch(n)
        x, y = batch(0)
        outputs.append(compiled(x))
        F.cross_entropy(outputs[-1], y).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert len(graphs) == 1
    assert not torch.equal(outputs[0], outputs[1])  # and yet the contexts differ
    handle.gates.switch(1)
    torch.testing.assert_close(compiled(x), model(x))


def test_a_model_compiled_by_inductor_has_the_eager_relevance(
    fresh_compiler, tmp_path, monkeypatch
):
    # what a killed test run leaves in the shared one may be broken
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    results = []
    for compiled in (False, True):
        model, optimizer, handle = made()
        runs = torch.compile(model, fullgraph=True) if compiled else model
        x, y = batch()
        F.cross_entropy(runs(x), y).backward()
        optimizer.step()
        results.append(everything(model, optimizer, handle))
    assert_same(*results)


# Precision.


@pytest.mark.numeric
@every_way
def test_bf16_autocast_is_near_float32(way):
    model, optimizer, handle = made(**way)
    wide_model, wide_optimizer, wide = made(**way)
    for n in range(5):
        x, y = batch(n, 64)
        with torch.autocast("cpu", torch.bfloat16):
            output = model(x)
            assert output.dtype == torch.bfloat16
            loss = F.cross_entropy(output, y)
        loss.backward()
        F.cross_entropy(wide_model(x), y).backward()
        for one in (optimizer, wide_optimizer):
            one.step()
            one.zero_grad()
    for key, A in handle.availability.items():
        assert A.dtype == torch.float32 and (A < 1).any()
        assert (A - wide.availability[key]).abs().mean() < 0.03, key


@pytest.mark.numeric
@both_views
def test_bf16_parameters_keep_their_books_in_float32(per):
    model, gates = gated_network(dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, per=per, rate=1e-3, apply="step", frozen="2.*")
    before = model[2].weight.detach().clone()
    for n in range(4):
        x, y = batch(n, dtype=torch.bfloat16)
        F.cross_entropy(model(x).float(), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(A.dtype == torch.float32 for A in handle.availability.values())
    for layer in "02":
        A = torch.cat(
            [A.flatten() for name, A in handle.availability.items() if name.startswith(layer)]
        )
        # bfloat16 has no number between 0.996 and 1
        assert A.mean().item() == pytest.approx(1 - 4e-3, abs=2e-4)
    assert torch.equal(before, model[2].weight)


# Trap 13: optimizers and models that are copies.


def test_an_optimizer_built_before_attach_is_refused():
    model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gates = gateon.attach(model)
    with pytest.raises(
        ValueError, match=r"does not hold the gate of site '0': build it after attach\.$"
    ):
        gateon.obstruct(optimizer, gates)
    assert not gates.listeners and not optimizer._optimizer_step_pre_hooks


def test_a_deep_copied_optimizer_is_refused():
    model, gates = gated_network()
    optimizer = copy.deepcopy(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(
        ValueError, match=r"that is not a parameter of the model \(is it a copy\?\)"
    ):
        gateon.obstruct(optimizer, gates)
    assert not gates.listeners and not optimizer._optimizer_step_pre_hooks


@every_way
def test_a_copy_of_model_and_optimizer_cannot_be_trained_unobstructed(way):
    model, optimizer, handle = made(**way)
    learn(model, optimizer, 2)
    model2, optimizer2 = copy.deepcopy((model, optimizer))
    x = batch()[0]
    with pytest.raises(
        RuntimeError,
        match=r"copy of one whose updates are obstructed.*call gateon\.obstruct for the copy",
    ):
        model2(x)
    model2.eval()
    model.eval()
    assert torch.equal(model2(x), model(x))
    model.train(), model2.train()
    before = everything(model, optimizer, handle)
    handle2 = gateon.obstruct(
        optimizer2, gateon.gates_of(model2), rate=0.1, epsilon=0.3, apply="step", **way
    )
    handle2.load_state_dict(handle.state_dict())
    learn(model2, optimizer2, 2, first=2)
    assert_equal(before, everything(model, optimizer, handle))
    learn(model, optimizer, 2, first=2)
    assert_equal(everything(model, optimizer, handle), everything(model2, optimizer2, handle2))


@every_way
def test_an_obstructed_model_can_be_saved_whole(way):
    model, optimizer, _ = made(**way)
    learn(model, optimizer)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    x = batch()[0]
    with pytest.raises(RuntimeError, match="copy of one whose updates are obstructed"):
        loaded(x)
    assert torch.equal(loaded.eval()(x), model.eval()(x))


# Trap 8: two processes are one.


def one_of_two(rank, directory, per):
    model, gates = gated_network(dtype=torch.float64)
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, per=per, rate=0.1, epsilon=0.3, apply="step")
    for n in range(4):
        gates.switch(n // 2)
        x, y = batch(n, dtype=torch.float64)
        F.cross_entropy(parallel(x[rank::2]), y[rank::2]).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save(everything(model, optimizer, handle), f"{directory}/{per}-{rank}.pt")


def both_of_two(rank, directory):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=2
    )
    for per in ("unit", "parameter"):
        one_of_two(rank, directory, per)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_two_processes_equal_one(tmp_path):
    processes = torch.multiprocessing.spawn(
        both_of_two, args=(str(tmp_path),), nprocs=2, join=False
    )
    try:
        # each call waits for one of them
        assert processes.join(timeout=60) or processes.join(timeout=5)
    finally:
        for process in processes.processes:
            process.kill()
    for per in ("unit", "parameter"):
        model, optimizer, handle = made(dtype=torch.float64, per=per)
        for n in range(4):
            handle.gates.switch(n // 2)
            learn(model, optimizer, first=n)
        alone = everything(model, optimizer, handle)
        for rank in range(2):
            assert_same(alone, torch.load(tmp_path / f"{per}-{rank}.pt"))


# Trap 9: wrappers.


def test_gates_are_found_inside_wrappers(tmp_path, fresh_compiler):
    model, gates = gated_network()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    try:
        parallel = nn.parallel.DistributedDataParallel(model)
        for wrapped in (
            parallel,
            nn.DataParallel(model),
            torch.compile(model),
            torch.compile(parallel),
        ):
            assert gateon.gates_of(wrapped) is gates
    finally:
        torch.distributed.destroy_process_group()
    assert gateon.gates_of(nn.Sequential(model)) is None  # which is a model of its own


def test_a_wrapped_model_is_folded_as_the_one_inside(fresh_compiler):
    model, _ = gated_network(contexts=1)
    with torch.no_grad():
        expected = model(batch()[0])
    wrapped = nn.DataParallel(model)
    torch.testing.assert_close(gateon.compact(wrapped, 0, fold=True)(batch()[0]), expected)


def test_gates_that_cannot_learn_are_refused():
    model, gates = gated_network()
    gates.gates["2"].weight.requires_grad_(False)
    with pytest.raises(
        ValueError, match="gate of site '2' cannot learn because its requires_grad is False"
    ):
        gateon.obstruct(torch.optim.SGD(model.parameters(), lr=0.1), gates)


def test_a_sharded_model_has_no_sub_network(tmp_path):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, gates = gated_network()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    try:
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        gateon.obstruct(torch.optim.SGD(model.parameters(), lr=0.1), gates)
        with pytest.raises(ValueError, match=r"is sharded.*a sub-network needs whole parameters"):
            gateon.compact(model, 0)
    finally:
        torch.distributed.destroy_process_group()
