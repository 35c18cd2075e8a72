"""Principle 2, obstruction: the update of a parameter is scaled by its availability (eqs. gradientspecific, n-mu).

theta <- lerp(theta before the step, theta after it, A). It is the update that is scaled and not the
gradient: Adam would divide a scaled gradient by its own scale again, and momentum or weight decay
would move a frozen weight. It is done by step hooks on the user's own optimizer, so that whatever
drives that optimizer sees the one it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..anatomy.kinds import own_parameters, spread
from ..anatomy.sites import Site, matching
from ..gating.gates import Gates
from ..gating.growth import grow_memory, pad_gradient
from . import rule as availability
from .ledgers import Measure, ParameterLedger, UnitLedger
from .observers import Relevance, observer
from .relevance import parameter_gradient
from .rule import Rate, Rule

__all__ = ["Obstruction", "Rules", "View", "check_gradients", "obstruct", "obstruction_of"]

View = Literal["unit", "parameter"]
REFUSED = {
    torch.optim.LBFGS: "it moves several times in one step, along directions it remembers",
    torch.optim.SparseAdam: "it takes sparse gradients only, and gates have dense ones",
}


def obstruct(
    optimizer: Optimizer | Sequence[Optimizer],
    gates: Gates,
    *,
    per: View = "unit",
    rate: Rate | Mapping[str, Rate] = 0.01,
    epsilon: float = 0.0,
    floor: float = 0.0,
    rule: Callable[[Tensor, Tensor], Tensor] | None = None,
    relevance: Relevance | Measure = "gradient",
    apply: Literal["step", "switch"] = "switch",
    scale: Literal["update", "gradient"] = "update",
    head: bool = False,
    frozen: str | Sequence[str] = (),
    bias_apart: bool = False,
    first_rate: float | None = None,
) -> Obstruction:
    """Scale every update of the optimizer by availability from now on; your training loop stays as it is.

    Args:
        optimizer: any torch optimizer built after `attach`, or several that share one backward
            pass.
        gates: what `attach` returned.
        per: "unit" (n-GateON) or "parameter" (p-GateON).
        rate: eta_A; one number, a pair of rates for falling and for rising, or a mapping from
            patterns of site names to these, the first that matches.
        epsilon: relevance below it unfreezes.
        floor: least availability.
        rule: A function of your own in place of the equation: of A and of relevances with mean one,
            it returns the new A. See `gateon.availability.Rule`.
        relevance: how the relevance of units is measured; parameters always use the gradient. Or a
            function of your own: per unit, of dL/dx and x of a site, both (samples, units,
            positions), to the relevance of each unit; per parameter, of dL/dtheta and theta, to one
            of each.
        apply: "step" uses the running availability at once, as the equations do; "switch" that of
            the last switch of context.
        scale: "update", or "gradient" as in the released code, where Adam undoes most of it.
        head: obstruct the output layers too.
        frozen: patterns of names of parameters that do not move at all, as at availability 0; gates
            are not among them. Nor do biases right in front of a `ContextNorm` ever move, which
            takes them away again.
        bias_apart: normalise biases apart from weights, as the released code does.
        first_rate: eta_A in context 0, where it is another: a short first task freezes too little
            otherwise.

    Returns:
        A handle with the availabilities; `remove()` makes the optimizer plain again.

    >>> import gateon
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> gates = gateon.attach(model, contexts=2, density=0.5)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> handle = obstruct(optimizer, gates, per="unit", rate=0.1, apply="step")
    >>> model(torch.ones(3, 4)).square().sum().backward(); optimizer.step(); optimizer.zero_grad()
    >>> handle.availability["0"].min() < 1
    tensor(True)
    """
    _check(
        isinstance(gates, Gates),
        f"gates is what attach() returned, or gateon.gates_of(model), not {type(gates).__name__}.",
    )
    _check(
        not gates.listeners,
        "These gates are obstructed already: handle.follow(optimizer) moves to another optimizer, remove() ends it.",
    )
    optimizers = _checked(optimizer, gates)
    patterns = (frozen,) if isinstance(frozen, str) else tuple(frozen)
    handle = Obstruction(
        gates,
        Rules(
            per,
            rate,
            epsilon,
            floor,
            relevance,
            apply,
            scale,
            head,
            patterns,
            bias_apart,
            first_rate,
            rule,
        ),
    )
    handle.follow(optimizers)
    return handle


def obstruction_of(gates: Gates) -> Obstruction | None:
    """What scales the updates of a model with these gates; None where nothing does."""
    return next(
        (listener for listener in gates.listeners if isinstance(listener, Obstruction)), None
    )


@dataclass(frozen=True)
class Rules:
    """The arguments of `obstruct`."""

    per: View
    rate: Rate | Mapping[str, Rate]
    epsilon: float
    floor: float
    relevance: Relevance | Measure
    apply: Literal["step", "switch"]
    scale: Literal["update", "gradient"]
    head: bool
    frozen: tuple[str, ...]
    bias_apart: bool
    first_rate: float | None = None
    rule: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        _check(
            self.per in ("unit", "parameter"), f'per is "unit" or "parameter", not {self.per!r}.'
        )
        _check(
            0 <= self.epsilon < float("inf"),
            f"epsilon is at least 0 and finite, not {self.epsilon}.",
        )
        _check(0 <= self.floor <= 1, f"floor is between 0 and 1, not {self.floor}.")
        _check(
            self.apply in ("step", "switch"), f'apply is "step" or "switch", not {self.apply!r}.'
        )
        _check(
            self.scale in ("update", "gradient"),
            f'scale is "update" or "gradient", not {self.scale!r}.',
        )
        first = self.first_rate
        _check(
            first is None or 0 <= first < float("inf"),
            f"first_rate is at least 0 and finite, not {first}.",
        )
        known = ("gradient", "activity", "next-layer", "next-layer-gated")
        _check(
            callable(self.relevance) or self.relevance in known,
            f"relevance is one of {', '.join(known)}, not {self.relevance!r}.",
        )


class Obstruction:
    """What `obstruct` returns: the availabilities, and the hooks that apply them."""

    def __init__(self, gates: Gates, rules: Rules) -> None:
        self.gates, self.rules = gates, rules
        self.steps = 0
        self.units: list[UnitLedger] = []
        self.layers: list[ParameterLedger] = []
        self.optimizers: list[Optimizer] = []
        self._owners: dict[nn.Parameter, list[UnitLedger | ParameterLedger]] = {}
        self._frozen: set[nn.Parameter] = set()
        self._rates = _rates(rules.rate, gates)
        self._gate_weights = {gate.weight for gate in gates.gates.values()}
        self._scales: dict[
            nn.Parameter, Tensor
        ] = {}  # in the step under way: what is scaled, and by how much
        self._rows: dict[
            nn.Parameter, Tensor
        ] = {}  # in the step under way: gates of several contexts, and which of them may move
        self._contexts = [gates.learning_rows]  # those learned since the last step
        self._before: dict[nn.Parameter, Tensor] = {}
        self._measured: list[UnitLedger | ParameterLedger] = []
        self._stepped: list[Optimizer] = []
        self._hooks: list[Any] = []
        self._exact_only = False
        self.take_on()
        self._freeze()
        self._set_rates()
        _check(
            bool(self._owners) or bool(self._frozen),
            "Nothing in this model has an availability, as it has output layers only: pass head=True to obstruct them.",
        )
        try:
            self._observe()
        except ValueError:
            self.remove()  # what was being observed already
            raise
        gates.listeners.append(self)

    @property
    def availability(self) -> dict[str, Tensor]:
        """Running A: {site: (units,)} per unit, {parameter: like it} per parameter and for what belongs to no single unit."""
        return {name: running for ledger in self.ledgers() for name, running, _ in ledger.entries()}

    @property
    def applied(self) -> dict[str, Tensor]:
        """The A that scales updates now: the running one, or that of the last switch."""
        return {name: applied for ledger in self.ledgers() for name, _, applied in ledger.entries()}

    def room(self, site: Site) -> Tensor | None:
        """How available each unit of a site is: its A, or the mean over the parameters it reads by; None if not known."""
        for ledger in self.ledgers():
            if ledger.site.name != site.name:
                continue
            if isinstance(ledger, UnitLedger):
                return ledger.running
            for parameter, name in ledger.names.items():
                module, _, part = name.rpartition(".")
                shaped = spread(
                    self.gates.model.get_submodule(module), part, torch.ones(site.units)
                )
                if parameter.dim() > 1 and shaped is not None and shaped.numel() == site.units:
                    return (
                        ledger.running[parameter]
                        .movedim(shaped.shape.index(site.units), 0)
                        .flatten(1)
                        .mean(1)
                    )
        return None

    def saturation(self, threshold: float = 0.05) -> dict[str, tuple[float, float]]:
        """By site: the share of its units or parameters below the threshold, and the room left (mean availability)."""
        parts: dict[str, list[Tensor]] = {}
        for ledger in self.ledgers():
            parts.setdefault(ledger.site.name, []).extend(
                A.flatten() for _, A, _ in ledger.entries()
            )
        joined = {name: torch.cat(tensors) for name, tensors in parts.items()}
        return {
            name: (availability.saturation(A, threshold), availability.room(A))
            for name, A in joined.items()
        }

    def follow(self, optimizer: Optimizer | Sequence[Optimizer]) -> None:
        """Scale the updates of this optimizer from now on instead of the one before; availabilities stay as they are."""
        optimizers = _checked(optimizer, self.gates)
        decays = any(group.get("weight_decay") for one in optimizers for group in one.param_groups)
        _check(
            not (self._exact_only and decays),
            "Weight decay would also move the units that are left out of a sub-network: set it to 0, or train the whole model.",
        )
        self.optimizers = optimizers
        self.take_on()
        self.gates.orphaned = False
        self._begin_step()
        self._release()
        for one in self.optimizers:
            self._hooks.append(one.register_step_pre_hook(self._before_step))
            self._hooks.append(one.register_step_post_hook(self._after_step))

    def keep_exact(self) -> None:
        """Follow no optimizer with weight decay from now on: this is the availability of a sub-network."""
        self._exact_only = True

    def remove(self) -> None:
        """Stop scaling and observing: the optimizer is plain again."""
        self._release()
        for ledger in self.units:
            if ledger.observer is not None:
                ledger.observer.remove()
        if self in self.gates.listeners:
            self.gates.listeners.remove(self)

    def state_dict(self) -> dict[str, Tensor]:
        """Running and applied availabilities, the steps in all and since the last switch, and the context, as tensors."""
        advances = torch.tensor([count for ledger in self.ledgers() for count in ledger.advances])
        state = {
            "steps": torch.tensor(self.steps),
            "advances": advances,
            "context": self.gates.learning_rows.clone(),
        }
        for ledger in self.ledgers():
            for name, running, applied in ledger.entries():
                state |= {f"{name}:running": running.clone(), f"{name}:applied": applied.clone()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state_dict` gave, and the context it was given in; nothing is changed if it does not fit.

        Before or after the gates are switched to that context: the applied availabilities are those
        of the state either way.
        """
        self.take_on()
        mine = self.state_dict()
        state = self._as_now(state)
        for key in (mine | dict(state)).keys() - {"context"}:
            fits = (
                key in mine
                and key in state
                and mine[key].shape == state[key].shape
                and mine[key].dtype == state[key].dtype
            )
            _check(
                fits,
                f"These availabilities are of another model or view: {key!r} is missing, unknown or of another shape or dtype.",
            )
        for ledger in self.ledgers():
            for name, running, applied in ledger.entries():
                running.copy_(state[f"{name}:running"])
                applied.copy_(state[f"{name}:applied"])
            ledger.mark_plastic()
        advances = iter(state["advances"].tolist())
        for ledger in self.ledgers():
            ledger.advances = [next(advances) for _ in ledger.advances]
        self.steps = int(state["steps"])
        self.gates.resume(state["context"])
        self._begin_step()
        self._set_rates()

    def _as_now(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Older states have no context, and one number of advances for all parameters of a layer."""
        now, advances = {"context": self.gates.learning_rows} | dict(state), state.get("advances")
        if advances is not None and advances.shape == (len(self.ledgers()),):
            per_ledger = zip(self.ledgers(), advances.tolist(), strict=True)
            now["advances"] = torch.tensor(
                [count for ledger, count in per_ledger for _ in ledger.advances]
            )
        return now

    # Building.

    def take_on(self) -> None:
        """Give every parameter of the sites to a ledger: of its units, or, per parameter and where it has none, of its layer.

        Called again it finds those that were added since, as the output layers of new tasks are.
        """
        model, rules, at_once = self.gates.model, self.rules, self.rules.apply == "step"
        known, relevance = set(self._owners), rules.relevance
        measure = (
            relevance if rules.per == "parameter" and callable(relevance) else parameter_gradient
        )
        names = {p: name for name, p in model.named_parameters()}
        observed = self.gates.taps
        for site in self.gates.sites.values():
            modules = [model.get_submodule(name) for name in site.owns]
            if site.fixed:  # what still has a gradient there are adapters
                self._frozen.update(
                    p
                    for module in modules
                    for _, p in own_parameters(module)
                    if not p.requires_grad
                )
            if site.head and not rules.head:
                continue
            units = next((ledger for ledger in self.units if ledger.site.name == site.name), None)
            units = units or UnitLedger(
                site, self._rule(site), at_once=at_once, like=next(model.parameters())
            )
            for module in modules:
                own = {
                    name: p
                    for name, p in own_parameters(module)
                    if not site.fixed or p.requires_grad
                }
                layer = next(
                    (
                        ledger
                        for ledger in self.layers
                        if known.intersection(own.values(), ledger.names)
                    ),
                    None,
                )
                for name, parameter in own.items():
                    if parameter in known:
                        continue
                    if (
                        rules.per == "unit"
                        and site.name in observed
                        and units.add(parameter, module, name)
                    ):
                        self._owners.setdefault(parameter, []).append(units)
                    elif not any(parameter in other.names for other in self.layers):
                        if layer is None or rules.bias_apart:
                            layer = ParameterLedger(
                                site, self._rule(site), at_once=at_once, measure=measure
                            )
                        layer.add(parameter, names[parameter])
                        self._owners.setdefault(parameter, []).append(layer)
                        if rules.bias_apart:
                            self.layers.append(layer)
                if layer is not None and layer not in self.layers:
                    self.layers.append(layer)
            if units.owned and units not in self.units:
                self.units.append(units)

    def _freeze(self) -> None:
        """Hold the availability of the parameters that match at 0, and of biases that a norm takes away again.

        Those have no gradient but rounding errors, of which Adam makes whole steps; the means that
        other contexts have stored would no longer fit.
        """
        for layer in (
            self.gates.model.get_submodule(site.name)
            for site in self.gates.sites.values()
            if site.centred
        ):
            if isinstance(bias := getattr(layer, "bias", None), nn.Parameter):
                self._frozen.add(bias)
        named = {
            n: p
            for n, p in self.gates.model.named_parameters(remove_duplicate=False)
            if p not in self._gate_weights
        }
        for pattern in self.rules.frozen:
            self._frozen.update(named[name] for name in matching(pattern, named, "parameter"))

    def _set_rates(self) -> None:
        """Give every ledger the rule of its site in the context at hand."""
        for ledger in self.ledgers():
            ledger.rule = self._rule(ledger.site)

    def _rule(self, site: Site) -> Rule:
        """The first context may have a rate of its own; a site at rate 0 stays there."""
        (fall, rise), first, rules = self._rates[site.name], self.rules.first_rate, self.rules
        if first is not None and self.gates.is_first and fall > 0:
            fall = rise = first
        return Rule(fall, rise, rules.epsilon, rules.floor, rules.rule)

    def _observe(self) -> None:
        """Begin to watch the relevance of units."""
        for ledger in self.units:
            fall, rise = self._rates[ledger.site.name]
            if (
                fall > 0 or rise > 0 or self.rules.rule is not None
            ):  # the rate of the first context may be 0
                ledger.observer = observer(
                    self.gates, ledger.site, self.rules.relevance, ledger.owned
                )

    # What the gates tell.

    def switched(self) -> None:
        """Another context: with apply="switch" the availabilities of now take effect."""
        for ledger in self.ledgers():
            ledger.snapshot()
        self._set_rates()
        self._contexts.append(self.gates.learning_rows)

    def context_added(self) -> None:
        """Every gate has one more row: so must what the optimizers remember of it."""
        for gate in self.gates.gates.values():
            assert gate.weight is not None
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    if any(p is gate.weight for p in group["params"]):
                        grow_memory(optimizer.state.get(gate.weight, {}), len(gate.weight), group)

    # One step.

    @torch.no_grad()
    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        args, kwargs = _evaluated(args, kwargs)
        if _overflowed(optimizer):
            return args, kwargs
        if optimizer in self._stepped:  # it steps again before the others did
            self._finish()
        # several optimizers share one backward pass: it is read before the first of them moves
        # anything
        if not self._stepped:
            self._measure()
        moving = [
            p for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        gates = [p for p in moving if p in self._gate_weights and p.shape[0] > 1]
        for weight in gates:
            pad_gradient(weight)
        self._scales = {p: self._scale_of(p) for p in moving if not self._is_plastic(p)}
        self._rows = {weight: self._taking_part(weight) for weight in gates}
        if self.rules.scale == "gradient":
            for parameter, A in self._scales.items():
                assert parameter.grad is not None
                parameter.grad.mul_(A)
            self._scales.clear()
        for parameter in (*self._scales, *self._rows):
            self._remember(parameter)
        return args, kwargs

    @torch.no_grad()
    def _after_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if _overflowed(optimizer):
            return
        for parameter, A in self._scales.items():
            torch.lerp(self._before[parameter], parameter, A, out=parameter)
        for (
            weight,
            rows,
        ) in self._rows.items():  # momentum and decay must not move contexts that took no part
            torch.where(rows, weight, self._before[weight], out=weight)
        self._stepped.append(optimizer)
        if len(self._stepped) == len(self.optimizers):
            self._finish()

    def _begin_step(self) -> None:
        """Forget which contexts took part in the step before."""
        self._contexts = [self.gates.learning_rows]
        self.gates.passed.clear()

    def _taking_part(self, weight: nn.Parameter) -> Tensor:
        """Which rows of a gate the step under way may move, (contexts, 1).

        Those of the contexts in which the model was run since the last step. The gradient alone
        does not tell: it may be zero in the context being learned, and decay may have been added to
        it. It only decides between several contexts, or where forward passes cannot be noted (a
        compiled model): then the contexts switched to since the last step are candidates.
        """
        assert weight.grad is not None
        rows = torch.zeros(len(weight), 1, dtype=torch.bool, device=weight.device)
        passed = self.gates.passed
        rows[list(passed) or torch.cat([learned.reshape(-1) for learned in self._contexts])] = True
        sure = len(passed) == 1 or (not passed and len(self._contexts) == 1)
        return rows if sure else rows & weight.grad.any(1, keepdim=True)

    def _measure(self) -> None:
        sums = {}
        for ledger in self.ledgers():
            ledger.to(next(iter(self._owners)).device)
            if (measured := ledger.measure()) is not None:
                sums[ledger] = measured
        told = {
            p
            for layer in self.layers
            if layer in sums and not layer.rule.is_still
            for p in layer.names
        }
        moving = (
            p for one in self.optimizers for group in one.param_groups for p in group["params"]
        )
        check_gradients([p for p in moving if p not in told], self.steps)
        totals = torch.stack(list(sums.values())).tolist() if sums else []
        for ledger, total in zip(sums, totals, strict=True):
            if not total < float("inf"):
                raise FloatingPointError(
                    f"The relevance at site {ledger.site.name!r} is not finite in step {self.steps}: a loss or gradient is not. "
                    "Nothing was changed: lower the learning rate, or leave such a batch out."
                )
        advanced = {
            ledger: ledger.advance(total) for ledger, total in zip(sums, totals, strict=True)
        }
        self._measured = [ledger for ledger, moved in advanced.items() if moved]

    def _finish(self) -> None:
        for ledger in self._measured:
            ledger.stepped()
        self._measured.clear()
        self._stepped.clear()
        self._begin_step()
        self.steps += 1

    def _is_plastic(self, parameter: nn.Parameter) -> bool:
        return parameter not in self._frozen and all(
            o.is_plastic(parameter) for o in self._owners.get(parameter, ())
        )

    def scale_of(self, parameter: nn.Parameter) -> Tensor | None:
        """What scales the updates of a parameter, shaped to multiply it; None if it has no availability."""
        return (
            self._scale_of(parameter)
            if parameter in self._frozen or parameter in self._owners
            else None
        )

    def _scale_of(self, parameter: nn.Parameter) -> Tensor:
        """The availability of a parameter, the smallest where it is owned more than once."""
        if parameter in self._frozen:
            return torch.zeros((), device=parameter.device, dtype=parameter.dtype)
        smallest = reduce(
            torch.minimum, [owner.scale_of(parameter) for owner in self._owners[parameter]]
        )
        return smallest if smallest.dtype == parameter.dtype else smallest.to(parameter.dtype)

    def _remember(self, parameter: nn.Parameter) -> None:
        kept = self._before.get(parameter)
        if kept is None or (kept.shape, kept.device, kept.dtype) != (
            parameter.shape,
            parameter.device,
            parameter.dtype,
        ):
            self._before[parameter] = parameter.detach().clone()
        else:
            kept.copy_(parameter)

    def ledgers(self) -> list[UnitLedger | ParameterLedger]:
        """Every ledger: of units, then of parameters."""
        return [*self.units, *self.layers]

    def _release(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._stepped.clear()


def _checked(optimizer: Optimizer | Sequence[Optimizer], gates: Gates) -> list[Optimizer]:
    """The optimizers as a list, if they can be obstructed."""
    optimizers = (
        [optimizer]
        if isinstance(optimizer, Optimizer)
        else list(optimizer)
        if isinstance(optimizer, Sequence)
        else []
    )
    _check(
        bool(optimizers) and all(isinstance(one, Optimizer) for one in optimizers),
        f"{type(optimizer).__name__} is no optimizer and no list of them: give one of torch.optim, built from model.parameters().",
    )
    _check(
        len({id(one) for one in optimizers}) == len(optimizers),
        "An optimizer is in the list twice: name each once.",
    )
    for name, gate in gates.gates.items():
        _check(
            gate.off or gate.weight is None or gate.weight.requires_grad,
            f"The gate of site {name!r} cannot learn, as its requires_grad is False: call "
            "get_peft_model, which freezes what it finds, before attach; without PEFT, turn the "
            "gradient on before you build the optimizer.",
        )
    known = {p: name for name, p in gates.model.named_parameters()}
    sharded = next((name for p, name in known.items() if hasattr(p, "full_tensor")), None)
    _check(
        sharded is None,
        f"Parameter {sharded!r} is sharded (a DTensor, as fully_shard makes them), and availability needs whole parameters: "
        "use DistributedDataParallel.",
    )
    held = set()
    for one in optimizers:
        for kind, reason in REFUSED.items():
            _check(
                not isinstance(one, kind),
                f"{kind.__name__} cannot be obstructed: {reason}. Use SGD, Adam or another optimizer.",
            )
        for n, group in enumerate(one.param_groups):
            for p in group["params"]:
                held.add(p)
                _check(
                    p in known,
                    f"Parameter group {n} of {type(one).__name__} holds a tensor of shape {tuple(p.shape)} that is no parameter "
                    "of the model (is it a copy?): build the optimizer from model.parameters(), after attach.",
                )
    for name, gate in gates.gates.items():
        if gate.weight is not None and gate.weight.requires_grad:
            _check(
                gate.weight in held,
                f"The optimizer does not hold the gate of site {name!r}: build it after attach.",
            )
    return optimizers


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _rates(rate: Rate | Mapping[str, Rate], gates: Gates) -> dict[str, tuple[float, float]]:
    """The rates of falling and of rising by site."""
    if isinstance(rate, Mapping):
        by_pattern = reversed(list(rate.items()))
        rates = {
            name: _pair(r)
            for pattern, r in by_pattern
            for name in matching(pattern, gates.sites, "site")
        }
        missing = next((name for name in gates.sites if name not in rates), None)
        _check(
            missing is None,
            f'rate says nothing of site {missing!r}: add a pattern for it, such as "*".',
        )
    else:
        rates = dict.fromkeys(gates.sites, _pair(rate))
    for name, pair in rates.items():
        for value in pair:
            _check(
                0 <= value < float("inf"),
                f"The rate of site {name!r} is {value}: choose one of at least 0.",
            )
    return rates


def _pair(rate: Rate) -> tuple[float, float]:
    if isinstance(rate, tuple | list):
        _check(
            len(rate) == 2, f"rate must be a number, or a pair for falling and rising, got {rate}."
        )
        return float(rate[0]), float(rate[1])
    return float(rate), float(rate)


def _evaluated(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Run a closure now, so that its gradients can be read, and give the optimizer its result in its place."""
    closure = kwargs.get("closure") if "closure" in kwargs else args[1] if len(args) > 1 else None
    if closure is None:
        return args, kwargs
    with torch.enable_grad():
        loss = closure()
    replaced = {k: v for k, v in kwargs.items() if k != "closure"} | {"closure": lambda: loss}
    return args[:1], replaced


def check_gradients(parameters: Iterable[Tensor], step: int) -> None:
    """Raise FloatingPointError before anything moves if a gradient is not finite, though the loss is."""
    gradients = [
        p.grad.to_dense() if p.grad.is_sparse else p.grad for p in parameters if p.grad is not None
    ]
    largest = torch._foreach_norm([g for g in gradients if g.numel()], float("inf"))
    if largest and not torch.stack([size.to(largest[0]) for size in largest]).isfinite().all():
        raise FloatingPointError(
            f"A gradient is not finite in step {step}: a number in the batch or in the network is too large, or none. "
            "Nothing was changed: lower the learning rate, or leave such a batch out."
        )


def _overflowed(optimizer: Optimizer) -> bool:
    """Whether a GradScaler tells a fused optimizer that this step is to be skipped."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)
