"""Availability and relevance of single units, wherever a ledger keeps them.

Per unit they are numbers of the unit; per parameter, means over the weights it reads with. In a
sub-network the ledger at work has only what is inside, and the rest stands in that of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ..availability.books import weight_by_unit
from ..availability.ledgers import ParameterLedger, UnitLedger
from ..availability.obstruct import Obstruction, Rules
from ..subnetwork.availabilities import grow
from ..subnetwork.cut import Cut

__all__ = ["InPart", "Rows", "rows_of"]


@dataclass(frozen=True)
class Rows:
    """Where the numbers of units are.

    Args:
        ledger: of their site.
        parameter: the weights they read with, if the ledger is one of parameters.
        axis: the dimension of these that counts units.
    """

    ledger: UnitLedger | ParameterLedger
    parameter: nn.Parameter | None = None
    axis: int = 0

    @property
    def numbers(self) -> int:
        """How many there are for each unit."""
        p = self.parameter
        return 1 if p is None else p.numel() // p.shape[self.axis]

    @property
    def advances(self) -> int:
        """How often they have moved since the last switch."""
        if isinstance(self.ledger, UnitLedger):
            return self.ledger.advances[0]
        return self.ledger.advances[[p is self.parameter for p in self.ledger.names].index(True)]

    def running(self, at: Tensor) -> Tensor:
        """A of some units, (units, ...), as a copy."""
        return self._taken(self.ledger.running, at)

    def applied(self, at: Tensor) -> Tensor:
        """The A that scales their updates, (units, ...), as a copy."""
        return self._taken(self.ledger.applied, at)

    def _taken(self, tables: Tensor | dict[nn.Parameter, Tensor], at: Tensor) -> Tensor:
        table = tables if isinstance(tables, Tensor) else tables[self._weight]
        return table.index_select(self.axis, at.to(table.device)).movedim(self.axis, 0)

    def relevance(self, at: Tensor) -> Tensor | None:
        """The sum of normalised mu over the numbers of some units; None if none was measured."""
        if isinstance(self.ledger, UnitLedger):
            found = self.ledger.relevance()
            return None if found is None else found[at.to(found.device)]
        mu = self.ledger.relevance_of(self._weight, self.axis, at.to(self._weight.device))
        return None if mu is None else mu.movedim(self.axis, 0).flatten(1).sum(1)

    def availability(self, at: Tensor) -> Tensor:
        """The mean A of some units."""
        return _mean(self.running(at))

    @property
    def _weight(self) -> nn.Parameter:
        assert self.parameter is not None
        return self.parameter


def rows_of(obstruction: Obstruction, site: str) -> Rows | None:
    """Where the numbers of a site's units are; None if it has no availabilities of its units."""
    for ledger in obstruction.ledgers():
        if ledger.site.name != site:
            continue
        if isinstance(ledger, UnitLedger):
            return Rows(ledger)
        found = weight_by_unit(obstruction.gates.model, ledger)
        if found is not None:
            return Rows(ledger, *found)
    return None


class InPart:
    """The availability of units of the whole while one of its sub-networks is at work.

    Args:
        whole: where they are in the whole network.
        part: its obstruction at work, in the sub-network.
        cut: which part that is.
        rules: of the obstruction.
        units: of the whole layer.
        inside: which of these are in the sub-network.
        at: where they are there.
    """

    def __init__(
        self,
        whole: Rows,
        part: Obstruction,
        cut: Cut,
        rules: Rules,
        units: Tensor,
        inside: Tensor,
        at: Tensor,
    ) -> None:
        self.whole, self.rules, self.inside, self.at = whole, rules, inside.nonzero()[:, 0], at
        ledgers = [one for one in part.ledgers() if one.site.name == whole.ledger.site.name]
        self.columns: Tensor | None = None
        if isinstance(whole.ledger, UnitLedger):
            self.part = Rows(next(one for one in ledgers if isinstance(one, UnitLedger)))
        else:
            name = whole.ledger.names[whole._weight]
            self.part = next(
                Rows(one, p, whole.axis)
                for one in ledgers
                if isinstance(one, ParameterLedger)
                for p, own in one.names.items()
                if own == name
            )
            others = [i for axis, i in cut.slices.get(name, {}).items() if axis != whole.axis]
            self.columns = others[0] if others else None
        # Left out, they only grow: from what they were, by as many steps as the part has made.
        self.rest, self.applied = whole.running(units), whole.applied(units)
        self.count = whole.advances

    def relevance(self) -> Tensor | None:
        """Of the units inside, still summed over the numbers of a unit."""
        return self.part.relevance(self.at)

    def availability(self) -> Tensor:
        """Mean A of every unit after the part's last step."""
        after = self.part.advances
        grow(self.rest, self.applied, self.whole.ledger, self.count, after, self.rules)
        self.count, now = after, self.rest.clone()
        own = self.part.running(self.at)
        if self.columns is None:
            now[self.inside] = own
        else:
            now[self.inside[:, None], self.columns] = own
        return _mean(now)


def _mean(rows: Tensor) -> Tensor:
    return rows if rows.dim() == 1 else rows.flatten(1).mean(1)
