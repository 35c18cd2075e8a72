"""An electrode: reads chosen units of a network while it learns, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..availability.obstruct import Obstruction, obstruction_of
from ..gating.gate import Gate
from ..gating.gates import Gates
from ..subnetwork.part import Part
from .by_unit import InPart, rows_of
from .trace import QUANTITIES

__all__ = ["Electrode"]


class Electrode:
    """Reads gain, activity, relevance and availability of units.

    Args:
        gates: of the network at work.
        units: by site, which units of the whole layer.
        due: whether the step being made is to be read.
        part: the sub-network at work, if it is one.
    """

    def __init__(
        self,
        gates: Gates,
        units: Mapping[str, Any],
        due: Callable[[], bool],
        part: Part | None = None,
    ) -> None:
        self.due, self.obstruction = due, obstruction_of(gates)
        self.leads = {
            name: Lead(gates.gates[name], torch.as_tensor(chosen), part, self.obstruction)
            for name, chosen in units.items()
        }
        self._hooks = [
            lead.gate.register_forward_hook(self._seeing(lead)) for lead in self.leads.values()
        ]
        if self.obstruction is not None:
            self.obstruction.watchers.append(self._measure)

    def read(self) -> dict[str, NDArray[np.float32]]:
        """By site, the quantities of its units in the last step, (4, units)."""
        return {name: lead.read() for name, lead in self.leads.items()}

    def remove(self) -> None:
        """Take it out of the network."""
        for hook in self._hooks:
            hook.remove()
        if self.obstruction is not None and self._measure in self.obstruction.watchers:
            self.obstruction.watchers.remove(self._measure)

    def _seeing(self, lead: Lead) -> Callable[..., None]:
        def see(gate: Any, inputs: Any, output: Tensor) -> None:
            # A copy of the network has a copy of this hook, and other gates.
            learns = gate is lead.gate and torch.is_grad_enabled()
            if learns and not torch.compiler.is_compiling() and self.due():
                lead.see(output)

        return see

    @torch.no_grad()
    def _measure(self) -> None:
        if self.due():
            for lead in self.leads.values():
                lead.measure()


class Lead:
    """What is read at one site.

    Args:
        gate: of the site in the network at work.
        units: of the whole layer.
        part: the sub-network at work, if it is one.
        obstruction: of the network at work, if its updates are obstructed.
    """

    def __init__(
        self, gate: Gate, units: Tensor, part: Part | None, obstruction: Obstruction | None
    ) -> None:
        self.gate, self.units = gate, units
        active = None if part is None else part.cut.active.get(gate.site.name)
        if active is None:
            self.inside, self.at = torch.ones(len(units), dtype=torch.bool), units
        else:
            active = active.cpu()
            place = torch.searchsorted(active, units).clamp_max(len(active) - 1)
            self.inside = active[place] == units
            self.at = place[self.inside]
        self.seen: dict[str, Tensor] = {}  # since the last reading
        self._find_rows(part, obstruction)

    def _find_rows(self, part: Part | None, obstruction: Obstruction | None) -> None:
        site = self.gate.site.name
        whole = obstruction if part is None else obstruction_of(part.gates)
        self.rows = None if whole is None else rows_of(whole, site)
        self.in_part: InPart | None = None
        if part is not None and whole is not None and obstruction is not None and self.rows:
            of_part = (self.rows, obstruction, part.cut, whole.rules)
            self.in_part = InPart(*of_part, self.units, self.inside, self.at)

    @torch.no_grad()
    def see(self, output: Tensor) -> None:
        """Gains and activities of a forward pass."""
        gate, dim = self.gate, self.gate.site.dim
        if gate.site.in_front and output.shape[dim] != gate.site.units:
            output, dim = output.unflatten(dim, (gate.site.units, -1)), dim - 1
        dim %= output.dim()
        chosen = output.index_select(dim, self.at.to(output.device)).abs().float()
        others = [d for d in range(output.dim()) if d != dim]
        self.seen["activity"] = chosen.mean(others) if others else chosen
        is_open = gate.off or gate.weight is None
        gain = output.new_ones(gate.site.units) if is_open else gate.gain().mean(0)
        self.seen["gain"] = gain.index_select(0, self.at.to(gain.device))

    def measure(self) -> None:
        """Relevance and availability, once A has moved and before the optimizer moves anything."""
        if self.rows is None:
            return
        if self.in_part is None:
            mu, A = self.rows.relevance(self.at), self.rows.availability(self.units)
        else:
            mu, A = self.in_part.relevance(), self.in_part.availability()
        if mu is not None:
            self.seen["relevance"] = mu / self.rows.numbers
        self.seen["availability"] = A

    def read(self) -> NDArray[np.float32]:
        """What was seen since the last reading, (4, units); NaN where nothing was."""
        values = np.full((len(QUANTITIES), len(self.units)), np.nan, dtype=np.float32)
        for row, quantity in zip(values, QUANTITIES, strict=True):
            if quantity in self.seen:
                found = self.seen[quantity].float().cpu().numpy()
                if quantity == "availability":  # of all units; others of those inside
                    row[:] = found
                else:
                    row[:] = 0
                    row[self.inside.numpy()] = found
        self.seen = {}
        return values
