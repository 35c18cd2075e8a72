"""Principle 1, gated context selectivity: all gates of a model, and how it comes by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..anatomy.adapters import has_adapters, is_peft
from ..anatomy.kinds import is_layer, own_parameters, unit_dim
from ..anatomy.norm import ContextNorm
from ..anatomy.sites import Site, find_sites, matching
from .gate import Gate
from .growth import mark_grown, pad_gradient

__all__ = ["Gates", "attach", "gates_of"]

BEHIND, IN_FRONT, TAP, TAP_IN_FRONT = (
    "context_gate",
    "context_gate_in_front",
    "context_tap",
    "context_tap_in_front",
)


class Listener(Protocol):
    """Who must know when the context changes: obstruction does."""

    def switched(self) -> None:
        """Another context is active."""

    def context_added(self) -> None:
        """Every gate has one more row."""

    def remove(self) -> None:
        """The gates are going."""


class Gates:
    """All gates of a model: which context they are switched to, what their gains are.

    Made by `attach`; `gates_of(model)` finds it again. It holds no parameters of its own: those are
    in the model.
    """

    def __init__(
        self,
        model: nn.Module,
        sites: list[Site],
        rows: Callable[[int, Site, int, Tensor | None], Tensor],
    ) -> None:
        self.model, self.sites = model, {site.name: site for site in sites}
        self.context: int | Tensor = 0
        # the context switched to; `context` may be one that is only shown
        self._learning = torch.tensor(0)
        self.listeners: list[Listener] = []
        # contexts of forward passes with gradients since the last step
        self.passed: set[int] = set()
        self.orphaned = False
        self.prefers: Callable[[Site], Tensor | None] | None = (
            None  # how likely its units are to be open at first
        )
        self.arguments: dict[str, Any] = {}  # of `attach`, that a file can hold
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
        self._rows = rows
        self._nesting = [
            m
            for m in model.modules()
            if isinstance(m, nn.TransformerEncoder) and m.use_nested_tensor
        ]

    @property
    def contexts(self) -> int:
        """How many there are."""
        gate = next(iter(self.gates.values()))
        return 0 if gate.weight is None else len(gate.weight)

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
        """By site, the module that observes its relevance: the gate, unless that sits elsewhere or there is none."""
        found = {m.site.name: m for m in self.model.modules() if isinstance(m, Gate)}
        apart = {
            m.site.name: m for m in self.model.modules() if isinstance(m, Gate) and m.weight is None
        }
        return found | apart

    @property
    def is_first(self) -> bool:
        """Whether it is context 0, and no other, that is being learned."""
        return bool((self._learning == 0).all())

    @property
    def learning(self) -> int | None:
        """The context being learned, which need not be the one that is shown; None where it differs from sample to sample."""
        return int(self._learning) if self._learning.dim() == 0 else None

    @property
    def learning_rows(self) -> Tensor:
        """The same as indices: one, or one for each sample."""
        return self._learning

    def switch(self, context: int | Sequence[int] | Tensor) -> None:
        """Make a context active: one index for all samples, or one for each sample of the next batches."""
        rows = self._checked(context)
        before, self._learning = self._learning, rows
        self._set(rows)
        if not torch.equal(before, rows):
            for listener in self.listeners:
                listener.switched()

    def resume(self, context: int | Sequence[int] | Tensor) -> None:
        """Go on in a context whose learning was interrupted: what listeners keep of it is loaded, so that none is told of a switch.

        The rows of the context may be missing: loading the model brings them, and a sub-network
        needs none but its own.
        """
        self._learning = torch.as_tensor(context, dtype=torch.long).cpu().clone()
        if int(self._learning.max()) < self.contexts:
            self._set(self._learning)

    def show(self, context: int | Sequence[int] | Tensor) -> None:
        """Look at the model in another context, to evaluate it; for learning this is no switch."""
        self._set(self._checked(context))

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
                f"A context is an index, or one index for each sample, not {_brief(context)}."
            )
        low, high = int(rows.min()), int(rows.max())
        if low < 0 or high >= self.contexts:
            raise IndexError(
                f"Context {low if low < 0 else high} does not exist: there are {self.contexts}; add_context() adds one."
            )
        # the caller may use its tensor for the next batch
        return rows.to("cpu", torch.long, copy=True)

    def _set(self, rows: Tensor) -> None:
        self.context = int(rows) if rows.dim() == 0 else rows
        for module in self.model.modules():
            if isinstance(module, Gate):
                like = module.weight if module.weight is not None else module.context
                module.context = rows.reshape(-1).to(like.device)
            elif isinstance(module, ContextNorm):
                module.context = rows.to(module.running_mean.device)

    def gain(self, context: int | None = None) -> dict[str, Tensor]:
        """The gains of a context, by site; of the active one by default."""
        rows = None if context is None else self._checked(context).reshape(-1)
        with torch.no_grad():
            return {name: gate.gain(rows).squeeze(0) for name, gate in self.gates.items()}

    def add_context(self) -> int:
        """One more context, with gates started like the others; returns its index. Also in the middle of training.

        What an optimizer remembers of the gates grows with them.
        """
        new = self.contexts
        for n, gate in enumerate(self.gates.values()):
            assert gate.weight is not None
            likely = None if self.prefers is None else self.prefers(gate.site)
            row = self._rows(n, gate.site, new, likely).to(gate.weight)
            before = gate.weight.data
            # A loss that is still alive holds on to the old shape: only another dtype makes
            # autograd forget it.
            gate.weight.data = before.to(
                torch.float16 if before.dtype == torch.bfloat16 else torch.bfloat16
            )
            gate.weight.data = torch.cat([before, row[None]])
            mark_grown(gate.weight)
            if gate.weight.grad is not None:
                pad_gradient(gate.weight)
        for module in self.model.modules():
            if isinstance(module, ContextNorm):
                module.add_context()
        for listener in self.listeners:
            listener.context_added()
        return self.contexts - 1

    def off(self) -> None:
        """Every gain 1, and gates learn nothing, until `on()`."""
        for gate in self.gates.values():
            gate.off = True

    def on(self) -> None:
        """Gates act again."""
        for gate in self.gates.values():
            gate.off = False

    def detach(self) -> nn.Module:
        """Take every gate out; the model is the one it was before `attach`, with what it has learned."""
        for listener in list(self.listeners):
            listener.remove()
        for module in list(self.model.modules()):
            for hooks in (module._forward_hooks, module._forward_pre_hooks):
                for key, hook in list(hooks.items()):
                    if hook in HOOKS:
                        del hooks[key]
                        module._forward_pre_hooks_with_kwargs.pop(key, None)
            for name in (BEHIND, IN_FRONT, TAP, TAP_IN_FRONT):
                module._modules.pop(name, None)
        for encoder in self._nesting:
            encoder.use_nested_tensor = True
        for parameter in self._fixed:
            parameter.requires_grad_(True)
        self.model.__dict__.pop("context_gates", None)
        return self.model

    def __str__(self) -> str:
        """A table: every site, its units, where its gate sits, what it owns."""
        header = ("site", "units", "gate", "owns")
        rows = [
            (
                s.name or "(model)",
                str(s.units or "-"),
                _where(s),
                ", ".join(o or "(model)" for o in s.owns),
            )
            for s in self.sites.values()
        ]
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(3)]
        lines = [
            "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]])
            for row in [header, *rows]
        ]
        return (
            f"{self.contexts} contexts, {len(self.gates)} gates, switched to {_brief(self.context)}\n"
            + "\n".join(lines)
        )

    def __repr__(self) -> str:
        """The same table."""
        return str(self)

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no listeners: the optimizer's hooks are not copied with it, so that obstruction must be asked for again."""
        return self.__dict__ | {
            "listeners": [],
            "prefers": None,
            "orphaned": self.orphaned or bool(self.listeners),
        }


def attach(
    model: nn.Module,
    contexts: int = 1,
    *,
    density: float | Mapping[str, float] = 0.25,
    start: Literal["random", "open"] | float = "random",
    sites: str | Sequence[str] | Sequence[Site] | Mapping[str, str | Sequence[str]] | None = None,
    head: bool = False,
    example: Any = None,
    power: int = 1,
    width: float = 1.0,
    steepness: float = 1.0,
    shared: str | Sequence[str] = (),
    before_norm: bool = False,
    batch_dim: int = 0,
    seed: int = 0,
) -> Gates:
    """Give a model context gates, in place; build the optimizer afterwards.

    Args:
        model: any module; it keeps its class, its signature and its keys.
        contexts: how many to begin with; `Gates.add_context` adds more at any time.
        density: share of each site's units whose gate starts open; or a mapping from patterns of
            site names to shares. A gate that starts closed (v <= 0) has no slope: its unit stays
            out of that context for good.
        start: "random": |v| uniform in [0, width]. "open": every gain exactly 1, whatever the
            density says (pretrained networks). Since sigma has no slope where it is 1, such gates
            have the gain 1 + tanh(v), between 0 and 2, and v starts at 0. A number: the gain at
            which open gates start, like 0.95.
        sites: None finds every hidden layer; patterns of layer names; a mapping from the module
            behind which a gate goes to the layers it owns; or sites themselves, as
            `gateon.anatomy.encoders` finds.
        head: gate the output layers too.
        example: one batch of input, for models whose layers cannot be followed without data.
        power: the gain is sigma(v) ** power.
        width: of the random start.
        steepness: gains are those of steepness * v: above 1 gates learn faster than the weights
            that share their optimizer.
        shared: patterns of site names where gates start on the same units in every context, for
            features that tasks have in common; elsewhere each context draws its own.
        before_norm: multiply the layer's own output, before norm and activation, as the released
            code does.
        batch_dim: the dimension of activities that counts samples.
        seed: of the random start; the gates of a context do not depend on how many there are.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> print(attach(model, contexts=3, density=0.5))
    3 contexts, 1 gates, switched to 0
    site  units  gate           owns
    0     8      behind 1       0
    2     2      none (output)  2
    """
    if getattr(model, "context_gates", None) is not None or any(
        isinstance(m, Gate) for m in model.modules()
    ):
        raise ValueError(
            "This model has gates already: use gateon.gates_of(model), or detach() them first."
        )
    if not isinstance(contexts, int) or contexts < 1:
        raise ValueError(f"contexts is a number of at least 1, not {contexts!r}.")
    if start not in ("random", "open") and not (isinstance(start, float) and 0 < start < 1):
        raise ValueError(f'start is "random", "open" or a gain between 0 and 1, not {start!r}.')
    if not 0 < width < math.inf or power < 1:
        raise ValueError(
            f"width is above 0 and power at least 1, not {width} and {power}: every gate would start or stay shut or open."
        )
    if not 0 < steepness < math.inf:
        raise ValueError(f"steepness is a positive number, not {steepness}.")
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
        raise ValueError(
            "This model has lazy layers that know their units only after a first forward pass: run one before attach."
        )
    found = find_sites(model, sites, example, head=head)
    if before_norm:
        found = [replace(site, narrows=site.narrows_before_norm) for site in found]
    alike = _matching_gates((shared,) if isinstance(shared, str) else shared, found)
    rows = partial(
        _initial_row,
        shares=_shares(density, found),
        start=start,
        width=width,
        steepness=steepness,
        shared=alike,
        seed=seed,
    )
    made = [
        (site, torch.stack([rows(n, site, k) for k in range(contexts)]))
        for n, site in enumerate(s for s in found if s.gated)
    ]
    observed = [s for s in found if not s.gated and s.place]
    like = next(model.parameters(), torch.empty(0))
    gates = Gates(model, found, rows)
    gates.arguments = {
        "density": density if isinstance(density, float | int) else dict(density),
        "start": start,
        "power": power,
        "width": width,
        "steepness": steepness,
        "shared": shared if isinstance(shared, str) else list(shared),
        "before_norm": before_norm,
        "batch_dim": batch_dim,
        "seed": seed,
    }
    for site, v in made:
        gate = Gate(
            site,
            v.to(like.device, like.dtype),
            power,
            batch_dim,
            around_one=start == "open",
            steepness=steepness,
        )
        if (
            before_norm
            and site.place != site.name
            and sum(is_layer(model.get_submodule(o)) for o in site.owns) == 1
        ):
            layer = model.get_submodule(site.name)
            tap = Gate(site, None, power, batch_dim, silences=(gate,) if site.narrows else ())
            gate.site = replace(site, place=site.name, in_front=False, dim=unit_dim(layer))
            _install(layer, BEHIND, gate, _behind)
            name, hook = (TAP_IN_FRONT, _observe_in_front) if site.in_front else (TAP, _observe)
            _install(model.get_submodule(site.place), name, tap, hook)
        elif site.in_front:
            _install(model.get_submodule(site.place), IN_FRONT, gate, _in_front)
        else:
            _install(model.get_submodule(site.place), BEHIND, gate, _behind)
    for site in observed:
        _install(model.get_submodule(site.place), TAP, Gate(site, None, power, batch_dim), _observe)
    for norm in (m for m in model.modules() if isinstance(m, ContextNorm)):
        while len(norm.running_mean) < contexts:
            norm.add_context()
    for encoder in gates._nesting:
        encoder.use_nested_tensor = False  # a tensor without a shape has no units to gate
    model.register_forward_hook(_check_all_fired)
    model.register_forward_pre_hook(_check_not_orphaned)
    model.register_forward_pre_hook(_note_pass)
    model.__dict__["context_gates"] = gates  # not through __setattr__: it is no submodule
    return gates


def gates_of(model: nn.Module) -> Gates | None:
    """The gates of a model or of the one inside its wrappers, or None; a deep copy of a model has gates of its own.

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
    """The model inside a wrapper; None if this is none."""
    # The children themselves are asked: models of transformers have a property base_model, which is
    # a part of them.
    names = (
        "module",
        "_orig_mod",
        "base_model",
        *(("model",) if is_peft(model, "BaseTuner") else ()),
    )
    return next((inner for name in names if (inner := model._modules.get(name)) is not None), None)


def _initial_row(
    n: int,
    site: Site,
    context: int,
    likely: Tensor | None = None,
    *,
    shares: Mapping[str, float],
    start: Literal["random", "open"] | float,
    width: float,
    steepness: float,
    shared: frozenset[str],
    seed: int,
) -> Tensor:
    """v of one context at the n-th gated site, drawn from a seed of its own, or that of the first context where it is shared."""
    units = site.units
    if site.name in shared:
        context, likely = 0, None
    if start == "open":
        return torch.zeros(units)
    generator = torch.Generator().manual_seed(
        int(np.random.SeedSequence((seed, n, context)).generate_state(1)[0])
    )
    order = torch.randperm(units, generator=generator)
    if (
        likely is not None
    ):  # drawn without replacement in proportion to it: the largest of log p + Gumbel noise
        noise = torch.empty(units).exponential_(generator=generator).log()
        order = (likely.detach().cpu().float().clamp_min(1e-6).log() - noise).argsort(
            descending=True
        )
    is_open = torch.zeros(units, dtype=torch.bool)
    is_open[order[: max(1, round(shares[site.name] * units))]] = True
    size = (
        torch.rand(units, generator=generator) * width
        if start == "random"
        else torch.full((units,), math.atanh(start))
    )
    # an open gate at exactly 0 would be a closed one
    size = size.clamp_min(torch.finfo(torch.float32).tiny)
    return torch.where(is_open, size, -size) / steepness


def _matching_gates(patterns: Sequence[str], sites: list[Site]) -> frozenset[str]:
    gated = [site.name for site in sites if site.gated]
    return frozenset(name for pattern in patterns for name in matching(pattern, gated, "site"))


def _shares(density: float | Mapping[str, float], sites: list[Site]) -> dict[str, float]:
    gated = {site.name: site for site in sites if site.gated}
    if isinstance(density, Mapping):
        shares = {
            name: float(d)
            for pattern, d in reversed(list(density.items()))
            for name in matching(pattern, gated, "site")
        }
        missing = next((name for name in gated if name not in shares), None)
        if missing is not None:
            raise ValueError(
                f'density says nothing of site {missing!r}: add a pattern for it, such as "*".'
            )
    else:
        shares = dict.fromkeys(gated, float(density))
    for name, share in shares.items():
        if not 0 < share <= 1:
            raise ValueError(
                f"density {share} of site {name!r} would open no unit, or more than all: choose one in (0, 1]."
            )
    return shares


def _install(place: nn.Module, name: str, gate: Gate, hook: Callable[..., Any]) -> None:
    gate.train(place.training)
    place.add_module(name, gate)
    if hook in (_in_front, _observe_in_front):
        place.register_forward_pre_hook(hook, with_kwargs=True)
    else:
        place.register_forward_hook(hook)


# The hooks find their gate through the module they are called with, so that copies and replicas of
# a model use their own.


def _behind(module: nn.Module, args: Any, output: Any) -> Any:
    return _on_first_tensor(module._modules[BEHIND], output)


def _observe(module: nn.Module, args: Any, output: Any) -> Any:
    return _on_first_tensor(module._modules[TAP], output)


def _in_front(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return _on_input(module._modules[IN_FRONT], args, kwargs)


def _observe_in_front(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return _on_input(module._modules[TAP_IN_FRONT], args, kwargs)


def _on_input(
    gate: nn.Module | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    assert gate is not None
    if args:
        return (gate(args[0]), *args[1:]), kwargs
    first = next(iter(kwargs))
    return (), kwargs | {first: gate(kwargs[first])}


def _on_first_tensor(gate: nn.Module | None, output: Any) -> Any:
    assert gate is not None
    return (gate(output[0]), *output[1:]) if isinstance(output, tuple) else gate(output)


def _check_all_fired(model: nn.Module, args: Any, output: Any) -> None:
    """After the first forward pass: a gate that did not fire would silently do nothing for ever."""
    if torch.compiler.is_compiling():
        return
    silent = [m.site for m in model.modules() if isinstance(m, Gate) and not m.fired]
    if silent:
        raise RuntimeError(
            f"The gate of site {silent[0].name!r} at {silent[0].place!r} did not act in the first forward pass: that module's "
            "forward is never called; detach() and name another place for it in sites=."
        )
    for key, hook in list(model._forward_hooks.items()):
        if hook is _check_all_fired:
            del model._forward_hooks[key]


def _note_pass(model: nn.Module, args: Any) -> None:
    """Note in which contexts the model is run with gradients: these may be learned in the next step."""
    gates = gates_of(model)
    if gates is None or torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return
    gates.passed.update(
        [gates.context] if isinstance(gates.context, int) else gates.context.tolist()
    )


def _check_not_orphaned(model: nn.Module, args: Any) -> None:
    gates = gates_of(model)
    if gates is not None and gates.orphaned and model.training and torch.is_grad_enabled():
        raise RuntimeError(
            "This model is a copy of one whose updates are obstructed, but an optimizer's hooks are not copied with it: "
            "call gateon.obstruct for the copy, or eval() if it is not to be trained."
        )


HOOKS = (
    _behind,
    _in_front,
    _observe,
    _observe_in_front,
    _check_all_fired,
    _check_not_orphaned,
    _note_pass,
)


def _where(site: Site) -> str:
    if not site.gated:
        return "none (output)" if site.head else f"none ({site.note})"
    place = f"{'in front of' if site.in_front else 'behind'} {site.place}"
    return f"{place} ({site.note})" if site.note else place


def _brief(context: Any) -> str:
    text = repr(context.tolist() if isinstance(context, Tensor) else context)
    return text if len(text) < 60 else text[:57] + "..."
