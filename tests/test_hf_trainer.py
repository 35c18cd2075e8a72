"""Under transformers.Trainer: task after task, with accumulation, bf16, schedules and resumed runs, as in a loop of one's own."""

import pytest
import torch
import torch.nn.functional as F
import transformers

import gateon
import gateon.hf
from gateon.hf import GateONCallback

pytest.importorskip("accelerate", reason="Trainer needs accelerate")
STEPS, BATCH, LR = 6, 4, 2e-3
both_views = pytest.mark.parametrize("per", ["unit", "parameter"])


class Rows(torch.utils.data.Dataset):
    """A made task: low tokens against high ones, or even ones against odd."""

    def __init__(self, task, rows=BATCH * STEPS):
        generator = torch.Generator().manual_seed(task)
        self.y = torch.randint(0, 2, (rows,), generator=generator)
        drawn = torch.randint(3, 20, (rows, 6), generator=generator)
        self.ids = drawn + 17 * self.y[:, None] if task == 0 else 2 * drawn + self.y[:, None]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, n):
        return {"input_ids": self.ids[n], "labels": self.y[n]}


def make(dropout=0.0):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 40}
    config = transformers.BertConfig(**sizes, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return transformers.BertForSequenceClassification(config)


def trainer(model, folder, task, *callbacks, **options):
    usual = {
        "output_dir": str(folder),
        "per_device_train_batch_size": BATCH,
        "num_train_epochs": 1,
        "learning_rate": LR,
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "dataloader_pin_memory": False,
    }
    args = transformers.TrainingArguments(**(usual | options))
    return transformers.Trainer(model=model, args=args, train_dataset=Rows(task), callbacks=list(callbacks))


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_two_lines_learn_two_tasks(tmp_path):
    model = make()
    accuracies = []
    for k in (0, 1):
        trainer(model, tmp_path, k, GateONCallback(context=k), num_train_epochs=30).train()
        gates = gateon.gates_of(model)
        if k == 0:
            kept = {name: gate.weight[0].clone() for name, gate in gates.gates.items()}
        model.eval()
        gates.show(k)
        rows = Rows(k)
        accuracies.append((model(rows.ids).logits.argmax(1) == rows.y).float().mean().item())
    assert min(accuracies) > 0.75 and gates.contexts == 2  # of random weights, most of which are fixed
    assert all(torch.equal(gate.weight[0], kept[name]) for name, gate in gates.gates.items())
    handle = gates.listeners[0]
    assert handle.steps == 2 * 30 * STEPS and all((A < 1).any() for A in handle.applied.values())


@both_views
@pytest.mark.parametrize("accumulation", [1, 2])
def test_trainer_is_a_loop_of_ones_own(tmp_path, per, accumulation):
    model, own = make(), make()
    options = {
        "gradient_accumulation_steps": accumulation,
        "lr_scheduler_type": "linear",
        "max_grad_norm": 0.0,
        "adam_epsilon": 1e-15,
    }
    callback = GateONCallback(0, per=per)
    one = trainer(model, tmp_path, 0, callback, **options)
    order = []
    model.register_forward_pre_hook(lambda m, args, kwargs: order.append(kwargs["input_ids"].clone()), with_kwargs=True)
    one.train()
    gates = gateon.hf.attach(own)
    optimizer = torch.optim.AdamW(own.parameters(), lr=LR, weight_decay=0.0, eps=1e-15)  # the scale of a loss is Trainer's business
    steps = STEPS // accumulation
    handle = gateon.hf.obstruct(optimizer, gates, per=per, first_task_steps=steps)
    labels = {tuple(ids.tolist()): y for ids, y in zip(Rows(0).ids, Rows(0).y, strict=True)}
    for n, ids in enumerate(order):
        y = torch.stack([labels[tuple(row.tolist())] for row in ids])
        F.cross_entropy(own(ids).logits, y).backward()
        if (n + 1) % accumulation == 0:
            optimizer.param_groups[0]["lr"] = LR * (1 - (n // accumulation) / steps)
            optimizer.step()
            optimizer.zero_grad()
    assert handle.steps == callback.handle.steps == steps
    for name, p in own.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], p, rtol=1e-3, atol=1e-4)
    for name, A in handle.availability.items():
        torch.testing.assert_close(callback.handle.availability[name], A, rtol=1e-3, atol=1e-3)


@both_views
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, per):
    def run(model, folder, until=None, resume=None):
        callbacks = [GateONCallback(1, per=per)]
        if until is not None:
            callbacks.append(StopAt(until))
        options = {"save_strategy": "steps", "save_steps": 3, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
        options |= {"lr_scheduler_type": "cosine"}
        one = trainer(model, folder, 1, *callbacks, **options)
        one.train(resume_from_checkpoint=resume)
        return callbacks[0].handle

    def prepared():
        model = make(dropout=0.1)
        trainer(model, tmp_path / "first", 0, GateONCallback(0, per=per)).train()
        return model

    whole, broken, resumed = prepared(), prepared(), prepared()
    expected = run(whole, tmp_path / "whole")
    run(broken, tmp_path / "broken", until=3)
    place = (tmp_path / "broken" / "checkpoint-3").rename(tmp_path / "elsewhere")
    handle = run(resumed, tmp_path / "resumed", resume=str(place))
    assert handle.steps == expected.steps == STEPS + 6
    assert same(whole.state_dict(), resumed.state_dict()) and not same(whole.state_dict(), broken.state_dict())
    assert same(expected.state_dict(), handle.state_dict())


class StopAt(transformers.TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.step


def test_a_fresh_process_resumes_too(tmp_path):
    """Nothing but the checkpoint tells of the first half."""
    options = {"save_strategy": "steps", "save_steps": 3}
    whole, half, fresh = make(), make(), make()
    expected = GateONCallback(0)
    trainer(whole, tmp_path / "whole", 0, expected, **options).train()
    trainer(half, tmp_path / "half", 0, GateONCallback(0), StopAt(3), **options).train()
    del half
    callback = GateONCallback(0)
    trainer(fresh, tmp_path / "half", 0, callback, **options).train(resume_from_checkpoint=True)
    assert same(whole.state_dict(), fresh.state_dict()) and same(expected.handle.state_dict(), callback.handle.state_dict())


def test_a_checkpoint_without_availabilities_is_refused(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 3}
    model = make()
    gateon.hf.attach(model)
    trainer(model, tmp_path, 0, StopAt(3), **options).train()
    with pytest.raises(ValueError, match="step 3 holds no availabilities"):
        trainer(model, tmp_path, 0, GateONCallback(0), **options).train(resume_from_checkpoint=True)


def test_bf16_keeps_books_in_float32(tmp_path):
    model, callback = make(), GateONCallback(0)
    trainer(model, tmp_path, 0, callback, bf16=True).train()
    assert all(A.dtype == torch.float32 and (A < 1).any() for A in callback.handle.availability.values())
    assert all((gate.weight != 0).any() for gate in gateon.gates_of(model).gates.values())


def test_a_model_loaded_from_files_goes_on_with_its_availabilities(tmp_path):
    model, again = make(), None
    trainer(model, tmp_path / "a", 0, GateONCallback(0)).train()
    gateon.hf.save_pretrained(model, tmp_path / "kept")
    trainer(model, tmp_path / "a", 1, GateONCallback(1)).train()
    again = gateon.hf.from_pretrained(tmp_path / "kept").model
    trainer(again, tmp_path / "b", 1, GateONCallback(1)).train()
    assert same(model.state_dict(), again.state_dict())


@pytest.mark.parametrize("epochs", [1, 9])
def test_a_short_first_task_doubles_the_rate_that_was_asked_for(tmp_path, epochs):
    callback = GateONCallback(0, rate=0.02)
    trainer(make(), tmp_path, 0, callback, num_train_epochs=epochs).train()
    assert {ledger.rate for ledger in callback.handle.ledgers()} == {0.04 if epochs * STEPS < 50 else 0.02}


def test_bad_input_is_said(tmp_path):
    with pytest.raises(ValueError, match="index of at least 0"):
        GateONCallback(-1)
    model = make()
    trainer(model, tmp_path, 0, GateONCallback(0)).train()
    with pytest.raises(ValueError, match="availabilities per unit: pass per='unit'"):
        trainer(model, tmp_path, 1, GateONCallback(1, per="parameter")).train()
    other = make()
    one = trainer(other, tmp_path, 0, GateONCallback(0))
    gateon.gates_of(other).detach()
    with pytest.raises(ValueError, match="lost its gates"):
        one.train()
