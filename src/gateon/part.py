"""The sub-network a learner works on: taken out of the whole at a switch, with optimizer and availabilities, and written back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, Optimizer, RAdam, RMSprop

from .compact import Cut, cut_for, put_availability, put_back, take_availability, take_out
from .gates import Gates, gates_of
from .methods.base import Method
from .methods.gateon import GateON
from .obstruct import Obstruction

__all__ = ["Part"]

# Without weight decay these leave alone what has no gradient: a unit that is left out and one that is closed are then the same.
EXACT = (SGD, Adam, AdamW, Adamax, NAdam, RAdam, RMSprop, Adagrad, Adadelta)


@dataclass
class Part:
    """A sub-network, the cut that made it, its optimizer and its availabilities."""

    gates: Gates
    cut: Cut
    network: nn.Module
    whole_availability: Obstruction | None = None
    availability: Obstruction | None = None
    optimizer: Optimizer = None  # type: ignore[assignment]
    step: int = 0  # of the learner, when it was last written back

    @classmethod
    def of(
        cls,
        model: nn.Module,
        method: Method,
        context: int,
        new_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
        active: Mapping[str, Tensor] | None = None,
    ) -> Part | None:
        """The part to train in a context; None where that would not be exact, or no smaller."""
        gates = gates_of(model)
        if gates is None or not isinstance(method, GateON) or method.handle is None:
            return None
        cut = cut_for(gates, context, active)
        if not cut.active:
            return None
        network = take_out(gates, cut)
        optimizer = new_optimizer(network.parameters())
        decays = any(group.get("weight_decay") for group in optimizer.param_groups)
        if decays or type(optimizer) not in EXACT:
            return None
        part = cls(gates, cut, network, method.handle, take_availability(method.handle, cut, network), optimizer)
        assert part.availability is not None
        part.availability.follow(optimizer)
        return part

    @classmethod
    def shown(cls, model: nn.Module, method: Method, context: int) -> Part | None:
        """The part to evaluate in a context; None where there is none."""
        gates = gates_of(model)
        if gates is None or not isinstance(method, GateON):
            return None
        cut = cut_for(gates, context)
        return cls(gates, cut, take_out(gates, cut)) if cut.active else None

    def write_back(self) -> None:
        """Put what was learned so far into the whole; the part goes on."""
        put_back(self.gates, self.cut, self.network)
        if self.whole_availability is not None and self.availability is not None:
            put_availability(self.whole_availability, self.cut, self.availability)
