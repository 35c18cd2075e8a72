"""The availabilities of a model: every ledger, and which parameters belong to which."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import torch
from torch import Tensor, nn

from ..anatomy.adapters import has_adapters
from ..anatomy.composite import own_parameters
from ..anatomy.kinds import is_layer, outputs_per_unit, spread, spread_columns
from ..anatomy.shards import full, is_sharded, piece
from ..anatomy.sites import Site, matching
from ..gating.gates import Gates
from ..gating.hooks import watch_first_pass
from .firing_rate import firing_rate_of
from .ledgers import ParameterLedger, UnitLedger
from .observers import Makers, observer
from .relevance import parameter_fisher, parameter_gradient
from .room import Pace
from .rule import Rule
from .settings import Rules, rates_by_site

__all__ = ["Books", "weight_by_unit"]


class Books:
    """All ledgers of a model.

    Args:
        gates: The gates of the model.
        rules: The arguments of `obstruct`.
    """

    def __init__(self, gates: Gates, rules: Rules) -> None:
        self.gates, self.rules = gates, rules
        self.held = has_adapters(gates.model)  # whether what takes no gradient never will
        self.units: list[UnitLedger] = []
        self.layers: list[ParameterLedger] = []
        self.owners: dict[nn.Parameter, list[UnitLedger | ParameterLedger]] = {}
        self.frozen: set[nn.Parameter] = set()
        # Parameters of which those of closed units rest, with the site and how its units are
        # spread over them.
        self.resting: dict[nn.Parameter, tuple[str, Callable[[Tensor], Tensor | None]]] = {}
        # By site, where its units are open in the contexts asked about last; None: everywhere.
        self._open: dict[str, Tensor | None] = {}
        self._open_in: tuple[int, ...] = ()
        self.gate_weights = {gate.weight for gate in gates.gates.values()}
        self._rates = rates_by_site(rules.rate, gates)
        self.take_on()
        self._freeze()
        self.set_rates()

    def ledgers(self) -> list[UnitLedger | ParameterLedger]:
        """Every ledger: of units, then of parameters."""
        return [*self.units, *self.layers]

    def take_on(self) -> None:
        """Give every parameter of the sites to a ledger, including those added since the last call.

        A parameter belongs to the ledger of its units; per parameter, or where no single unit owns
        it, to the ledger of its layer.
        """
        model, known = self.gates.model, set(self.owners)
        names = {p: name for name, p in model.named_parameters()}
        for site in self.gates.sites.values():
            modules = [model.get_submodule(name) for name in site.owns]
            if site.fixed:  # only adapters still have a gradient there
                own = (p for module in modules for _, p in own_parameters(module))
                self.frozen.update(p for p in own if not p.requires_grad)
            if site.head and not self.rules.head:
                continue
            units = self._unit_ledger(site)
            for module in modules:
                self._take_on_module(site, module, units, known, names)
            for module in (model.get_submodule(name) for name in site.columns):
                self._take_on_module(site, module, units, known, names, columns=True)
            if units.owned and units not in self.units:
                self.units.append(units)

    def _take_on_module(
        self,
        site: Site,
        module: nn.Module,
        units: UnitLedger,
        known: set[nn.Parameter],
        names: dict[nn.Parameter, str],
        *,
        columns: bool = False,
    ) -> None:
        own = {n: p for n, p in own_parameters(module) if not site.fixed or p.requires_grad}
        by_unit = self.rules.per == "unit" and site.name in self.gates.taps
        mine = (one for one in self.layers if known.intersection(own.values(), one.names))
        layer = next(mine, None)
        for name, parameter in own.items():
            if parameter in known:
                continue
            if site.columns:
                shaped = partial(spread_columns if columns else spread, module, name)
                self.resting[parameter] = site.name, shaped
            if by_unit and units.add(parameter, module, name, columns=columns):
                self.owners.setdefault(parameter, []).append(units)
            elif self.held and not parameter.requires_grad:
                continue  # an availability for each number would be as large as the model
            elif not any(parameter in other.names for other in self.layers):
                if layer is None or self.rules.bias_apart:
                    layer = self._new_layer_ledger(site)
                layer.add(parameter, names[parameter])
                self.owners.setdefault(parameter, []).append(layer)

    def _unit_ledger(self, site: Site) -> UnitLedger:
        """The ledger of the site's units, or a new one, which counts once it owns a parameter."""
        found = next((ledger for ledger in self.units if ledger.site.name == site.name), None)
        if found is not None:
            return found
        at_once, every = self.rules.apply == "step", self.gates.model.parameters()
        like = next(p for p in every if p.is_floating_point())
        firing_rate = firing_rate_of(self.rules.relevance)
        return UnitLedger(
            site, self._rule(site), at_once=at_once, like=like, firing_rate=firing_rate
        )

    def _new_layer_ledger(self, site: Site) -> ParameterLedger:
        per_parameter, at_once = self.rules.per == "parameter", self.rules.apply == "step"
        own = self.rules.relevance
        usual = parameter_fisher if own == "fisher" else parameter_gradient
        measure = own if per_parameter and callable(own) else usual
        ledger = ParameterLedger(site, self._rule(site), at_once=at_once, measure=measure)
        self.layers.append(ledger)
        return ledger

    def _freeze(self) -> None:
        """Freeze the parameters that match `frozen`, and biases that a norm subtracts again.

        Such a bias has no gradient but rounding errors, which the scale-free steps of Adam turn
        into full steps; the means stored for other contexts would no longer fit.
        """
        model = self.gates.model
        for site in self.gates.sites.values():
            layers = (model.get_submodule(name) for name in site.owns if site.centred)
            biases = (getattr(layer, "bias", None) for layer in layers if is_layer(layer))
            self.frozen.update(bias for bias in biases if isinstance(bias, nn.Parameter))
        named = {
            name: p
            for name, p in model.named_parameters(remove_duplicate=False)
            if p not in self.gate_weights
        }
        for pattern in self.rules.frozen:
            self.frozen.update(named[name] for name in matching(pattern, named, "parameter"))

    def set_rates(self) -> None:
        """Give every ledger the rule of its site in the current context."""
        for ledger in self.ledgers():
            ledger.rule = self._rule(ledger.site)

    def _rule(self, site: Site) -> Rule:
        """The rule of a site: context 0 may have its own rate, but a rate of 0 stays 0."""
        rates, first, rules = self._rates[site.name], self.rules.first_rate, self.rules
        if rates is None:
            return Rule(1.0, 1.0, floor=rules.floor)  # how much falls, the room decides
        fall, rise = rates
        if first is not None and self.gates.is_first and fall > 0:
            fall = rise = first
        return Rule(fall, rise, rules.epsilon, rules.floor, rules.rule)

    def spend(self, pace: Pace) -> None:
        """Let ledgers that look after their room aim at what is to be left after this step."""
        done = pace.after_step(self.rules.gather_after)
        for ledger in self.ledgers():
            if self._rates[ledger.site.name] is None:
                ledger.spend(pace.share, done)

    def observe(self) -> None:
        """Start observing the relevance of units."""
        for ledger in self.units:
            # Not ledger.rule: the rate of context 0 may be 0, but not that of later ones.
            rates = self._rates[ledger.site.name]
            moves = rates is None or any(rate > 0 for rate in rates)
            if moves or self.rules.rule is not None:
                makers = self._reached_last(ledger)
                ledger.observer = observer(
                    self.gates, ledger.site, self.rules.relevance, makers, ledger.owned
                )
        watch_first_pass(self.gates.model)

    def _reached_last(self, ledger: UnitLedger) -> Makers:
        """Parameters that the backward pass reaches after all that reads the units has been passed.

        Later layers of a stage are reached before: they read what earlier ones have written.
        """
        if not ledger.site.at_readers:
            return ledger.makers
        first = set(self.gates.model.get_submodule(ledger.site.name).parameters())
        kept = {p: place for p, place in ledger.makers.items() if p in first and p.requires_grad}
        return kept or ledger.makers

    def stop_observing(self) -> None:
        """Remove all observers."""
        for ledger in self.units:
            if ledger.observer is not None:
                ledger.observer.remove()

    def is_of_whole_parameters(self) -> bool:
        """Whether `fully_shard` has replaced the parameters since."""
        now = set(self.gates.model.parameters())
        return any(map(is_sharded, now)) and not self.owners.keys() <= now

    def is_plastic(self, parameter: nn.Parameter) -> bool:
        """Whether the updates of a parameter are not scaled at all."""
        owners = self.owners.get(parameter, ())
        return parameter not in self.frozen and all(one.is_plastic(parameter) for one in owners)

    def scale_of(self, parameter: nn.Parameter) -> Tensor:
        """The availability of a parameter, the smallest if several ledgers own it."""
        if parameter in self.frozen:
            return torch.zeros((), device=parameter.device, dtype=parameter.dtype)
        scales = [owner.scale_of(parameter) for owner in self.owners[parameter]]
        smallest = reduce(torch.minimum, scales)
        return smallest if smallest.dtype == parameter.dtype else smallest.to(parameter.dtype)

    def open_part(self, parameter: nn.Parameter, contexts: tuple[int, ...]) -> Tensor | None:
        """1 where a parameter belongs to a unit open in one of the contexts, 0 where it rests.

        None if nothing of it rests.
        """
        if parameter not in self.resting:
            return None
        site, shaped = self.resting[parameter]
        gate = self.gates.gates.get(site)
        if gate is None or gate.off:
            return None
        if contexts != self._open_in:
            self.forget_open()
            self._open_in = contexts
        if site not in self._open:  # a closed unit stays closed, so that asking once will do
            is_open = (gate.gain(torch.tensor(contexts)).detach() > 0).any(0)
            self._open[site] = None if bool(is_open.all()) else is_open.to(parameter.dtype)
        mask = self._open[site]
        part = None if mask is None else shaped(mask)
        return None if part is None else piece(part, parameter)

    def forget_open(self) -> None:
        """Ask again which units are open: gates may have been loaded."""
        self._open.clear()

    def room(self, site: Site) -> Tensor | None:
        """The availability of each unit of a site, or the mean over the weights it reads with."""
        of_layers = []
        for ledger in self.ledgers():
            if ledger.site.name != site.name:
                continue
            if isinstance(ledger, UnitLedger):
                return ledger.running
            found = weight_by_unit(self.gates.model, ledger)
            if found is not None:
                parameter, axis = found
                of_layers.append(full(ledger.running[parameter]).movedim(axis, 0).flatten(1))
        if not of_layers:
            return None
        # The units of a stage are made by several layers; elsewhere the first one counts.
        of_outputs = (torch.cat(of_layers, 1) if site.at_readers else of_layers[0]).mean(1)
        return of_outputs.view(-1, site.units).mean(0)


def weight_by_unit(model: nn.Module, ledger: ParameterLedger) -> tuple[nn.Parameter, int] | None:
    """The weights with which the units of a layer read, and the dimension that counts units.

    None if no weight of the ledger belongs to single units.
    """
    units, multiplied = ledger.site.units, ledger.site.multiplied
    for parameter, name in ledger.names.items():
        module, _, part = name.rpartition(".")
        owner = model.get_submodule(module)
        outputs = units * (outputs_per_unit(owner, units) if multiplied else 1)
        shaped = spread(owner, part, torch.ones(units), multiplied=multiplied)
        if parameter.dim() > 1 and shaped is not None and shaped.numel() == outputs:
            return parameter, shaped.shape.index(outputs)
    return None
