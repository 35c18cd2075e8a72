"""LAMOL: sequences, losses, what it writes for itself, going on, and remembering."""

from __future__ import annotations

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

import rounding
from gateon.learners.lamol import Lamol
from gateon.learners.lamol_objective import qa_and_lm
from gateon.methods.language.lamol import IGNORED, Signs
from gateon.storage import checkpoint

pytestmark = pytest.mark.numeric

WORDS = 31
ADAMW = partial(torch.optim.AdamW, lr=1e-2, weight_decay=0.01)


def causal(dropout=0.0, seed=0):
    torch.manual_seed(seed)
    small = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32}
    return GPT2LMHeadModel(
        GPT2Config(
            **small,
            bos_token_id=None,
            eos_token_id=None,
            attn_pdrop=dropout,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
        )
    )


def lamol(model=None, **options):
    options = {"optimizer": ADAMW, "samples": 32, "classes": 2, **options}
    return Lamol(causal() if model is None else model, **options)


def texts(task, n=8, seed=0):
    """Texts in words of the task's own; the label is told by one of two of them, at any place."""
    generator = torch.Generator().manual_seed(100 * task + seed)
    first = 1 + 10 * task
    x = torch.randint(first + 2, first + 10, (n, 4), generator=generator)
    y = torch.randint(0, 2, (n,), generator=generator)
    x[torch.arange(n), torch.randint(0, 4, (n,), generator=generator)] = first + y
    return torch.cat([x, torch.zeros(n, 2, dtype=torch.long)], 1), y


def train(learner, task, steps, start=0, n=8):
    return [learner.observe(*texts(task, n, s), context=task).loss for s in range(start, steps)]


def accuracy(learner, task):
    x, y = texts(task, 64, 9999)
    return float((learner.predict(x, context=task).argmax(1) == y).float().mean())


def test_pseudo_samples_are_gamma_of_the_data_and_equally_many_of_each_task():
    learner = lamol(samples=[10, 23, 41], share=0.2)
    train(learner, 0, 2)
    assert learner.written == 0 and not learner.pseudo
    asked = []
    write = learner._generated
    learner._generated = lambda tasks: asked.extend(tasks) or write(tasks)
    train(learner, 1, 1)
    assert learner.written == math.ceil(0.2 * 23) == len(asked) and set(asked) == {0}
    asked.clear()
    train(learner, 2, 1)
    assert learner.written == math.ceil(0.2 * 41) == len(asked) == 9
    assert sorted(asked.count(task) for task in (0, 1)) == [4, 5]
    with pytest.raises(ValueError, match="of 3 tasks: add that of task 3"):
        learner.observe(*texts(0), context=3)
    assert learner.context == 2


def test_only_what_is_of_the_right_form_is_learned_again():
    learner = lamol(samples=20, share=0.25)
    train(learner, 0, 1)
    signs = learner.signs
    whole = torch.tensor([5, 6, signs.ask(0), signs.ans, *signs.answer(1), signs.end])
    bad = [whole[:-1], torch.cat([whole[:4], whole[3:]]), whole[whole != signs.ans], whole[3:]]
    learner._generated = lambda tasks: [whole, *bad]
    train(learner, 1, 1)
    assert learner.written == 5 and [task for task, _ in learner.pseudo] == [0]
    assert torch.equal(learner.pseudo[0][1], whole)


def test_every_pseudo_sample_comes_once_in_every_pass_over_the_data():
    learner = lamol(samples=20, share=0.5)
    train(learner, 0, 1)
    signs = learner.signs
    learner._generated = lambda tasks: [
        torch.tensor([5 + n, signs.ask(0), signs.ans, *signs.answer(0), signs.end])
        for n in range(len(tasks))
    ]
    learner.switch(1)
    assert learner.written == len(learner.pseudo) == 10
    passes = []
    for _ in range(3):
        rows = []
        for size in (7, 7, 6):  # 20 samples
            rows += learner._rows_due(size)
            learner._seen += size
        assert sorted(rows) == list(range(10))
        passes.append(rows)
    assert passes[0] != passes[1] != passes[2]


def test_the_loss_is_of_the_answer_and_a_quarter_of_that_of_everything():
    learner = lamol()
    x, y = texts(0, 3)
    signs, model = learner.signs, learner.model.eval()
    sequences = [signs.sequence(text, 0, int(label)) for text, label in zip(x, y, strict=True)]
    answers, everything, weights = [], [], []
    for row in sequences:  # one by one, without padding
        logs = model(row[None, :-1]).logits[0].log_softmax(-1)
        at = int((row == signs.ans).nonzero())
        answers += [-logs[i, row[i + 1]] for i in range(at, len(row) - 1)]
        logs = (
            model(torch.cat([torch.tensor([signs.gen(0)]), row])[None, :-1])
            .logits[0]
            .log_softmax(-1)
        )
        weights += [5.0 if token == signs.ans else 1.0 for token in row]
        everything += [-logs[i, token] for i, token in enumerate(row)]
    qa = torch.stack(answers).mean()
    lm = (torch.stack(everything) * torch.tensor(weights)).sum() / sum(weights)
    assert len(answers) == 6
    rounding.assert_same(qa_and_lm(model, signs, sequences, [0] * 3, 0.25), qa + 0.25 * lm)
    rounding.assert_same(qa_and_lm(model, signs, sequences, [0] * 3, 0.0), qa)


@pytest.mark.parametrize("answers", [None, [[3], [4, 5]]])
def test_predictions_are_scores_of_the_answers(answers):
    learner = lamol(answers=answers)
    train(learner, 0, 3)
    x, _ = texts(0, 20)
    scores = learner.predict(x, context=0)
    signs, model = learner.signs, learner.model.eval()
    for row in (0, 7, 19):
        for c in range(2):
            sequence = signs.sequence(x[row], 0, c)
            logs = model(sequence[None, :-1]).logits[0].log_softmax(-1)
            at = int((sequence == signs.ans).nonzero())
            expected = sum(logs[i, sequence[i + 1]] for i in range(at, len(sequence) - 1))
            rounding.assert_same(scores[row, c], expected.detach())


def test_it_learns_two_tasks_and_does_not_forget_the_first_completely():
    learner = lamol(samples=160)
    train(learner, 0, 70, n=16)
    first = accuracy(learner, 0)
    train(learner, 1, 70, n=16)
    assert first > 0.9 and accuracy(learner, 1) > 0.9
    # chance is a half; which samples it writes is a matter of luck
    assert accuracy(learner, 0) > 0.65
    written = [row for task, row in learner.pseudo if task == 0]
    signs = learner.signs
    known = {*range(1, 11), signs.ask(0), signs.ans, signs.end, *signs.answer(0), *signs.answer(1)}
    assert len(written) > 0.7 * learner.written == 0.7 * 32
    assert sum(set(row.tolist()) <= known for row in written) > 0.7 * len(written)


def test_pseudo_samples_are_what_it_remembers_by():
    def after_the_opposite(share):
        learner = lamol(samples=160, share=share)
        train(learner, 0, 70, n=16)
        for s in range(30):  # the same words, the other answers
            x, y = texts(0, 16, 500 + s)
            learner.observe(x, 1 - y, context=1)
        return learner, accuracy(learner, 0)

    with_them, kept = after_the_opposite(1.0)
    without, left = after_the_opposite(0.0)
    assert with_them.pseudo and not without.pseudo
    assert kept > left + 0.3


def test_it_goes_on_in_the_middle_of_a_task_as_if_never_stopped(tmp_path):
    schedule = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=8)

    def learner(seed=0):
        return lamol(causal(0.1, seed), schedule=schedule, share=0.5)

    def rest(one):
        return train(one, 1, 6, start=3) + train(one, 2, 3)

    whole = learner()
    train(whole, 0, 20)
    train(whole, 1, 3)
    checkpoint.save(whole.state_dict(), tmp_path / "state.safetensors")
    state = checkpoint.load(tmp_path / "state.safetensors")
    losses = rest(whole)
    other, loaded = learner(seed=3), copy.deepcopy(state["optimizer"])
    other.load_state_dict(state)
    assert rest(other) == losses and other.written == whole.written == 16
    torch.testing.assert_close(state["optimizer"]["state"], loaded["state"], rtol=0, atol=0)
    one, two = whole.model.state_dict(), other.model.state_dict()
    assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def test_predicting_changes_nothing_and_other_causal_models_do():
    torch.manual_seed(0)
    sizes = {
        "vocab_size": WORDS,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    # embeddings and outputs apart
    learner = lamol(GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, max_position_embeddings=32)))
    train(learner, 0, 2)
    train(learner, 1, 2)
    before = {key: value.clone() for key, value in learner.model.state_dict().items()}
    generator = torch.get_rng_state()
    learner.predict(texts(0)[0], context=0)
    assert torch.equal(generator, torch.get_rng_state()) and learner.model.training
    assert all(torch.equal(before[key], value) for key, value in learner.model.state_dict().items())


def test_the_form_of_a_sample():
    signs = Signs(100, 3, pad=9)
    row = signs.sequence(torch.tensor([7, 8, 9, 9]), task=2, label=1)
    assert row.tolist() == [
        7,
        8,
        signs.ask(2),
        signs.ans,
        *signs.answer(1),
        signs.end,
    ] and signs.is_whole(row)
    of_tasks = [sign(k) for k in range(4) for sign in (signs.gen, signs.ask)]
    distinct = [signs.ans, signs.end, *(signs.answer(c)[0] for c in range(3)), *of_tasks]
    assert sorted(distinct) == list(range(100, signs.gen(4)))
    longer = torch.cat([torch.tensor([1, 2, 3]), row])
    ids, targets = signs.answered([row, longer])
    assert ids.shape == targets.shape == (2, 8)
    assert (targets != IGNORED).sum(1).tolist() == [2, 2]
    assert torch.equal(signs.cut(torch.cat([row, torch.tensor([signs.end, 4])])), row)


def test_what_cannot_be_is_refused():
    with pytest.raises(
        ValueError, match="causal language model of transformers, such as GPT-2, got Linear"
    ):
        Lamol(nn.Linear(2, 2), optimizer=ADAMW, samples=3, classes=2)
    with pytest.raises(ValueError, match="two classes"):
        lamol(classes=1)
    with pytest.raises(ValueError, match="token ids below 31, one or more for each of 2 classes"):
        lamol(answers=[[1], [31]])
    learner = lamol()
    with pytest.raises(IndexError, match="Context None does not exist"):
        learner.predict(texts(0)[0])
    with pytest.raises(ValueError, match="token ids below 31, those its model"):
        learner.observe(torch.full((2, 3), 31), torch.zeros(2, dtype=torch.long), context=0)
    with pytest.raises(
        ValueError, match="A text of 28 tokens with its signs is longer than the 32"
    ):
        learner.observe(
            torch.ones(2, 28, dtype=torch.long), torch.zeros(2, dtype=torch.long), context=0
        )
    with pytest.raises(ValueError, match="Labels must be between 0 and 1, got 5"):
        learner.observe(texts(0)[0], torch.full((8,), 5), context=0)
    with pytest.raises(IndexError, match="contexts are whole numbers"):
        learner.observe(*texts(0), context=-1)
    with pytest.raises(ValueError, match="told its tasks"):
        learner.observe(*texts(0), context=None)
    assert learner.context is None and learner.step == 0
    train(learner, 0, 1)
    nn.init.constant_(learner.model.transformer.ln_f.weight, float("nan"))
    before = {key: value.clone() for key, value in learner.model.state_dict().items()}
    with pytest.raises(FloatingPointError, match="at step 1 in context 0; nothing was learned"):
        learner.observe(*texts(0), context=0)
    assert all(
        torch.equal(before[k], v) or before[k].isnan().all()
        for k, v in learner.model.state_dict().items()
    )
    assert learner.step == 1
