"""ContextDetector: a loss goes in, a context comes out.

No model is inside: the detector asks whoever calls it for the loss of the batch at hand under other
contexts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["ContextDetector", "Probe", "Verdict"]

LITTLE = 0.1  # of the first loss: less than that is no knowledge that could be lost

Probe = Callable[[Sequence[int]], Sequence[float]]


@dataclass(frozen=True)
class Verdict:
    """What the detector makes of one batch.

    Args:
        context: the one the batch belongs to.
        switched: whether that is another one than before.
        new: whether it did not exist before.
        suspected: whether the batch is held to be of another task, but not surely yet.
        dismissed: whether an alarm turned out to be false: the context at hand still fits.
    """

    context: int
    switched: bool = False
    new: bool = False
    suspected: bool = False
    dismissed: bool = False


@dataclass
class _Book:
    """What is known of the losses of one context."""

    running: float = math.nan  # their running average
    deviation: float = 0.0  # the running average of twice the rise from one to the next
    first: float = math.nan
    last: float = math.nan
    losses: int = 0
    confidence: float = 0.0


@dataclass
class ContextDetector:
    """Finds the switches in a stream of losses, recognises contexts that return, and opens new ones.

    A loss is suspect if it exceeds L + max(spread * D, min(P / 2, max((threshold - 1) |L|, share *
    P))), with L the running loss of the context, P = L_0 - L what was learned since its first loss
    (P / 2 counts once P is a tenth of L_0), and D twice the mean rise from one loss to the next: it
    must stand out from the losses themselves, from what was learned, and from noise. After `window`
    suspects in a row it is settled what has changed. If the last batch before them has become a
    suspect too, it is the network and not the task (a learning rate was raised, say): the alarm is
    dismissed, as it is where the context at hand still fits. Otherwise the best fitting old context
    is reactivated, and if none fits a new one begins. Suspects never enter the running loss, and
    are meant to be learned only when it is settled where.

    With `robust=False` it is the paper's Algorithm 1 (from the prose around it): a switch where the
    minimum of the last `window` losses exceeds threshold * L, with one running loss for all
    contexts, which every loss enters; the first context whose loss is below that is reactivated.

    Args:
        threshold: Theta, by what factor a loss must exceed the running loss.
        window: m, so many losses in a row must.
        loss_rate: eta_L, of the running loss.
        confidence_rate: eta_C; confidence in the active context <- confidence + eta_C (1 -
            confidence).
        confident: no switch away from a context before its confidence exceeds this.
        spread: so many mean distances above the running loss are noise.
        share: so much of what a context has learned may be lost without notice.
        fit: an old context fits if its loss is at most so many times as far above its running loss
            as a suspect must be.
        max_contexts: how many contexts there may be at most.
        when_full: "error", or "best": reactivate the best fitting context then.
        robust: False for the paper's algorithm.

    >>> detector = ContextDetector(window=2)
    >>> for loss in [2.0, 1.0] + [0.1] * 20:
    ...     verdict = detector.update(loss)
    >>> [detector.update(loss, probe=lambda contexts: [3.0 for _ in contexts]).context for loss in (0.1, 3.0, 3.0, 2.0)]
    [0, 0, 1, 1]
    """

    threshold: float = 1.5
    window: int = 3
    loss_rate: float = 0.1
    confidence_rate: float = 0.3
    confident: float = 0.9
    spread: float = 5.0
    share: float = 0.01
    fit: float = 2.0
    max_contexts: int | None = None
    when_full: Literal["error", "best"] = "error"
    robust: bool = True

    active: int = field(default=0, init=False)
    # switches, returns, dismissed: how many there were
    figures: dict[str, int] = field(default_factory=dict, init=False)
    _books: list[_Book] = field(default_factory=lambda: [_Book()], init=False, repr=False)
    # robust: in a row; else the last losses
    _suspects: list[float] = field(default_factory=list, init=False, repr=False)
    # of all contexts, in Algorithm 1
    _running: float = field(default=math.nan, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        _check(
            1 < self.threshold < math.inf,
            f"threshold is above 1 and finite, not {self.threshold}: at 1 every loss is an alarm.",
        )
        _check(
            isinstance(self.window, int) and self.window >= 1,
            f"window is a whole number of at least 1, not {self.window}.",
        )
        for name in ("loss_rate", "confidence_rate"):
            _check(
                0 < getattr(self, name) <= 1,
                f"{name} is above 0 and at most 1, not {getattr(self, name)}.",
            )
        _check(
            0 <= self.confident < 1,
            f"confident is at least 0 and below 1, not {self.confident}: it would never be reached.",
        )
        for name in ("spread", "share"):
            _check(
                0 <= getattr(self, name) < math.inf,
                f"{name} is at least 0, not {getattr(self, name)}.",
            )
        _check(0 < self.fit < math.inf, f"fit is above 0 and finite, not {self.fit}.")
        _check(
            self.max_contexts is None or self.max_contexts >= 1,
            f"max_contexts is at least 1, not {self.max_contexts}.",
        )
        _check(
            self.when_full in ("error", "best"),
            f'when_full is "error" or "best", not {self.when_full!r}.',
        )
        self.figures = {"switches": 0, "returns": 0, "dismissed": 0}

    @classmethod
    def preset(cls, name: str) -> ContextDetector:
        """The settings "best", or the paper's for "paper-mnist", "paper-asc", "paper-dsc" and "paper-20news".

        >>> ContextDetector.preset("paper-mnist").threshold
        1.01
        """
        presets = {
            "best": cls(),
            "paper-mnist": cls(1.01, 1, 0.02, 0.02, robust=False),
            "paper-asc": cls(1.1, 3, 0.05, 0.02, robust=False),
            "paper-dsc": cls(5.0, 3, 0.05, 0.02, robust=False),
            "paper-20news": cls(5.0, 3, 0.05, 0.02, robust=False),
        }
        _check(
            name in presets,
            f"There is no preset {name!r} of the detector: choose one of {', '.join(presets)}.",
        )
        return presets[name]

    @property
    def contexts(self) -> int:
        """How many contexts there are."""
        return len(self._books)

    @property
    def losses(self) -> list[float]:
        """The running loss of every context."""
        return [book.running for book in self._books]

    @property
    def confidences(self) -> list[float]:
        """The confidence in every context."""
        return [book.confidence for book in self._books]

    def suspects(self, loss: float) -> bool:
        """Whether `update` with this loss may ask for a probe: nothing is changed."""
        loss = _number(loss)
        if not self.robust:
            return self._exceeds_running(
                self._next_running(loss), [*self._suspects, loss][-self.window :]
            )
        book = self._books[self.active]
        return book.confidence > self.confident and loss > self._limit(book, 1.0)

    def update(
        self, loss: float, probe: Probe | None = None, familiar: Callable[[], float] | None = None
    ) -> Verdict:
        """Take the loss of a batch in the active context; the context the batch belongs to.

        Args:
            loss: of the batch, before it is learned.
            probe: gives the losses of that batch under the contexts it is asked for. Without one,
                no context can be recognised and every switch opens a new one.
            familiar: gives the loss that the last batch before the suspects has now.
        """
        value = _number(loss)
        _check(
            math.isfinite(value),
            f"The loss is {loss}: the detector takes finite numbers only; it is as it was before.",
        )
        return (
            self._update_robust(value, probe, familiar)
            if self.robust
            else self._update_paper(value, probe)
        )

    def settled(self, loss: float) -> None:
        """Take the loss of a batch of which `update` has settled that it belongs to the active context."""
        if self.robust:
            self._learn(_number(loss))

    def state_dict(self) -> dict[str, Any]:
        """What it knows, as numbers and lists."""
        return {
            "active": self.active,
            "books": [asdict(book) for book in self._books],
            "suspects": list(self._suspects),
            "running": self._running,
            "figures": dict(self.figures),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        books = [_Book(**book) for book in state["books"]]
        self.active, self._books, self._suspects = (
            int(state["active"]),
            books,
            list(state["suspects"]),
        )
        self._running, self.figures = float(state["running"]), dict(state["figures"])

    # Beyond the paper.

    def _update_robust(
        self, loss: float, probe: Probe | None, familiar: Callable[[], float] | None
    ) -> Verdict:
        if not self.suspects(loss):
            self._suspects.clear()
            self._learn(loss)
            return Verdict(self.active)
        if len(self._suspects) + 1 < self.window:
            self._suspects.append(loss)
            return Verdict(self.active, suspected=True)
        changed = familiar is not None and float(familiar()) > self._limit(
            self._books[self.active], 1.0
        )
        found = self.active if changed else self._best_fit(probe)
        if found == self.active:
            self.figures["dismissed"] += 1
            self._books[
                found
            ].running = loss  # the level of now: the next losses are compared with it
            self._suspects.clear()
            return Verdict(found, dismissed=True)
        return self._switch_to(found)

    def _best_fit(self, probe: Probe | None) -> int | None:
        """The context under which the batch's loss is lowest, of those it fits; None if it fits none."""
        if probe is None:
            return None
        losses = [float(loss) for loss in probe(range(self.contexts))]
        limits = [
            self._limit(book, 1.0 if k == self.active else self.fit)
            for k, book in enumerate(self._books)
        ]
        fitting = [
            k for k, (loss, limit) in enumerate(zip(losses, limits, strict=True)) if loss <= limit
        ]
        if not fitting and self._reuses():
            fitting = list(range(self.contexts))
        return min(fitting, key=losses.__getitem__, default=None)

    def _limit(self, book: _Book, times: float) -> float:
        if math.isnan(book.running):
            return -math.inf  # nothing was learned in it yet: nothing can fit it
        learned = book.first - book.running
        excess = times * max((self.threshold - 1) * abs(book.running), self.share * learned)
        if learned > LITTLE * abs(book.first):  # a loss that is still high cannot rise by much
            excess = min(excess, learned / 2)
        return book.running + max(excess, times * self.spread * book.deviation)

    def _learn(self, loss: float) -> None:
        book = self._books[self.active]
        book.losses += 1
        if book.losses == 1:
            book.running = book.first = book.last = loss
        rate = max(self.loss_rate, 2 / (book.losses + 1))  # the loss falls fastest at the beginning
        book.deviation += rate * (2 * max(loss - book.last, 0.0) - book.deviation)
        book.running += rate * (loss - book.running)
        book.last = loss
        book.confidence += self.confidence_rate * (1 - book.confidence)

    # The paper's Algorithm 1.

    def _update_paper(self, loss: float, probe: Probe | None) -> Verdict:
        verdict = Verdict(self.active)
        running, recent = self._next_running(loss), [*self._suspects, loss][-self.window :]
        if self._exceeds_running(running, recent):
            losses = (
                [] if probe is None else [float(value) for value in probe(range(self.contexts))]
            )
            found = next(
                (k for k, value in enumerate(losses) if value < self.threshold * running), None
            )
            if found is None and losses and self._reuses():
                found = losses.index(min(losses))
            if found != self.active:
                verdict = self._switch_to(found)
        self._running, self._suspects = running, recent[-self.window :]
        book = self._books[self.active]
        book.losses, book.running = book.losses + 1, loss
        book.confidence += self.confidence_rate * (1 - book.confidence)
        return verdict

    def _next_running(self, loss: float) -> float:
        return (
            loss
            if math.isnan(self._running)
            else self._running + self.loss_rate * (loss - self._running)
        )

    def _exceeds_running(self, running: float, recent: list[float]) -> bool:
        sure = self._books[self.active].confidence > self.confident
        return sure and len(recent) == self.window and min(recent) > self.threshold * running

    # Both.

    def _switch_to(self, context: int | None) -> Verdict:
        new = context is None
        if context is None:
            _check(
                not self._is_full(),
                f"A new context is needed, and there are {self.contexts} already, which is max_contexts: raise it, "
                'or choose when_full="best", which reuses the best fitting one and needs a probe.',
            )
            context = self.contexts
            self._books.append(_Book())
        self.active = context
        self.figures["switches"] += 1
        self.figures["returns"] += not new
        self._suspects.clear()
        return Verdict(context, switched=True, new=new)

    def _is_full(self) -> bool:
        return self.max_contexts is not None and self.contexts >= self.max_contexts

    def _reuses(self) -> bool:
        return self._is_full() and self.when_full == "best"


def _number(loss: Any) -> float:
    """A loss as a plain number, whether it comes from Python, numpy or torch; NaN for anything else."""
    try:
        return math.nan if isinstance(loss, str) else float(loss)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return math.nan


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
