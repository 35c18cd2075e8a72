"""LAMOL: a language model that answers questions about texts and writes old texts for itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..anatomy.contextual import as_context
from ..detection.infer import Observation
from ..methods.base import Outline
from ..methods.language.lamol import IGNORED, Signs, padded
from ..methods.shared.samples import seeded
from ..storage.states import (
    Inputs,
    check_fits,
    load_optimizer,
)
from .description import settings_of
from .lamol_objective import AT_ONCE, answer_scores, device_of, qa_and_lm
from .lamol_state import lamol_like, room_of
from .protocol import check_finite, described
from .training import tell

__all__ = ["Lamol"]


class Lamol:
    """Learns like `Learner`, with a causal language model of transformers; contexts are tasks.

    A sample is one sequence: text, question, [ANS], answer, [END]. The model learns the answer to
        the question (L_QA, over the answer and [END]) and the whole sequence after the task's own
        sign [GEN_k] (L_LM, over all of it): L_QA + lm * L_LM. Before task k it writes share * |D_k|
        pseudo-samples from the signs of the earlier tasks, equally many for each, drawing every
        token from the `top_k` likeliest; malformed ones are dropped. They are mixed with the task's
        data, `share` of them per sample. No data are stored.

    Sun, Ho and Lee, "LAMOL: LAnguage MOdeling for Lifelong Language Learning", ICLR 2020. There:
    GPT-2, AdamW with rate 6.25e-5, warmed up over 0.005 of the steps and falling linearly, decay
    0.01, gradients clipped at 1, 9 epochs at most. Here the question is one token of the task, and
    an answer is found by scoring those of all classes, not by generating freely: every output is a
    class.

    Args:
        model: a causal language model whose token ids are those of the texts; its vocabulary grows
            by signs, in place.
        optimizer: builds an optimizer from parameters; anew with every task.
        samples: how many training samples every task has, |D_k|, or one number for all.
        classes: how many answers there are.
        schedule: builds a learning-rate schedule from an optimizer, if any.
        answers: token ids of the answer of each class, such as those of "positive"; None: a new
            sign for each.
        pad: the id that fills texts up at the right.
        share: gamma, the number of pseudo-samples per sample of the new task.
        lm: weight of L_LM.
        top_k: when writing, each token is drawn from this many of the likeliest.
        clip: largest norm of the gradient.
        seed: of the signs' embeddings and of what is written.

    >>> from functools import partial
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> tiny = dict(vocab_size=20, n_embd=8, n_layer=1, n_head=1, n_positions=32)
    >>> tiny |= dict(bos_token_id=None, eos_token_id=None)
    >>> model = GPT2LMHeadModel(GPT2Config(**tiny))
    >>> adamw = partial(torch.optim.AdamW, lr=1e-3)
    >>> learner = Lamol(model, optimizer=adamw, samples=40, classes=2)
    >>> x, y = torch.randint(1, 20, (8, 6)), torch.randint(0, 2, (8,))
    >>> [learner.observe(x, y, context=k).switched for k in (0, 0, 1)]
    [True, False, True]
    >>> learner.written, learner.predict(x, context=0).shape
    (8, torch.Size([8, 2]))
    """

    name = "lamol"
    replay = True  # of pseudo-samples: no data are stored
    label_at_test = True
    separate = False
    contexts = None  # they are given

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
        samples: int | Sequence[int],
        classes: int,
        schedule: Callable[[Optimizer], LRScheduler] | None = None,
        answers: Sequence[Sequence[int]] | None = None,
        pad: int = 0,
        share: float = 0.2,
        lm: float = 0.25,
        top_k: int = 20,
        clip: float = 1.0,
        seed: int = 0,
    ) -> None:
        if not hasattr(model, "generate") or not hasattr(model, "resize_token_embeddings"):
            raise ValueError(
                "LAMOL needs a causal language model of transformers, such as GPT-2, got "
                f"{type(model).__name__}."
            )
        sizes = [samples] if isinstance(samples, int) else list(samples)
        if (
            not sizes
            or min(sizes) < 1
            or classes < 2
            or top_k < 1
            or min(share, lm) < 0
            or clip <= 0
        ):
            raise ValueError(
                "LAMOL needs samples and top_k of at least 1, two classes, share and lm of at "
                "least 0, and clip above 0."
            )
        self.model, self.samples, self.classes = model, samples, classes
        self.signs = Signs(_embeddings(model).num_embeddings, classes, answers, pad)
        self.share, self.lm, self.top_k, self.clip, self.seed = share, lm, top_k, clip, seed
        self.context: int | None = None
        self.step = self.written = self.longest = 0
        self._pseudo = torch.zeros(0, 0, dtype=torch.long)  # sequences written for the task at hand
        self._of = torch.zeros(0, dtype=torch.long)  # and the task each is of
        self._seen, self._learned = 0, list[int]()  # samples of the task at hand; tasks so far
        self._new_optimizer, self._new_schedule = optimizer, schedule
        asked = {"samples": samples, "classes": classes, "share": share, "lm": lm}
        asked |= {"top_k": top_k, "clip": clip, "seed": seed}
        settings = {"kind": "Lamol", **asked}
        made_of = settings_of(model)  # before signs are added
        self._add_tasks(1)
        loss = "L_QA + lm L_LM"
        self.description = described(made_of, settings, schedule, loss, self.optimizer)

    @property
    def pseudo(self) -> list[tuple[int, Tensor]]:
        """The pseudo-samples of the task at hand: which task each is of, and its sequence."""
        return [
            (int(task), row[row != IGNORED])
            for task, row in zip(self._of, self._pseudo, strict=True)
        ]

    def expect(self, outline: Outline) -> None:
        """Announce the next task before it begins."""
        tell(outline, self._new_schedule)

    def observe(self, x: Tensor, y: Tensor, context: int | None = None) -> Observation:
        """Learn one batch with its share of pseudo-samples."""
        if context is None:
            raise ValueError("Say which context the batch belongs to: LAMOL is told its tasks.")
        self._check(x, y)
        switched = self.switch(context)
        rows = self._rows_due(len(y))
        new = [
            self.signs.sequence(text, context, int(label)) for text, label in zip(x, y, strict=True)
        ]
        old = [self._pseudo[row][self._pseudo[row] != IGNORED] for row in rows]
        tasks = [context] * len(new) + [int(self._of[row]) for row in rows]
        generator = torch.get_rng_state()
        self.model.train()
        loss = qa_and_lm(self.model, self.signs, new + old, tasks, self.lm)
        check_finite(loss.item(), self.step, context, lambda: torch.set_rng_state(generator))
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.schedule is not None:
            self.schedule.step()
        self.step += 1
        self._seen += len(y)
        self.longest = max(self.longest, x.shape[1])
        return Observation(loss.item(), context, switched)

    def predict(self, x: Tensor, context: int | None = None) -> Tensor:
        """log P(answer, [END] | text, question) of every class, (N, classes)."""
        task = self.context if context is None else context
        if task is None or not 0 <= task < self._tasks:
            raise IndexError(f"Context {task} does not exist: there are {self._tasks}.")
        return answer_scores(self.model, self.signs, x, task)

    def end_task(self, task: int, data: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Do nothing: whatever remains of a task is in the model."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume learning."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "pseudo": self._pseudo,
            "of": self._of,
            "step": self.step,
            "written": self.written,
            "longest": self.longest,
            "seen": self._seen,
            "tasks": self._tasks,
            "learned": list(self._learned),
            "context": self.context,
            "generator": torch.get_rng_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> None:
        """Resume exactly where the state was taken; change nothing if it does not fit."""
        check_fits(state, partial(self.state_like, inputs=inputs))
        self._add_tasks(state["tasks"])
        self.model.load_state_dict(state["model"])
        load_optimizer(self.optimizer, state["optimizer"])
        if self.schedule is not None and state["schedule"] is not None:
            self.schedule.load_state_dict(state["schedule"])
        self._pseudo, self._of, self.context = state["pseudo"], state["of"], state["context"]
        self._learned = list(state["learned"])
        self.step, self.written, self.longest, self._seen = (
            state[name] for name in ("step", "written", "longest", "seen")
        )
        torch.set_rng_state(state["generator"])

    def state_like(self, state: Mapping[str, Any], inputs: Inputs | None = None) -> dict[str, Any]:
        """A template of the states that fit; see `gateon.storage.states`."""
        made = self._new_optimizer, self.optimizer, self.schedule
        return lamol_like(state, self.model, self.signs, *made)

    def _rows_due(self, samples: int) -> list[int]:
        """The pseudo-samples to learn with this many samples: each once per pass."""
        if not len(self._of) or self.context is None:
            return []
        per_sample = len(self._of) / self._size(self.context)
        first, last = (int(seen * per_sample) for seen in (self._seen, self._seen + samples))
        passes = {place // len(self._of) for place in range(first, last)}
        orders = {
            n: torch.randperm(len(self._of), generator=seeded(self.seed, self.context, n, 4))
            for n in passes
        }
        return [
            int(orders[place // len(self._of)][place % len(self._of)])
            for place in range(first, last)
        ]

    def _size(self, task: int) -> int:
        """|D_k|."""
        if isinstance(self.samples, int):
            return self.samples
        if task >= len(self.samples):
            raise ValueError(
                f"samples has the sizes of {len(self.samples)} tasks: add that of task {task}."
            )
        return self.samples[task]

    def _check(self, x: Tensor, y: Tensor) -> None:
        if x.dim() != 2 or x.is_floating_point() or int(x.max()) >= self.signs.words:
            raise ValueError(
                f"LAMOL reads texts as (N, L) token ids below {self.signs.words}, those its model "
                "knows."
            )
        room = room_of(self.model)
        if room is not None and self._room(x.shape[1]) >= room:
            raise ValueError(
                f"A text of {x.shape[1]} tokens with its signs is longer than the {room} the model "
                "reads: cut texts shorter."
            )
        if int(y.max()) >= self.classes:
            raise ValueError(
                f"Labels must be between 0 and {self.classes - 1}, got {int(y.max())}: "
                "give an answer for each class."
            )

    def _room(self, text: int) -> int:
        """Length in tokens of a whole sequence whose text has this many."""
        return text + 3 + max(len(self.signs.answer(c)) for c in range(self.classes))

    def switch(self, context: int) -> bool:
        """Write samples of the old tasks and begin a task; return whether the task changed."""
        context = as_context(context)
        if context == self.context:
            return False
        self._size(context)
        self._write(context, [task for task in self._learned if task != context])
        self._add_tasks(max(self._tasks, context + 1))
        self._learned += [context] * (context not in self._learned)
        self.context, self._seen = context, 0
        return True

    @torch.no_grad()
    def _write(self, task: int, old: list[int]) -> None:
        """Write share * |D| pseudo-samples, equally many per old task; keep the well-formed."""
        count = math.ceil(self.share * self._size(task)) if old else 0
        drawn = [old[n * len(old) // count] for n in range(count)]  # in order, equally many of each
        kept, self.written = [], count
        training = self.model.training
        self.model.eval()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seeded(self.seed, task, self.step, 5).initial_seed())
            for some in (drawn[n : n + AT_ONCE] for n in range(0, count, AT_ONCE)):
                kept += [
                    (of, row)
                    for of, row in zip(some, self._generated(some), strict=True)
                    if self.signs.is_whole(row)
                ]
        self.model.train(training)
        self._pseudo = padded([row for _, row in kept], IGNORED) if kept else self._pseudo[:0]
        self._of = torch.tensor([of for of, _ in kept], dtype=torch.long)

    def _generated(self, tasks: list[int]) -> list[Tensor]:
        """One sequence behind the sign of each of these tasks, up to [END]."""
        from transformers import GenerationConfig

        room, end = self._room(self.longest), self.signs.end
        how = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=True,
            top_k=self.top_k,
            max_new_tokens=room,
            eos_token_id=end,
            pad_token_id=end,
            bos_token_id=None,
        )
        signs = torch.tensor(
            [[self.signs.gen(task)] for task in tasks], device=device_of(self.model)
        )
        model: Any = self.model
        rows = model.generate(signs, attention_mask=torch.ones_like(signs), generation_config=how)[
            :, 1:
        ].cpu()
        return [self.signs.cut(row) for row in rows]

    def _add_tasks(self, tasks: int) -> None:
        """Add signs for this many tasks, and build an optimizer of all parameters."""
        wanted = self.signs.gen(tasks)
        if _embeddings(self.model).num_embeddings != wanted:
            model: Any = self.model
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seeded(self.seed, tasks, 0, 6).initial_seed())
                model.resize_token_embeddings(wanted, mean_resizing=False)
        self._tasks = tasks
        self.optimizer = self._new_optimizer(self.model.parameters())
        self.schedule = None if self._new_schedule is None else self._new_schedule(self.optimizer)


def _embeddings(model: Any) -> nn.Embedding:
    found: nn.Embedding = model.get_input_embeddings()
    return found
