"""ContextDetector: a loss goes in, a context comes out.

It holds no model: it asks its caller for the losses of the current batch under other contexts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .losses import LossBook, Probe, Verdict, as_number

__all__ = ["ContextDetector", "Probe", "Verdict"]

LITTLE = 0.1  # share of the first loss below which a fall does not count as learned


@dataclass
class ContextDetector:
    """Detects switches in a stream of losses, recognises known contexts, and opens new ones.

    A loss is suspect if it exceeds

        L + max(spread D, min(P / 2, max((threshold - 1) |L|, share P)))

    where L is the running loss of the context, P = L_0 - L what was learned since its first loss
    (P / 2 counts once P is a tenth of L_0), and D twice the mean rise from one loss to the next. So
    it must stand out from the losses themselves, from what was learned, and from noise.

    After `window` suspects in a row the detector decides what has changed. If the last batch before
    them is now suspect too, the network changed and not the task (say, a learning rate was raised):
    the alarm is dismissed, as it is if the active context still fits. Otherwise the best fitting
    old context is reactivated, or a new one begins if none fits. Suspects never enter the running
    loss, and should be learned only once their context is settled.

    `robust=False` is the paper's Algorithm 1 (from the prose around it): a switch occurs when the
    minimum of the last `window` losses exceeds threshold * L, with one running loss for all
    contexts, which every loss enters; the first context whose loss is below that is reactivated.

    Args:
        threshold: Theta, the factor by which a loss must exceed the running loss.
        window: m, the number of consecutive losses that must exceed the threshold.
        loss_rate: eta_L, the rate of the running loss.
        confidence_rate: eta_C; confidence in the active context <- confidence + eta_C (1 -
            confidence).
        confident: The confidence a context needs before the detector switches away from it.
        spread: How many mean distances above the running loss still count as noise.
        share: The share of what a context has learned that may be lost unnoticed.
        fit: An old context fits if its loss is at most this many times as far above its running
            loss as a suspect must be.
        max_contexts: The largest number of contexts; no limit by default.
        when_full: What to do when a new context would exceed it: "error", or "best" to reactivate
            the best fitting context.
        robust: False for the paper's algorithm.

    >>> detector = ContextDetector(window=2)
    >>> for loss in [2.0, 1.0] + [0.1] * 20:
    ...     verdict = detector.update(loss)
    >>> def probe(contexts):
    ...     return [3.0 for _ in contexts]
    >>> [detector.update(loss, probe).context for loss in (0.1, 3.0, 3.0, 2.0)]
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
    figures: dict[str, int] = field(default_factory=dict, init=False)  # counts of events
    _books: list[LossBook] = field(default_factory=lambda: [LossBook()], init=False, repr=False)
    # Consecutive suspect losses; in Algorithm 1 the last losses, and their one running average.
    _suspects: list[float] = field(default_factory=list, init=False, repr=False)
    _running: float = field(default=math.nan, init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate the settings."""
        is_count = isinstance(self.window, int) and self.window >= 1
        most = self.max_contexts
        for name, holds, wanted in (
            ("threshold", 1 < self.threshold < math.inf, "above 1 and finite"),
            ("window", is_count, "an integer of at least 1"),
            ("loss_rate", 0 < self.loss_rate <= 1, "above 0 and at most 1"),
            ("confidence_rate", 0 < self.confidence_rate <= 1, "above 0 and at most 1"),
            ("confident", 0 <= self.confident < 1, "at least 0 and below 1"),
            ("spread", 0 <= self.spread < math.inf, "at least 0 and finite"),
            ("share", 0 <= self.share < math.inf, "at least 0 and finite"),
            ("fit", 0 < self.fit < math.inf, "above 0 and finite"),
            ("max_contexts", most is None or most >= 1, "at least 1"),
            ("when_full", self.when_full in ("error", "best"), '"error" or "best"'),
        ):
            _require(holds, f"{name} must be {wanted}, got {getattr(self, name)!r}.")
        self.figures = {"switches": 0, "returns": 0, "dismissed": 0}

    @classmethod
    def preset(cls, name: str) -> ContextDetector:
        """A detector with the settings of a name.

        Args:
            name: "best", or the paper's "paper-mnist", "paper-asc", "paper-dsc", "paper-20news".

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
        _require(
            name in presets,
            f"The detector has no preset {name!r}: choose one of {', '.join(presets)}.",
        )
        return presets[name]

    @property
    def contexts(self) -> int:
        """The number of contexts."""
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
        """Whether `update` with this loss may ask for a probe; changes nothing."""
        loss = as_number(loss)
        if not self.robust:
            recent = [*self._suspects, loss][-self.window :]
            return self._exceeds_running(self._next_running(loss), recent)
        book = self._books[self.active]
        return book.confidence > self.confident and loss > self._limit(book, 1.0)

    def update(
        self, loss: float, probe: Probe | None = None, familiar: Callable[[], float] | None = None
    ) -> Verdict:
        """Take the loss of a batch, and decide which context the batch belongs to.

        Args:
            loss: The loss of the batch in the active context, before it is learned.
            probe: Returns the losses of that batch under other contexts. Without it no context can
                be recognised, and every switch opens a new one.
            familiar: Returns the current loss of the last batch before the suspects.
        """
        value = as_number(loss)
        _require(
            math.isfinite(value),
            f"The detector takes finite numbers only, got {loss}: nothing was changed.",
        )
        if self.robust:
            return self._update_robust(value, probe, familiar)
        return self._update_paper(value, probe)

    def settled(self, loss: float) -> None:
        """Take the loss of an earlier suspect that turned out to belong to the active context."""
        if self.robust:
            self._learn(as_number(loss))

    def state_dict(self) -> dict[str, Any]:
        """Everything it knows, as numbers and lists."""
        return {
            "active": self.active,
            "books": [asdict(book) for book in self._books],
            "suspects": list(self._suspects),
            "running": self._running,
            "figures": dict(self.figures),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._books = [LossBook(**book) for book in state["books"]]
        self.active, self._suspects = int(state["active"]), list(state["suspects"])
        self._running, self.figures = float(state["running"]), dict(state["figures"])

    # Robust detection, which goes beyond the paper.

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
        limit = self._limit(self._books[self.active], 1.0)
        network_changed = familiar is not None and float(familiar()) > limit
        found = self.active if network_changed else self._best_fit(probe)
        if found == self.active:
            self.figures["dismissed"] += 1
            self._books[found].running = loss  # compare the next losses with the new level
            self._suspects.clear()
            return Verdict(found, dismissed=True)
        return self._switch_to(found)

    def _best_fit(self, probe: Probe | None) -> int | None:
        """The context with the lowest loss of the batch among those that fit; None if none does."""
        if probe is None:
            return None
        losses = [float(loss) for loss in probe(range(self.contexts))]
        limits = [
            self._limit(book, 1.0 if k == self.active else self.fit)
            for k, book in enumerate(self._books)
        ]
        pairs = zip(losses, limits, strict=True)
        fitting = [k for k, (loss, limit) in enumerate(pairs) if loss <= limit]
        if not fitting and self._must_reuse():
            fitting = list(range(self.contexts))
        return min(fitting, key=losses.__getitem__, default=None)

    def _limit(self, book: LossBook, times: float) -> float:
        """The loss above which a batch does not fit a context, with `times` the usual margin."""
        if math.isnan(book.running):
            return -math.inf  # nothing was learned in it yet, so nothing fits it
        learned = book.first - book.running
        excess = times * max((self.threshold - 1) * abs(book.running), self.share * learned)
        if learned > LITTLE * abs(book.first):  # a loss that is still high cannot rise by much
            excess = min(excess, learned / 2)
        return book.running + max(excess, times * self.spread * book.deviation)

    def _learn(self, loss: float) -> None:
        """Enter a loss into the running averages of the active context."""
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
            values = [] if probe is None else probe(range(self.contexts))
            losses, limit = [float(value) for value in values], self.threshold * running
            found = next((k for k, value in enumerate(losses) if value < limit), None)
            if found is None and losses and self._must_reuse():
                found = losses.index(min(losses))
            if found != self.active:
                verdict = self._switch_to(found)
        self._running, self._suspects = running, recent[-self.window :]
        book = self._books[self.active]
        book.losses, book.running = book.losses + 1, loss
        book.confidence += self.confidence_rate * (1 - book.confidence)
        return verdict

    def _next_running(self, loss: float) -> float:
        if math.isnan(self._running):
            return loss
        return self._running + self.loss_rate * (loss - self._running)

    def _exceeds_running(self, running: float, recent: list[float]) -> bool:
        sure = self._books[self.active].confidence > self.confident
        return sure and len(recent) == self.window and min(recent) > self.threshold * running

    # Shared by both.

    def _switch_to(self, context: int | None) -> Verdict:
        new = context is None
        if context is None:
            _require(
                not self._is_full(),
                f"A new context is needed, but there are {self.contexts} already, which is "
                'max_contexts: raise it, or choose when_full="best" with a probe, '
                "which reuses the best fitting context.",
            )
            context = self.contexts
            self._books.append(LossBook())
        self.active = context
        self.figures["switches"] += 1
        self.figures["returns"] += not new
        self._suspects.clear()
        return Verdict(context, switched=True, new=new)

    def _is_full(self) -> bool:
        return self.max_contexts is not None and self.contexts >= self.max_contexts

    def _must_reuse(self) -> bool:
        return self._is_full() and self.when_full == "best"


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
