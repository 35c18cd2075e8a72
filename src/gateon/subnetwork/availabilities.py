"""The availabilities of a sub-network: cut from those of the whole, and put back."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..availability.firing_rate import firing_rate_of
from ..availability.ledgers import ParameterLedger, UnitLedger
from ..availability.observers import Tapped
from ..availability.obstruct import Obstruction, Rules
from ..gating.gates import gates_of
from .cut import Cut

__all__ = ["Availabilities", "grow"]


class Availabilities:
    """Keeps the availabilities of a sub-network while it is at work.

    Args:
        whole: those of the whole network.
    """

    def __init__(self, whole: Obstruction) -> None:
        self.whole = whole

    def take(self, cut: Cut, network: nn.Module) -> None:
        """Copy those inside the cut."""
        self.cut, self.part = cut, _taken(self.whole, cut, network)

    def follow(self, optimizer: Optimizer) -> None:
        """Obstruct the optimizer of the sub-network."""
        self.part.follow(optimizer)

    def renew(self) -> None:
        """Do nothing: the end of a task changes no availability."""

    def put_back(self) -> None:
        """Write them back; those left out have grown meanwhile."""
        _put_back(self.whole, self.cut, self.part)


def _taken(whole: Obstruction, cut: Cut, small: nn.Module) -> Obstruction:
    """The availabilities of a sub-network; relevance is still normalised over the whole layer.

    While the whole is learning another context, they are what they will be after a switch to this
    one.
    """
    if firing_rate_of(whole.rules.relevance) is not None:
        raise ValueError(
            "Firing rates fade also in units outside a sub-network, so that training one would not "
            "be exact: train the whole model, or fold the sub-network."
        )
    whole.take_on()
    gates = gates_of(small)
    assert gates is not None
    part = Obstruction(gates, whole.rules)
    part.pace = whole.pace
    switches = whole.gates.learning != cut.context
    for full, mine in zip(whole.ledgers(), part.ledgers(), strict=True):
        mine.advances = [0 if switches else count for count in full.advances]
        if isinstance(mine, ParameterLedger) and isinstance(full, ParameterLedger):
            mine.whole = dict(zip(mine.names, full.whole.values(), strict=True))
        elif isinstance(mine, UnitLedger) and isinstance(full, UnitLedger):
            mine.whole = full.whole
            if (
                isinstance(mine.observer, Tapped)
                and isinstance(full.observer, Tapped)
                and mine.observer.readers
            ):
                # Units left out of the next layer are read too, by weights that stay as they are.
                of_all = _part_of_ledger(cut, full, "").take("", full.observer.outgoing())
                mine.observer.rest = of_all - mine.observer.outgoing()
        for (name, *tensors), (_, *parts) in zip(full.entries(), mine.entries(), strict=True):
            for tensor, target in zip(tensors, parts, strict=True):
                target.copy_(_part_of_ledger(cut, full, name).take(name, tensor))
        if switches:
            mine.snapshot()
        mine.take_stock()
        tables = (running if switches else applied for _, running, applied in full.entries())
        mine.room = sum(A.sum().item() for A in tables)
    part.keep_exact()
    return part


@torch.no_grad()
def _put_back(whole: Obstruction, cut: Cut, part: Obstruction) -> None:
    """Write availabilities back; what was left out has grown by (1 + rate epsilon)^steps.

    It was irrelevant all the while. However often this is called on the way, the result is the
    same to the bit: a parameter grows from what it was at the switch, a unit step by step.
    """
    for full, mine in zip(whole.ledgers(), part.ledgers(), strict=True):
        advances = zip(full.advances, mine.advances, strict=True)
        for (name, running, applied), (_, now, _), (before, after) in zip(
            full.entries(), mine.entries(), advances, strict=True
        ):
            grow(running, applied, full, before, after, whole.rules)
            _part_of_ledger(cut, full, name).put(name, running, now)
            if whole.rules.apply == "step":
                applied.copy_(running)
        full.advances = list(mine.advances)
        full.take_stock()
    whole.steps += part.steps
    part.steps = 0


def grow(
    running: Tensor,
    applied: Tensor,
    ledger: UnitLedger | ParameterLedger,
    before: int,
    after: int,
    rules: Rules,
) -> None:
    """Let availabilities grow by steps without relevance, in place.

    Args:
        running: A, or a part of it.
        applied: the A of the last switch, in the same places.
        ledger: whose they are.
        before: how often the ledger had moved since the switch when `running` was up to date.
        after: how often it has by now.
        rules: of the obstruction.
    """
    if isinstance(ledger, ParameterLedger) and rules.apply == "switch":
        running.copy_(applied)
        ledger.rule.idle(running, after)
    else:
        for _ in range(after - before):
            ledger.rule.idle(running, 1)


def _part_of_ledger(cut: Cut, ledger: UnitLedger | ParameterLedger, name: str) -> Cut:
    """The cut of an availability: that of the parameter, or that of the units of the site."""
    if isinstance(ledger, ParameterLedger):
        return cut
    indices = cut.active.get(ledger.site.name)
    return Cut(cut.context, {}, {} if indices is None else {name: {0: indices}})
