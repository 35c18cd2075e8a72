"""In every tool two processes with half of each batch learn what one learns with all of it."""

from __future__ import annotations

import socket
from importlib.util import find_spec

import pytest
import tools
import torch
from torch import nn

import gateon
import gateon.hf
from rounding import assert_same

OWN = ("trainer", "sharded later", "sharded and saved")  # which need nothing else
INSTALLED = [name for name in tools.TOOLS if name in OWN or find_spec(name)]
CASES = [
    *((way, how) for way in tools.WAYS for how in tools.OBSTRUCTED),
    *((name, "") for name in tools.TOOLS),
]


def work(rank, folder, port):
    torch.set_num_threads(1)
    tools.environment(rank, 2, port)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    found = {}
    for way, wrap in tools.WAYS.items():
        for how, options in tools.OBSTRUCTED.items():
            found[way, how] = tools.own_loop(rank, 2, wrap=wrap, **options)
    found["refused"] = refusals()
    for name in INSTALLED:
        found[name, ""] = run(name, rank, 2, folder)
    torch.save(found, f"{folder}/{rank}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run(name, rank, count, folder):
    own = (
        {}
        if name in ("accelerate", "sharded later")
        else {"folder": f"{folder}/{name}-{count}-{rank}"}
    )
    return tools.TOOLS[name](rank, count, **own)


def said(do):
    try:
        do()
    except ValueError as error:
        return str(error)
    return "nothing"


def refusals():
    """What is said of contexts that come too late, and of gates that do."""
    from torch.distributed.fsdp import fully_shard

    found = {}
    model = tools.network()
    gates = gateon.attach(model)
    wrapped = nn.parallel.DistributedDataParallel(model)
    gates.add_context()
    found["grown in a wrapper"] = said(lambda: wrapped(tools.batch(0, 0)[0]))
    nn.parallel.DistributedDataParallel(model)(tools.batch(0, 0)[0]).sum().backward()
    model = tools.network()
    gates = gateon.attach(model)
    tools.sharded(model)
    found["grown in pieces"] = said(gates.add_context)
    found["kept elsewhere"] = said(lambda: gates.keep_rows("cpu"))
    found["cut out"] = said(lambda: gateon.compact(model, 0))
    found["attached after"] = said(lambda: gateon.attach(tools.sharded(tools.network())))
    callback = gateon.hf.GateONCallback()
    found["sharded by Trainer"] = said(
        lambda: callback.on_train_begin(None, None, None, model=model, optimizer=None)
    )
    model = tools.network()
    gates = gateon.attach(model)
    fully_shard(model[0])
    optimizer = torch.optim.SGD(list(model.parameters()), lr=0.1)
    found["cut in part"] = said(lambda: gateon.obstruct(optimizer, gates))
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What two processes found."""
    folder = tmp_path_factory.mktemp("tools")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = torch.multiprocessing.spawn(work, args=(str(folder), port), nprocs=2, join=False)
    try:
        assert processes.join(timeout=200) or processes.join(timeout=10)
    finally:
        for process in processes.processes:
            process.kill()
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.numeric
@pytest.mark.parametrize("case", CASES, ids=[" ".join(case).strip() for case in CASES])
def test_two_processes_learn_what_one_learns(both, case, tmp_path):
    name, how = case
    if name in tools.TOOLS and name not in INSTALLED:
        pytest.skip(f"{name} is not installed")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = tools.own_loop(0, 1, **tools.OBSTRUCTED[how]) if how else run(name, 0, 1, tmp_path)
    finally:
        torch.set_num_threads(threads)
    assert any(key.startswith("A/") and (A < 1).any() for key, A in alone.items())
    for found in both:
        if name == "trl":  # which computes its loss in float32
            torch.testing.assert_close(found[case], alone, rtol=0, atol=1e-6)
        else:
            assert_same(found[case], alone)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("grown in a wrapper", "built when this model had 1 contexts fewer than its 2"),
        ("grown in pieces", "no context can be added to it: attach(contexts=...) with all"),
        ("kept elsewhere", "its rows are kept by all processes already"),
        ("cut out", "a sub-network needs whole parameters"),
        ("sharded by Trainer", "leave fsdp out for DistributedDataParallel"),
        ("cut in part", "is not: call fully_shard on the whole model"),
        ("attached after", "attach them first, then call fully_shard"),
    ],
)
def test_what_cannot_be_is_said_by_both(both, what, sentence):
    assert all(sentence in found["refused"][what] for found in both)
