"""A neuron that fires much freezes, and one that is silent for long can learn again: the paper's prediction.

    python examples/plasticity.py

Fifty neurons of one area fire spikes that currents impose on them. Some of them are driven at a rate of
their own for a minute, then they are silent; a standard protocol, the same pairings of presynaptic with
postsynaptic spikes for all, tells how plastic their synapses are by then. Ten seconds on a laptop.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import gateon
from gateon.availability import FiringRate, recovery_time

STEP = 0.05  # seconds that a step stands for
NEURONS, USUAL = 50, 5.0  # of the area, and the rate in Hz of all that are not driven
DRIVEN = (0.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0)  # Hz, one neuron each
DRIVE = 60.0  # seconds
SILENCES = (0.0, 60.0, 120.0, 240.0, 480.0, 720.0, 960.0)  # seconds
PAIRINGS = 60  # of the protocol, one in every step
ETA, EPSILON = 2e-4, 1.0  # of the availability


class Area(nn.Module):
    """Neurons that add up what a presynaptic neuron and an electrode give them."""

    def __init__(self) -> None:
        super().__init__()
        self.synapses = nn.Linear(1, NEURONS, bias=False)
        self.spikes = nn.ReLU()
        nn.init.constant_(self.synapses.weight, 0.1)

    def forward(self, presynaptic: Tensor, current: Tensor) -> Tensor:
        """Spikes of every neuron in this step."""
        spikes: Tensor = self.spikes(self.synapses(presynaptic) + current)
        return spikes


class Experiment:
    """An area, Hebbian plasticity, and availabilities that scale it.

    Args:
        seed: of the spikes.
        epsilon: relevance below it unfreezes.
    """

    def __init__(self, seed: int, epsilon: float) -> None:
        self.area, self.chance = Area(), torch.Generator().manual_seed(seed)
        gates = gateon.attach(self.area, sites={"spikes": "synapses"})
        gates.off()  # one context only: nothing is gated
        self.hebb = torch.optim.SGD(self.area.parameters(), lr=1e-3)
        second = FiringRate(steps=1 / STEP)
        rule: dict[str, Any] = {"rate": ETA, "epsilon": epsilon, "apply": "step"}
        self.handle = gateon.obstruct(self.hebb, gates, relevance=second, **rule)

    def step(self, presynaptic: float, current: Tensor) -> None:
        """Neurons that fire together wire together: the gradient of -|spikes|^2 / 2 is Hebb's."""
        spikes = self.area(torch.tensor([[presynaptic]]), current[None])
        (-0.5 * spikes.square().sum()).backward()
        self.hebb.step()
        self.hebb.zero_grad()

    def fire(self, rates: Tensor, seconds: float) -> None:
        """Impose Poisson spikes without any presynaptic one, so that no synapse changes."""
        for _ in range(round(seconds / STEP)):
            self.step(0.0, torch.poisson(rates * STEP, generator=self.chance))

    def induce(self) -> Tensor:
        """The change of every synapse by the protocol, after which all is as it was before."""
        kept = [self.handle.state_dict(), self.area.synapses.weight.detach().clone()]
        for _ in range(PAIRINGS):
            self.step(1.0, torch.ones(NEURONS))
        change = self.area.synapses.weight.detach() - kept[1]
        self.handle.load_state_dict(kept[0])
        self.area.synapses.weight.data.copy_(kept[1])
        return change[:, 0]


def experiment(seed: int = 0, epsilon: float = EPSILON) -> dict[str, Any]:
    """Plasticity, naive = 1, of every driven neuron after each silence, and what the theory says."""
    here, driven = Experiment(seed, epsilon), len(DRIVEN)
    naive = here.induce()
    rates = torch.full((NEURONS,), USUAL)
    rates[:driven] = torch.tensor(DRIVEN)
    here.fire(rates, DRIVE)
    frozen = here.handle.availability["spikes"][:driven].tolist()
    rates[:driven] = 0.0
    plastic, now = [], 0.0
    for silence in SILENCES:
        here.fire(rates, silence - now)
        now = silence
        plastic.append((here.induce() / naive)[:driven].tolist())
    return {"availability": frozen, "plasticity": plastic}


def relevances() -> list[float]:
    """mu of every driven neuron: its squared rate over the mean of the area."""
    squares = torch.tensor(DRIVEN).square()
    total = squares.sum() + (NEURONS - len(DRIVEN)) * USUAL**2
    return (NEURONS * squares / total).tolist()


def recoveries() -> list[float | None]:
    """Seconds of silence until a neuron has recovered, by eq. tprime; None if it did not freeze."""
    return [
        STEP * recovery_time(DRIVE / STEP, mu, 0.0, ETA, EPSILON) if mu > EPSILON else None
        for mu in relevances()
    ]


def main() -> None:
    """Print the table: a row for each rate, a column for each silence."""
    found = experiment()
    print(f"plasticity, naive = 1, after {DRIVE:.0f} s at a rate and then silence")
    print("  rate " + "".join(f"{silence:7.0f} s" for silence in SILENCES) + "   recovered by")
    for n, rate in enumerate(DRIVEN):
        row = "".join(f"{plastic[n]:9.2f}" for plastic in found["plasticity"])
        until = recoveries()[n]
        print(f"{rate:3.0f} Hz " + row + ("" if until is None else f"{until:13.0f} s"))


if __name__ == "__main__":
    main()
