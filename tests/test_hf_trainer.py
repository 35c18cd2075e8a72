"""Under transformers.Trainer: task after task, with accumulation, bf16, schedules and resumed runs, as in a loop of one's own."""

import pytest
import torch
import torch.nn.functional as F
import transformers

import gateon
import gateon.integrations.hf
from gateon.integrations.hf import GateONCallback
from rounding import SMOOTH_ADAM, assert_same

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
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "vocab_size": 40,
    }
    config = transformers.BertConfig(
        **sizes, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )
    return transformers.BertForSequenceClassification(config)


def trainer(
    model, folder, task, *callbacks, loss=None, eval_dataset=None, model_init=None, **options
):
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
    given = {
        "model": model,
        "model_init": model_init,
        "eval_dataset": eval_dataset,
        "callbacks": list(callbacks),
    }
    args = transformers.TrainingArguments(**(usual | options))
    return transformers.Trainer(
        args=args, train_dataset=Rows(task), compute_loss_func=loss, **given
    )


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
    # of random weights, most of which are fixed
    assert min(accuracies) > 0.75 and gates.contexts == 2
    assert all(torch.equal(gate.weight[0], kept[name]) for name, gate in gates.gates.items())
    handle = gates.listeners[0]
    assert handle.steps == 2 * 30 * STEPS and all((A < 1).any() for A in handle.applied.values())


@pytest.mark.numeric
@both_views
@pytest.mark.parametrize("accumulation", [1, 2])
def test_trainer_is_a_loop_of_ones_own(tmp_path, per, accumulation):
    model, own = make().double(), make().double()
    options = {
        "gradient_accumulation_steps": accumulation,
        "lr_scheduler_type": "linear",
        "max_grad_norm": 0.0,
        "adam_epsilon": SMOOTH_ADAM.keywords["eps"],
    }
    callback = GateONCallback(0, per=per)

    def loss(outputs, labels, **_):  # how Trainer scales a loss of its own depends on its version
        return F.cross_entropy(outputs.logits, labels) / accumulation

    one = trainer(model, tmp_path, 0, callback, loss=loss, **options)
    order = []
    model.register_forward_pre_hook(
        lambda m, args, kwargs: order.append(kwargs["input_ids"].clone()), with_kwargs=True
    )
    one.train()
    gates = gateon.hf.attach(own)
    optimizer = torch.optim.AdamW(
        own.parameters(), lr=LR, weight_decay=0.0, eps=SMOOTH_ADAM.keywords["eps"]
    )
    steps = STEPS // accumulation
    handle = gateon.hf.obstruct(optimizer, gates, per=per, first_task_steps=steps)
    labels = {tuple(ids.tolist()): y for ids, y in zip(Rows(0).ids, Rows(0).y, strict=True)}
    for n, ids in enumerate(order):
        y = torch.stack([labels[tuple(row.tolist())] for row in ids])
        (F.cross_entropy(own(ids).logits, y) / accumulation).backward()
        if (n + 1) % accumulation == 0:
            optimizer.param_groups[0]["lr"] = LR * (1 - (n // accumulation) / steps)
            optimizer.step()
            optimizer.zero_grad()
    assert handle.steps == callback.handle.steps == steps
    assert_same(model.state_dict(), own.state_dict())
    assert_same(callback.handle.availability, handle.availability)


@both_views
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, per):
    def run(model, folder, until=None, resume=None):
        callbacks = [GateONCallback(1, per=per)]
        if until is not None:
            callbacks.append(StopAt(until))
        options = {
            "save_strategy": "steps",
            "save_steps": 3,
            "gradient_accumulation_steps": 2,
            "num_train_epochs": 2,
        }
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
    assert same(whole.state_dict(), resumed.state_dict()) and not same(
        whole.state_dict(), broken.state_dict()
    )
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
    assert same(whole.state_dict(), fresh.state_dict()) and same(
        expected.handle.state_dict(), callback.handle.state_dict()
    )


def test_a_checkpoint_without_availabilities_is_refused(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 3}
    model = make()
    gateon.hf.attach(model)
    trainer(model, tmp_path, 0, StopAt(3), **options).train()
    with pytest.raises(ValueError, match="step 3 has no availabilities"):
        trainer(model, tmp_path, 0, GateONCallback(0), **options).train(resume_from_checkpoint=True)


def test_bf16_keeps_books_in_float32(tmp_path):
    model, callback = make(), GateONCallback(0)
    trainer(model, tmp_path, 0, callback, bf16=True).train()
    assert all(
        A.dtype == torch.float32 and (A < 1).any() for A in callback.handle.availability.values()
    )
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
    assert {ledger.rule.fall for ledger in callback.handle.ledgers()} == {
        0.04 if epochs * STEPS < 50 else 0.02
    }


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
    with pytest.raises(ValueError, match="model has no gates"):
        one.train()


# Files.


@both_views
def test_what_trainer_saves_is_read_with_its_gates(tmp_path, per):
    model = make()
    trainer(model, tmp_path, 0, GateONCallback(0, per=per)).train()
    callback = GateONCallback(1, per=per)
    one = trainer(model, tmp_path, 1, callback, save_strategy="steps", save_steps=STEPS)
    one.train()
    one.save_model(str(tmp_path / "kept"))
    one.save_model()
    for place in (tmp_path / f"checkpoint-{STEPS}", tmp_path / "kept", tmp_path):
        back = gateon.hf.from_pretrained(place)
        assert back.gates.context == 1 and same(back.model.state_dict(), model.state_dict())
        assert (
            same(back.handle.state_dict(), callback.handle.state_dict())
            and back.handle.rules == callback.handle.rules
        )


def test_weights_that_are_not_all_there_are_said(tmp_path):
    model = make()
    gateon.hf.attach(model)
    gateon.hf.save_pretrained(model, tmp_path)
    part = {name: p for name, p in make().state_dict().items() if "pooler" not in name}
    make().save_pretrained(tmp_path, state_dict=part)
    with pytest.raises(ValueError, match=r"incomplete, 'bert\.pooler\.dense\.bias' is missing"):
        gateon.hf.from_pretrained(tmp_path)


# New models.


def test_models_of_model_init_learn_as_any_other(tmp_path):
    plain, expected = make(), GateONCallback(1)
    trainer(plain, tmp_path, 0, expected).train()
    callback = GateONCallback(1)

    def model_init():
        with torch.random.fork_rng(devices=[]):  # so that batches come in the same order
            return make()

    one = trainer(None, tmp_path, 0, callback, model_init=model_init)
    for _ in range(2):  # as a search does
        one.train()
        assert same(one.model.state_dict(), plain.state_dict())
        assert same(callback.handle.state_dict(), expected.handle.state_dict())


def test_a_search_gives_each_trial_a_gated_model_of_its_own(tmp_path, monkeypatch):
    """What the backends of hyperparameter_search do, none of which need be installed."""
    monkeypatch.setattr("transformers.integrations.hp_params", lambda trial: trial)
    seen = []

    def model_init(trial):
        seen.append(make(dropout=0.0 if trial is None else trial["dropout"]))
        return seen[-1]

    one = trainer(None, tmp_path, 0, GateONCallback(0), model_init=model_init)
    for dropout in (0.1, 0.3):
        one.train(trial={"dropout": dropout})
    assert [model.config.hidden_dropout_prob for model in seen] == [0.0, 0.1, 0.3]
    gates = [gateon.gates_of(model) for model in seen]
    assert len({id(one) for one in gates}) == 3
    assert [all((gate.weight != 0).any() for gate in one.gates.values()) for one in gates] == [
        False,
        True,
        True,
    ]


def test_a_run_with_model_init_resumes(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 3, "model_init": lambda: make()}
    whole = trainer(None, tmp_path / "whole", 0, GateONCallback(0), **options)
    whole.train()
    trainer(None, tmp_path / "half", 0, GateONCallback(0), StopAt(3), **options).train()
    rest = trainer(None, tmp_path / "half", 0, GateONCallback(0), **options)
    rest.train(resume_from_checkpoint=True)
    assert same(whole.model.state_dict(), rest.model.state_dict())


# Evaluation.


class Contexts:
    """In which context a model in evaluation mode was called with which task's rows."""

    def __init__(self, model):
        self.seen = []
        model.register_forward_pre_hook(self.note, with_kwargs=True)

    def note(self, model, args, kwargs):
        if not model.training:
            task = int((kwargs["input_ids"][0] == Rows(1).ids).all(1).any())
            self.seen.append((task, gateon.gates_of(model).context))


def test_each_data_set_is_evaluated_in_its_context(tmp_path):
    alone, model = make(), make()
    for one in (alone, model):
        trainer(one, tmp_path, 0, GateONCallback(0)).train()
    trainer(alone, tmp_path, 1, GateONCallback(1)).train()
    contexts = Contexts(model)
    sets = {"books": Rows(0), "more_books": Rows(0), "films": Rows(1)}
    callback = GateONCallback(1, contexts={"books": 0, "films": 1, "more_books": 0})
    options = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": BATCH}
    one = trainer(model, tmp_path, 1, callback, eval_dataset=sets, **options)
    one.train()
    assert set(contexts.seen) == {(0, 0), (1, 1)} and gateon.gates_of(model).context == 1
    assert same(alone.state_dict(), model.state_dict())  # looking changes nothing
    found = one.evaluate()
    gates = gateon.gates_of(model)
    for name, k in callback.contexts.items():
        gates.show(k)
        with torch.no_grad():
            loss = F.cross_entropy(
                model.eval()(input_ids=sets[name].ids).logits, sets[name].y
            ).item()
        assert found[f"eval_{name}_loss"] == pytest.approx(loss, abs=1e-5)
    gates.show(1)
    contexts.seen.clear()
    one.evaluate({"books": Rows(0)}, metric_key_prefix="test")
    one.evaluate(Rows(1))
    assert set(contexts.seen) == {(0, 0), (1, 1)} and gates.context == 1


def test_the_context_comes_back_if_an_evaluation_fails(tmp_path):
    model = make()
    one = trainer(
        model,
        tmp_path,
        0,
        GateONCallback(1, contexts={"books": 0}),
        eval_dataset={"books": Rows(0)},
    )
    one.train()
    one.compute_metrics = lambda _: 1 / 0
    with pytest.raises(ZeroDivisionError):
        one.evaluate()
    assert gateon.gates_of(model).context == 1


def test_a_data_set_without_a_context_is_said(tmp_path):
    with pytest.raises(ValueError, match="does not name the data set 'films'"):
        trainer(
            make(),
            tmp_path,
            0,
            GateONCallback(contexts={"books": 0}),
            eval_dataset={"books": Rows(0), "films": Rows(1)},
        )
    with pytest.raises(ValueError, match="index of at least 0"):
        GateONCallback(contexts={"books": -1})


# Adapters.


def lora(model):
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    return peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", r=4))


@both_views
def test_adapters_learn_and_resume_bit_for_bit(tmp_path, per):
    options = {"save_strategy": "steps", "save_steps": 3}
    whole, half, rest = (lora(make()) for _ in range(3))
    expected, callback = GateONCallback(1, per=per), GateONCallback(1, per=per)
    trainer(whole, tmp_path / "whole", 0, expected, **options).train()
    trainer(half, tmp_path / "half", 0, GateONCallback(1, per=per), StopAt(3), **options).train()
    trainer(rest, tmp_path / "half", 0, callback, **options).train(resume_from_checkpoint=True)
    assert same(whole.state_dict(), rest.state_dict()) and same(
        expected.handle.state_dict(), callback.handle.state_dict()
    )
    adapters = [n for n in whole.state_dict() if "lora_" in n and "context_gate" not in n]
    assert len(adapters) == 8 and all((whole.get_parameter(name) != 0).any() for name in adapters)
    assert all((A < 1).any() for A in expected.handle.availability.values())


def test_adapters_are_read_with_their_gates(tmp_path):
    model, callback = lora(make()), GateONCallback(0)
    one = trainer(model, tmp_path, 0, callback)
    one.train()
    one.save_model(str(tmp_path / "trainer"))
    gateon.hf.save_pretrained(model, tmp_path / "own")
    from peft import PeftModel

    for place in (tmp_path / "trainer", tmp_path / "own"):
        with pytest.raises(ValueError, match="holds adapters only: pass model="):
            gateon.hf.from_pretrained(place)
        back = gateon.hf.from_pretrained(
            place, PeftModel.from_pretrained(make(), place, is_trainable=True)
        )
        assert same(back.model.state_dict(), model.state_dict())
        assert same(back.handle.state_dict(), callback.handle.state_dict())


@pytest.mark.parametrize("with_adapters", [False, True])
def test_the_best_model_comes_back_with_its_gates(tmp_path, with_adapters):
    model = lora(make()) if with_adapters else make()
    options = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    # the worst: early
    options |= {
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": True,
    }
    callback = GateONCallback(0)
    one = trainer(model, tmp_path, 0, callback, eval_dataset=Rows(0), **options)
    one.train()
    assert one.state.best_model_checkpoint != str(tmp_path / f"checkpoint-{STEPS}")
    base = None if not with_adapters else lora(make())
    kept = gateon.hf.from_pretrained(one.state.best_model_checkpoint, base)
    assert all(
        torch.equal(gate.weight, kept.gates.gates[name].weight)
        for name, gate in gateon.gates_of(model).gates.items()
    )
    assert callback.handle.steps == kept.handle.steps < STEPS
    assert same(callback.handle.state_dict(), kept.handle.state_dict())


def test_gates_that_peft_has_frozen_are_refused(tmp_path):
    model = make()
    gateon.hf.attach(model)
    with pytest.raises(
        ValueError, match="cannot learn because its requires_grad is False: call get_peft_model"
    ):
        trainer(lora(model), tmp_path, 0, GateONCallback(0)).train()


def test_what_trainer_logs_has_the_availabilities_wherever_it_reports_to(tmp_path, monkeypatch):
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    options = {"report_to": ["tensorboard"], "logging_strategy": "steps", "logging_steps": 2}
    callback, model = GateONCallback(0, rate=0.5), make()
    one = trainer(model, tmp_path, 0, callback, **options)
    one.train()
    read = reading.EventAccumulator(str(tmp_path / "logs"))
    read.Reload()
    for site, (frozen, room, _) in callback.handle.saturation().items():
        for name, value in ((f"availability/{site}", room), (f"saturation/{site}", frozen)):
            told = {at.step: at.value for at in read.Scalars(f"train/{name}")}
            assert list(told) == [2, 4, 6] and told[6] == pytest.approx(value)
            assert [row["step"] for row in one.state.log_history if name in row] == [2, 4, 6]
    assert room < 1
    quiet = trainer(make(), tmp_path, 0, GateONCallback(0, log=False), **options)
    quiet.train()
    assert not any("availability" in name for row in quiet.state.log_history for name in row)


def test_logging_availabilities_changes_nothing_that_is_learned(tmp_path):
    options = {"logging_strategy": "steps", "logging_steps": 1}
    models = []
    for log in (True, False):
        models.append(make(dropout=0.1))
        callback = GateONCallback(0, log=log)
        trainer(models[-1], tmp_path, 0, callback, **options).train()
    assert same(models[0].state_dict(), models[1].state_dict())
