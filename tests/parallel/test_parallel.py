"""Two processes with half of every batch learn what one learns with all of it."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from states import assert_equal, flat
from torch import nn

import gateon
from gateon import GateON, Learner
from gateon.learners.training import WeightedLoss
from gateon.methods.adahat import AdaHAT
from gateon.methods.base import Outline
from gateon.methods.both import Both
from gateon.methods.dendrites import Dendrites
from gateon.methods.ewc import EWC
from gateon.methods.hat import HAT
from gateon.methods.joint import Joint
from gateon.methods.lwf import LwF
from gateon.methods.ogd import OGD
from gateon.methods.replay import Replay
from gateon.methods.rmn import RMN
from gateon.methods.si import SI
from gateon.methods.xdg import XdG
from gateon.networks import mlp
from gateon.parallel.batch import average_gradients, joint_outputs
from gateon.parallel.processes import Processes
from rounding import SMOOTH_ADAM, assert_same

SGD = partial(torch.optim.SGD, lr=0.1)
SAMPLES = 7  # which two processes cannot halve


def network(norm="none", dropout=0.0):
    return mlp(8, (12, 10), 3, norm=norm, dropout=dropout)


def convolutional():
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)),
        nn.Conv2d(1, 6, 3, padding=1),
        gateon.ContextNorm(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, 3),
    )


def gated(**options):
    return GateON(**{"density": 0.6, "rate": 0.05, "apply": "step"} | options)


def detector():
    return gateon.ContextDetector(window=2)


def case(method=None, made=network, optimizer=SMOOTH_ADAM, **options):
    return {"method": method, "made": made, "optimizer": optimizer, **options}


CASES = {
    "per unit": lambda: case(gated()),
    "per parameter": lambda: case(gated(per="parameter", obstruct_head=True)),
    "by activity": lambda: case(gated(relevance="activity")),
    "by the next layer": lambda: case(gated(relevance="next-layer")),
    "by the next layer, gated": lambda: case(gated(relevance="next-layer-gated"), compact=False),
    "full width": lambda: case(gated(), keep_optimizer=True),
    "a penalty on gates": lambda: case(gated(gate_penalty=0.1)),
    "norms by context": lambda: case(gated(), partial(network, "context")),
    "norms by batch": lambda: case(gated(), partial(network, "batch")),
    "convolutions": lambda: case(gated(per="parameter"), convolutional),
    "inferred contexts": lambda: case(
        gated(), optimizer=partial(torch.optim.Adam, lr=0.03, eps=1e-3), contexts=detector()
    ),
    "weighted classes": lambda: case(gated(), loss=WeightedLoss(0.1)),
    "ewc": lambda: case(EWC(samples=10)),
    "si": lambda: case(SI()),
    "lwf": lambda: case(LwF()),
    "replay": lambda: case(Replay(memory=20)),
    "joint": lambda: case(Joint()),
    "ogd": lambda: case(OGD(memory=4), optimizer=SGD),
    "xdg+si": lambda: case(Both(XdG(off=0.5), SI())),
    "hat": lambda: case(HAT(steps=4), optimizer=SGD),
    "adahat": lambda: case(AdaHAT(steps=4), optimizer=SGD),
    "rmn": lambda: case(RMN(steps=6), optimizer=SGD),
}


def batch(task, step, samples=SAMPLES):
    drawn = torch.Generator().manual_seed(1000 * task + step)
    x = torch.randn(samples, 8, generator=drawn)
    rule = torch.randn(8, 3, generator=torch.Generator().manual_seed(task))
    return x.double(), (x @ rule).argmax(1)


def learned(name, processes):
    """Losses, outputs and everything that decides how learning goes on, after two tasks."""
    asked = CASES[name]()
    torch.manual_seed(0)
    model = asked.pop("made")().double()
    learner = Learner(model, processes=processes, **asked)
    infers, losses = learner.contexts is not None, []
    steps = 40 if infers else 8
    for task in range(2):
        learner.expect(Outline(steps, steps, (2, 3, 4)))
        for step in range(steps):
            samples = 1 if step == 5 and "norm" not in name and "conv" not in name else SAMPLES
            x, y = batch(task, step, 64 if infers else samples)
            losses.append(learner.observe(x, y, None if infers else task).loss)
        if not infers:
            learner.end_task(task, [batch(task, step) for step in range(3)])
    outputs = [learner.predict(batch(0, 9)[0], context=k) for k in range(2 if not infers else 1)]
    return {
        "losses": torch.tensor(losses),
        "outputs": torch.stack(outputs),
        **flat(learner.state_dict()),
    }


def without_noise(state):
    """A bias before a norm has no gradient but rounding."""
    return {
        k: torch.where(v.abs() < 1e-14, 0, v.double())
        if isinstance(v, torch.Tensor) and v.is_floating_point()
        else v
        for k, v in state.items()
    }


def with_dropout(processes):
    torch.manual_seed(0)
    learner = Learner(network(dropout=0.5), optimizer=SGD, processes=processes)
    for step in range(3):
        x, y = batch(0, step)
        learner.observe(x.float(), y, 0)
    return learner.state_dict()


def masks(processes):
    """What dropout leaves of a batch of ones."""
    torch.manual_seed(0)
    return joint_outputs(processes, nn.Dropout(0.5), torch.ones(40, 3), lambda drop, x: drop(x))


def averaged(processes):
    parameters = [nn.Parameter(torch.zeros(n, dtype=t)) for n in (3, 2) for t in KINDS]
    for p in parameters[1:]:
        p.grad = torch.full_like(p, float(processes.rank))
    average_gradients(processes, parameters)
    return [p.grad for p in parameters]


KINDS = (torch.float32, torch.float64)


def work(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    processes = gateon.parallel.processes.current()
    found = {name: learned(name, processes) for name in CASES}
    found |= {"dropout": with_dropout(processes), "masks": masks(processes)}
    found |= {"averaged": averaged(processes), "any": processes.any(rank == 1)}
    found["first"] = processes.first(lambda: f"from {rank}")
    torch.save(found, f"{folder}/{rank}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What two processes found."""
    folder = tmp_path_factory.mktemp("both")
    processes = torch.multiprocessing.spawn(work, args=(str(folder),), nprocs=2, join=False)
    try:
        assert processes.join(timeout=100) or processes.join(timeout=10)
    finally:
        for process in processes.processes:
            process.kill()
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.numeric
@pytest.mark.parametrize("name", CASES)
def test_two_processes_learn_what_one_learns(both, name):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = learned(name, Processes())
    finally:
        torch.set_num_threads(threads)
    assert len(alone) > 5
    for found in both:
        assert_same(without_noise(found[name]), without_noise(alone))


@pytest.mark.parametrize("name", CASES)
def test_both_processes_hold_the_same(both, name):
    assert_equal(both[0][name], both[1][name])


def test_contexts_are_inferred_alike(both):
    assert both[0]["inferred contexts"]["context/"] == 1  # the second task was noticed


def test_processes_drop_other_units_and_go_on_alike(both):
    assert_equal(*(flat(found["dropout"]) for found in both))
    mask = both[0]["masks"]
    assert torch.equal(mask, both[1]["masks"])
    assert not torch.equal(mask[:20], mask[20:])


def test_gradients_are_averaged_whatever_their_dtype(both):
    for found in both:
        first, *others = found["averaged"]
        assert first is None
        assert all((g == 0.5).all() for g in others)


def test_what_one_process_knows_all_get_to_know(both):
    assert [found["any"] for found in both] == [True, True]
    assert [found["first"] for found in both] == ["from 0", "from 0"]


def test_methods_that_need_the_whole_batch_are_refused():
    for method in (Dendrites(inputs=8), Both(Dendrites(inputs=8), SI())):
        with pytest.raises(ValueError, match="must see all samples of a batch at once"):
            Learner(network(), optimizer=SGD, method=method, processes=Processes(0, 2))


def test_norms_of_another_kind_are_refused():
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(ValueError, match=r"Layer '1' is a BatchNorm1d.*gateon.context_norms"):
        Learner(model, optimizer=SGD, processes=Processes(0, 2))
