"""One small training in every tool, for one process or for each of several that share its batches."""

from __future__ import annotations

import os
from functools import partial

import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gateon
import gateon.hf
from rounding import SMOOTH_ADAM

BATCH, STEPS, TASKS = 8, 3, 2
RATE = {"rate": 0.1}


def network():
    torch.manual_seed(0)
    layers = nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3)
    return nn.Sequential(*layers).double()


def batch(task, step):
    drawn = torch.Generator().manual_seed(100 * task + step)
    x = torch.randn(BATCH, 8, generator=drawn).double()
    rule = torch.randn(8, 3, generator=torch.Generator().manual_seed(task)).double()
    return x, (x @ rule).argmax(1)


def mine(tensors, rank, count):
    """The share of a process in a batch."""
    width = BATCH // count
    return [tensor[rank * width : (rank + 1) * width] for tensor in tensors]


def result(model, handle):
    """What decides how learning goes on; whole, however it is held."""
    states = model.state_dict() | {f"A/{k}": v for k, v in handle.state_dict().items()}
    return {
        k.removeprefix("module."): gateon.anatomy.shards.full(v.detach()).clone()
        for k, v in states.items()
    }


def own_loop(rank, count, *, wrap=lambda model: model, contexts=3, parts=1, sync=None, **options):
    """A loop of one's own; each batch in so many parts."""
    model = network()
    gates = gateon.attach(model, contexts, density=0.6)
    wrapped = wrap(model)
    optimizer = SMOOTH_ADAM(model.parameters())
    handle = gateon.obstruct(optimizer, gates, **(RATE | options))
    for task in range(TASKS):
        gates.switch(task % contexts)
        for step in range(STEPS):
            x, y = mine(batch(task, step), rank, count)
            for n, part in enumerate(zip(x.chunk(parts), y.chunk(parts), strict=True)):
                if sync is not None:
                    sync(wrapped, n == parts - 1)
                (F.cross_entropy(wrapped(part[0]), part[1]) / parts).backward()
            optimizer.step()
            optimizer.zero_grad()
    return result(model, handle)


def sharded_later(rank, count):
    """The first task is learned by every process alone, as if it had been loaded from files."""
    model = network()
    gates = gateon.attach(model, 2, density=0.6)
    optimizer = SMOOTH_ADAM(model.parameters())
    handle = gateon.obstruct(optimizer, gates, per="parameter", **RATE)
    for task in range(TASKS):
        if task == 1:
            if count > 1:
                sharded(model)
            optimizer = SMOOTH_ADAM(model.parameters())
            handle.follow(optimizer)
            gates.switch(1)
        for step in range(STEPS):
            x, y = mine(batch(task, step), rank, count) if task == 1 else batch(task, step)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    handle.load_state_dict(handle.state_dict())
    return result(model, handle)


def with_accelerate(rank, count):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = network()
    gates = gateon.attach(model, 2, density=0.6)
    wrapped, optimizer = accelerator.prepare(model, SMOOTH_ADAM(model.parameters()))
    handle = gateon.obstruct(optimizer.optimizer, gates, **RATE)
    for task in range(TASKS):
        gates.switch(task)
        for step in range(STEPS):
            x, y = mine(batch(task, step), rank, count)
            accelerator.backward(F.cross_entropy(wrapped(x), y))
            optimizer.step()
            optimizer.zero_grad()
    return result(model, handle)


class Rows(torch.utils.data.Dataset):
    def __init__(self, task):
        drawn = torch.Generator().manual_seed(task)
        self.ids = torch.randint(3, 40, (BATCH * STEPS, 6), generator=drawn)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, n):
        ids = self.ids[n]
        return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


def decoder():
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.LlamaConfig(vocab_size=40, pad_token_id=2, **sizes, **heads)
    model = transformers.LlamaForCausalLM(config).double()
    gateon.attach(model, start="open", steepness=10)
    return model


def sharded_and_saved(rank, count, *, folder):
    """A model of transformers that was trained in pieces, as anybody reads it from its files."""
    from torch.distributed.fsdp import fully_shard

    model = decoder()
    if count > 1:
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
    optimizer = SMOOTH_ADAM(model.parameters())
    handle = gateon.obstruct(optimizer, gateon.gates_of(model), per="parameter", **RATE)
    ids = Rows(0).ids[:BATCH]
    for _ in range(STEPS):
        (own,) = mine([ids], rank, count)
        model(input_ids=own, labels=own).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    gates = gateon.gates_of(model)
    assert set(gates.gain(0)) == set(gates.gates)
    place = f"{os.path.dirname(folder)}/kept-{count}"
    gateon.hf.save_pretrained(model, place, handle)
    if count > 1:
        torch.distributed.barrier()
    loaded = gateon.hf.from_pretrained(place)
    return result(loaded.model, loaded.handle)


def arguments(folder, count):
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": BATCH // count,
        "num_train_epochs": 1,
        "learning_rate": 1e-2,
        "max_grad_norm": 0.0,
        "adam_epsilon": SMOOTH_ADAM.keywords["eps"],
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "dataloader_pin_memory": False,
    }


def with_trainer(rank, count, *, folder):
    model = decoder()
    for task in range(TASKS):  # each with a wrapper of its own, that knows of the new context
        callback = gateon.hf.GateONCallback(task)
        args = transformers.TrainingArguments(**arguments(folder, count))
        trainer = transformers.Trainer(
            model=model, args=args, train_dataset=Rows(task), callbacks=[callback]
        )
        trainer.train()
    return result(model, callback.handle)


def with_trl(rank, count, *, folder):
    import datasets
    import trl

    from tiny_language import tiny_tokenizer

    model = decoder()
    for task in range(TASKS):
        callback = gateon.hf.GateONCallback(task)
        args = trl.SFTConfig(**arguments(folder, count), bf16=False, gradient_checkpointing=False)
        trl.SFTTrainer(
            model=model,
            args=args,
            train_dataset=datasets.Dataset.from_dict({"input_ids": Rows(task).ids.tolist()}),
            processing_class=tiny_tokenizer(),
            callbacks=[callback],
        ).train()
    return result(model, callback.handle)


def with_lightning(rank, count, *, folder):
    import lightning.pytorch as lightning

    from gateon.integrations.lightning import GateONCallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, rows, n):
            return F.cross_entropy(self.net(rows[0]), rows[1])

        def configure_optimizers(self):
            return SMOOTH_ADAM(self.parameters())

    module = Module()
    for task in range(TASKS):
        callback = GateONCallback(
            task,
            attach=lambda module: gateon.attach(module.net, density=0.6),
            obstruct=partial(gateon.obstruct, **RATE),
        )
        trainer = lightning.Trainer(
            max_epochs=1,
            accelerator="cpu",
            devices=count,
            strategy="ddp" if count > 1 else "auto",
            use_distributed_sampler=False,
            default_root_dir=folder,
            callbacks=[callback],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )
        rows = [tuple(mine(batch(task, step), rank, count)) for step in range(STEPS)]
        trainer.fit(module, torch.utils.data.DataLoader(rows, batch_size=None))
    return result(module.net, callback.handle)


def sharded(model):
    """Every layer, then the model, cut over all processes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def reduce_last(model, last):
    """Let gradients be reduced with the last part of a batch only."""
    if isinstance(model, DistributedDataParallel):
        model.require_backward_grad_sync = last
    elif hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last)


WAYS = {
    "own loop": DistributedDataParallel,
    "sharded": sharded,
}
OBSTRUCTED = {
    "per unit": {},
    "per parameter": {"per": "parameter", "head": True},
    "one context": {"contexts": 1},
    "by the next layer": {"relevance": "next-layer"},
    "at every step": {"apply": "step"},
    "in parts": {"parts": 2},
    "in parts, reduced once": {"parts": 2, "sync": lambda model, last: reduce_last(model, last)},
}
TOOLS = {
    "sharded later": sharded_later,
    "sharded and saved": sharded_and_saved,
    "accelerate": with_accelerate,
    "trainer": with_trainer,
    "trl": with_trl,
    "lightning": with_lightning,
}


def environment(rank, count, port):
    """What torchrun sets."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
