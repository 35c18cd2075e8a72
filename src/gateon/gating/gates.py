"""All gates of a model: which context they show, and who is notified when it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..anatomy.adapters import has_adapters, is_peft
from ..anatomy.composite import own_parameters
from ..anatomy.contextual import add_contexts, show_context
from ..anatomy.norm import ContextNorm
from ..anatomy.rows import keep_rows
from ..anatomy.shards import check_unsharded
from ..anatomy.sites import Site
from . import shown
from .gate import Gate
from .growth import mark_kept
from .hooks import remove_hooks

__all__ = ["Gates", "gates_of"]


class Listener(Protocol):
    """Anything that must know when the context changes, such as obstruction."""

    def switched(self) -> None:
        """The context being learned has changed."""

    def context_added(self) -> None:
        """Every gate has one more row."""

    def remove(self) -> None:
        """The gates are about to be taken out."""


class Gates:
    """All gates of a model: the context they show and their gains.

    Made by `attach`; `gates_of(model)` finds it again. The parameters are in the model. Switching
    the gates switches every module of the model that has per-context state.
    """

    def __init__(self, model: nn.Module, sites: list[Site]) -> None:
        self.model, self.sites = model, {site.name: site for site in sites}
        self.context: int | Tensor = 0
        # The context being learned; `context` may be one that is only shown.
        self._learning = torch.tensor(0)
        self.listeners: list[Listener] = []
        # Contexts of forward passes with gradients since the last step.
        self.passed: set[int] = set()
        # Whether this is a copy of a model whose optimizer hooks were not copied with it.
        self.orphaned = False
        # Whether the model is a sub-network, which stays in its only context.
        self.is_part = False
        # The data-parallel wrapper that this many contexts are known to fit in.
        self.fits_in: tuple[Any, int] | None = None
        # How likely the units of a site are to be open in a new context; None: all alike.
        self.prefers: Callable[[Site], Tensor | None] | None = None
        self.arguments: dict[str, Any] = {}  # of `attach`, as far as a file can hold them
        held = (
            []
            if has_adapters(model)
            else [name for site in sites if site.fixed for name in site.owns]
        )
        own = {
            p
            for name in held
            for part, p in own_parameters(model.get_submodule(name))
            if not part.startswith("lora_")
        }
        self._fixed = [p for p in own if p.requires_grad]
        for parameter in self._fixed:
            parameter.requires_grad_(False)
        # A nested tensor has no shape, and so no units to gate.
        self._nesting = [
            m
            for m in model.modules()
            if isinstance(m, nn.TransformerEncoder) and m.use_nested_tensor
        ]
        self._led = [m for m in model.modules() if isinstance(m, ContextNorm) and not m.follows]

    def lead(self, contexts: int) -> None:
        """Let everything with per-context state follow, with as many contexts."""
        for encoder in self._nesting:
            encoder.use_nested_tensor = False
        for norm in self._led:
            norm.follows = True
        add_contexts(self.model, contexts)

    @property
    def contexts(self) -> int:
        """How many there are."""
        gate = next(iter(self.gates.values()))
        return gate.contexts or 0

    @cached_property
    def gates(self) -> dict[str, Gate]:
        """Every gate by its site, in the order of the sites."""
        found = {
            m.site.name: m
            for m in self.model.modules()
            if isinstance(m, Gate) and m.weight is not None
        }
        return {name: found[name] for name in self.sites if name in found}

    @property
    def taps(self) -> dict[str, Gate]:
        """By site, the module that observes its relevance: the gate, or a tap apart from it."""
        found = {m.site.name: m for m in self.model.modules() if isinstance(m, Gate)}
        apart = {
            m.site.name: m for m in self.model.modules() if isinstance(m, Gate) and m.weight is None
        }
        return found | apart

    @property
    def is_first(self) -> bool:
        """Whether context 0 is being learned, and no other."""
        return bool((self._learning == 0).all())

    @property
    def learning(self) -> int | None:
        """The context being learned, even if another is shown; None if samples differ."""
        return int(self._learning) if self._learning.dim() == 0 else None

    @property
    def learning_rows(self) -> Tensor:
        """The context being learned as a tensor: one index, or one for each sample."""
        return self._learning

    def switch(self, context: int | Sequence[int] | Tensor) -> None:
        """Learn in a context from now on: one for all samples, or one per sample."""
        rows = self._checked(context)
        changed = not torch.equal(self._learning, rows)
        if changed:
            for gate in self.gates.values():
                gate.end_gradient()
        self._set(rows)
        self._learning = rows
        if changed:
            for listener in self.listeners:
                listener.switched()

    def resume(self, context: int | Sequence[int] | Tensor) -> None:
        """Resume learning in a context, without notifying the listeners.

        Their own state is loaded separately. The rows of the context may be missing: loading the
        model brings them, and a sub-network needs only its own.
        """
        self._learning = torch.as_tensor(context, dtype=torch.long).cpu().clone()
        if int(self._learning.max()) < self.contexts:
            self._set(self._learning)

    def show(self, context: int | Sequence[int] | Tensor) -> None:
        """Show the model in another context, to evaluate it; the one being learned stays."""
        self._set(self._checked(context))

    def keep_rows(self, where: str | Path = "cpu") -> None:
        """Keep the rows of contexts that are not at work elsewhere: of gates and of norms.

        The device and the optimizer then hold one row, and a switch fetches another; what is
        computed stays the same, and so does `state_dict`. A batch is in one context, and a new
        optimizer is built after every switch, as `Learner` does. Call it before training, or right
        before a switch.

        Args:
            where: "cpu" for the memory of the host; a directory for a file there, which is mapped
                into memory; "device" for the device again.

        >>> import gateon
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> gates = gateon.attach(model, contexts=3)
        >>> gates.keep_rows("cpu"); gates.switch(2)
        >>> gates.contexts, gates.gates["0"].weight.shape
        (3, torch.Size([1, 8]))
        """
        if not isinstance(self.context, int):
            raise ValueError("The samples of a batch show contexts of their own: switch to one.")
        check_unsharded(self.model, "its rows are kept by all processes already")
        for gate in self.gates.values():
            gate.end_gradient()
        keep_rows(self.model, where, self.context)
        for gate in self.gates.values():
            mark_kept(gate.get_parameter("weight"), gate.kept.get("weight"))
        self._set(torch.tensor(self.context))

    def _checked(self, context: Any) -> Tensor:
        try:
            rows = torch.as_tensor(context)
        except (TypeError, ValueError, RuntimeError):
            rows = torch.empty(0)
        if (
            rows.dim() > 1
            or rows.numel() == 0
            or rows.is_floating_point()
            or rows.is_complex()
            or rows.dtype == torch.bool
        ):
            raise ValueError(
                f"A context must be an index, or one index for each sample, got {shown.brief(context)}."
            )
        low, high = int(rows.min()), int(rows.max())
        if low < 0 or high >= self.contexts:
            raise IndexError(
                f"Context {low if low < 0 else high} does not exist: there are {self.contexts}; "
                "add_context() adds one."
            )
        # The caller may use its tensor for the next batch.
        return rows.to("cpu", torch.long, copy=True)

    def _set(self, rows: Tensor) -> None:
        context = int(rows) if rows.dim() == 0 else rows
        if not self.is_part:
            show_context(self.model, context)
        self.context = context

    def gain(self, context: int | None = None) -> dict[str, Tensor]:
        """The gains of a context, by site; of the active one by default."""
        rows = None if context is None else self._checked(context).reshape(-1)
        with torch.no_grad():
            return {name: gate.gain(rows).squeeze(0) for name, gate in self.gates.items()}

    def add_context(self) -> int:
        """Add a context to the model, at any time; returns its index.

        Its gates start like the others'. What an optimizer remembers of the gates grows with them.
        """
        for gate in self.gates.values():
            gate.add_context(None if self.prefers is None else self.prefers(gate.site))
        add_contexts(self.model, self.contexts)
        for listener in self.listeners:
            listener.context_added()
        return self.contexts - 1

    def off(self) -> None:
        """Set every gain to 1 until `on()`; meanwhile gates learn nothing."""
        for gate in self.gates.values():
            gate.off = True

    def on(self) -> None:
        """Let the gates act again."""
        for gate in self.gates.values():
            gate.off = False

    def detach(self) -> nn.Module:
        """Take every gate out: the model as it was before `attach`, with what it has learned."""
        for listener in list(self.listeners):
            listener.remove()
        remove_hooks(self.model)
        if any(norm.kept for norm in self._led):
            keep_rows(self.model, "device", int(self.context))
        for norm in self._led:
            norm.follows = False
        for encoder in self._nesting:
            encoder.use_nested_tensor = True
        for parameter in self._fixed:
            parameter.requires_grad_(True)
        self.model.__dict__.pop("context_gates", None)
        return self.model

    def __str__(self) -> str:
        """A table of sites: their units, where the gate sits, and what they own."""
        return shown.as_text(self)

    def __repr__(self) -> str:
        """How many gates and contexts, and which of them is active."""
        return f"<Gates: {shown.counts(self)}>"

    def _repr_html_(self) -> str:
        return shown.as_html(self)

    def __getstate__(self) -> dict[str, Any]:
        """A copy without listeners: optimizer hooks are not copied, so obstruct it again."""
        return self.__dict__ | {
            "listeners": [],
            "fits_in": None,
            "prefers": None,
            "orphaned": self.orphaned or bool(self.listeners),
        }


def gates_of(model: nn.Module) -> Gates | None:
    """The gates of a model, or of the one inside its wrappers; None if it has none.

    Wrappers are those of `torch.compile`, PEFT, `DataParallel`, `DistributedDataParallel` and
    others that keep it as `module`.

    >>> gates_of(nn.Linear(2, 2)) is None
    True
    """
    inside: nn.Module | None = model
    while inside is not None and "context_gates" not in inside.__dict__:
        inside = _wrapped(inside)
    return None if inside is None else inside.__dict__["context_gates"]


def _wrapped(model: nn.Module) -> nn.Module | None:
    """The model inside a wrapper; None if this is not one."""
    # The children themselves are asked: models of transformers have a property base_model, which is
    # a part of them.
    names = (
        "module",
        "_orig_mod",
        "base_model",
        *(("model",) if is_peft(model, "BaseTuner") else ()),
    )
    return next((inner for name in names if (inner := model._modules.get(name)) is not None), None)
