"""Under Lightning: fit after fit in contexts of their own, checkpoints, and two processes."""

from __future__ import annotations

import csv
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gateon
from rounding import SMOOTH_ADAM, assert_same

lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
from lightning.pytorch import loggers  # noqa: E402

from gateon.integrations.lightning import GateONCallback  # noqa: E402

STEPS, BATCH = 4, 6
both_views = pytest.mark.parametrize("per", ["unit", "parameter"])


def batches(task, count=STEPS):
    drawn = torch.Generator().manual_seed(task)
    x = torch.randn(count, BATCH, 8, generator=drawn).double()
    y = (x @ torch.randn(8, 3, generator=drawn).double()).argmax(-1)
    return list(zip(x, y, strict=True))


class Module(lightning.LightningModule):
    """What a user writes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3)).double()
        self.seen = []

    def training_step(self, batch, n):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, n, dataloader_idx=0):
        self.seen.append((dataloader_idx, gateon.gates_of(self.net).context))

    def configure_optimizers(self):
        return SMOOTH_ADAM(self.parameters())


class Telling(Module):
    """It logs its loss."""

    def training_step(self, batch, n):
        loss = super().training_step(batch, n)
        self.log("loss", loss)
        return loss


def obstructed(per="unit"):
    return partial(gateon.obstruct, per=per, rate=0.1)


def attached(module):
    return gateon.attach(module.net, density=0.6)


def callback(context=0, per="unit", **options):
    return GateONCallback(context, attach=attached, obstruct=obstructed(per), **options)


def trainer(folder, *callbacks, epochs=2, **options):
    usual = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    usual |= {"enable_model_summary": False, "enable_checkpointing": False}
    return lightning.Trainer(
        max_epochs=epochs,
        default_root_dir=folder,
        callbacks=list(callbacks),
        **(usual | options),
    )


def loader(task):
    return torch.utils.data.DataLoader(batches(task), batch_size=None)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.numeric
@both_views
@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_fit_is_a_loop_of_ones_own(tmp_path, per, accumulation):
    module, own = Module(), Module()
    for task in range(2):
        one = callback(task, per)
        trainer(tmp_path, one, accumulate_grad_batches=accumulation).fit(module, loader(task))
    gates = attached(own)
    gates.add_context()
    optimizer = own.configure_optimizers()
    handle = obstructed(per)(optimizer, gates)
    for task in range(2):
        optimizer = own.configure_optimizers()
        handle.follow(optimizer)
        gates.switch(task)
        for n, batch in enumerate(batches(task) * 2):
            (own.training_step(batch, n) / accumulation).backward()
            if (n + 1) % accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert one.handle.steps == handle.steps == 4 * STEPS // accumulation
    assert_same(module.state_dict(), own.state_dict())
    assert_same(one.handle.availability, handle.availability)


@both_views
def test_a_fit_goes_on_from_its_checkpoint_bit_for_bit(tmp_path, per):
    def learned_first():
        module = Module()
        trainer(tmp_path, callback(0, per)).fit(module, loader(0))
        return module

    whole, half, fresh = learned_first(), learned_first(), Module()
    one, other, third = (callback(1, per) for _ in range(3))
    trainer(tmp_path, one, epochs=4).fit(whole, loader(1))
    first = trainer(tmp_path, other, epochs=2)
    first.fit(half, loader(1))
    first.save_checkpoint(tmp_path / "half.ckpt")
    # of a new process nothing but the checkpoint is left of the first task
    trainer(tmp_path, third, epochs=4).fit(fresh, loader(1), ckpt_path=tmp_path / "half.ckpt")
    assert same(whole.state_dict(), fresh.state_dict())
    assert same(one.handle.state_dict(), third.handle.state_dict())
    assert not same(half.state_dict(), fresh.state_dict())


def test_a_checkpoint_without_availabilities_is_refused(tmp_path):
    module = Module()
    gateon.attach(module.net, 1)
    plain = trainer(tmp_path, epochs=1)
    plain.fit(module, loader(0))
    plain.save_checkpoint(tmp_path / "plain.ckpt")
    with pytest.raises(ValueError, match="has no availabilities"):
        trainer(tmp_path, callback()).fit(module, loader(0), ckpt_path=tmp_path / "plain.ckpt")


def test_each_loader_is_looked_at_in_its_context(tmp_path):
    module = Module()
    trainer(tmp_path, callback(0)).fit(module, loader(0))
    one = callback(1, contexts=[0, 1, 0])
    t = trainer(tmp_path, one, num_sanity_val_steps=1)
    t.fit(module, loader(1), [loader(0), loader(1), loader(0)])
    assert set(module.seen) == {(0, 0), (1, 1), (2, 0)}
    assert gateon.gates_of(module.net).context == 1
    module.seen.clear()
    t.validate(module, [loader(0)], verbose=False)
    assert set(module.seen) == {(0, 0)}
    with pytest.raises(ValueError, match=r"names 3 data loaders.*add the context of data loader 3"):
        t.validate(module, [loader(0)] * 4, verbose=False)
    assert gateon.gates_of(module.net).context == 1


def test_gates_find_the_network_by_themselves(tmp_path):
    module = Module()
    one = GateONCallback()
    trainer(tmp_path, one, epochs=1).fit(module, loader(0))
    assert gateon.gates_of(module.net) is not None and one.handle.steps == STEPS


def logged(folder, **options):
    """What Lightning's own loggers hold after a fit, step by step, and the callback."""
    csv_files = loggers.CSVLogger(folder, name="", version="csv")
    one, module = callback(**options), Telling()
    own = trainer(folder, one, logger=csv_files, log_every_n_steps=2)
    own.fit(module, loader(0))
    with (folder / "csv" / "metrics.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["loss"]], one


def test_availabilities_are_logged_beside_the_loss(tmp_path):
    rows, one = logged(tmp_path)
    assert [int(row["step"]) for row in rows] == [1, 3, 5, 7]
    room = [float(row["availability/0"]) for row in rows]
    assert 1 > room[0] > room[-1] > 0
    ((site, (frozen, left, _)),) = one.handle.saturation().items()
    assert site == "0" and room[-1] == pytest.approx(left, rel=1e-5)
    assert float(rows[-1]["saturation/0"]) == pytest.approx(frozen)


def test_availabilities_are_in_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    own = loggers.TensorBoardLogger(tmp_path, name="", version="tb")
    trainer(tmp_path, callback(), logger=own, log_every_n_steps=4).fit(Telling(), loader(0))
    held = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert [event.step for event in held.Scalars("availability/0")] == [3, 7]
    assert {"saturation/0", "loss"} <= set(held.Tags()["scalars"])


def test_availabilities_are_left_out_of_the_log(tmp_path):
    rows, _ = logged(tmp_path, log=False)
    assert rows and not any(name.startswith(("availability", "saturation")) for name in rows[0])


def test_bad_input_is_said(tmp_path):
    with pytest.raises(ValueError, match="index of at least 0"):
        GateONCallback(-1)
    with pytest.raises(ValueError, match="The module has no gates"):
        trainer(tmp_path, GateONCallback(contexts=[0])).validate(Module(), loader(0), verbose=False)
