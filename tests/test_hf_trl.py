"""Under TRL's SFTTrainer: a decoder learns to answer, task after task, with one line more."""

from __future__ import annotations

import pytest
import torch
import transformers

import gateon
import gateon.hf
from gateon.hf import GateONCallback
from tiny_language import tiny_tokenizer

trl = pytest.importorskip("trl", reason="trl is not installed")
datasets = pytest.importorskip("datasets")
STEPS = 4
TASKS = [
    {"prompt": ["good phone ", "bad phone "] * 8, "completion": ["buy", "never"] * 8},
    {"prompt": ["good phone ", "bad phone "] * 8, "completion": ["fast", "slow"] * 8},
]


def tokenizer():
    made = tiny_tokenizer()
    made.eos_token = made.sep_token
    return made


def make():
    torch.manual_seed(0)
    words = tokenizer()
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        pad_token_id=words.pad_token_id,
        bos_token_id=words.cls_token_id,
        eos_token_id=words.sep_token_id,
    )
    model = transformers.LlamaForCausalLM(config)
    gateon.attach(model, start="open", steepness=10)
    return model


def trainer(model, folder, task, *callbacks, **options):
    usual = {"per_device_train_batch_size": 4, "max_steps": STEPS, "learning_rate": 1e-2}
    usual |= {"use_cpu": True, "bf16": False, "report_to": [], "disable_tqdm": True}
    usual |= {"save_strategy": "no", "logging_strategy": "no", "dataloader_pin_memory": False}
    return trl.SFTTrainer(
        model=model,
        args=trl.SFTConfig(output_dir=str(folder), **(usual | options)),
        train_dataset=datasets.Dataset.from_dict(TASKS[task]),
        processing_class=tokenizer(),
        callbacks=list(callbacks),
    )


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_a_second_task_leaves_the_gates_of_the_first(tmp_path):
    model = make()
    for task in range(2):
        callback = GateONCallback(context=task)
        trainer(model, tmp_path, task, callback).train()
        gates = gateon.gates_of(model)
        if task == 0:
            kept = {name: gate.weight[0].clone() for name, gate in gates.gates.items()}
    assert gates.contexts == 2 and callback.handle.steps == 2 * STEPS
    assert all(torch.equal(gate.weight[0], kept[name]) for name, gate in gates.gates.items())
    assert all((gate.weight[1] != 0).any() for gate in gates.gates.values())
    assert all((A < 1).any() for A in callback.handle.applied.values())


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2, "gradient_accumulation_steps": 2}
    whole, half = GateONCallback(0), GateONCallback(0)
    models = make(), make(), make()
    trainer(models[0], tmp_path / "whole", 0, whole, **options).train()
    trainer(models[1], tmp_path / "half", 0, GateONCallback(0), StopAt(2), **options).train()
    trainer(models[2], tmp_path / "half", 0, half, **options).train(resume_from_checkpoint=True)
    assert same(models[0].state_dict(), models[2].state_dict())
    assert same(whole.handle.state_dict(), half.handle.state_dict())
    loaded = gateon.hf.from_pretrained(tmp_path / "half" / f"checkpoint-{STEPS}")
    assert same(loaded.model.state_dict(), models[0].state_dict())


class StopAt(transformers.TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.step
