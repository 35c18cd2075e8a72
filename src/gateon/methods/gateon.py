"""GateON: context gates and availability-scaled updates as one method; ablations, presets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..anatomy.encoders import encoder_sites
from ..anatomy.kinds import input_weights
from ..anatomy.sites import Residual, Site
from ..availability.firing_rate import FiringRate, firing_rate_of
from ..availability.ledgers import Measure
from ..availability.observers import Relevance
from ..availability.obstruct import Obstruction, Rules, View
from ..availability.room import usual_density
from ..availability.rule import Rate
from ..availability.settings import looks_after_room
from ..gating.attach import attach
from ..gating.coverage import warn_if_norms_are_shared
from ..gating.gates import Gates, gates_of
from ..storage.states import Grown, availabilities_like, contexts_like
from ..subnetwork.availabilities import Availabilities
from ..subnetwork.inherit import Heirs
from .base import Adopt, Batch, Method, Narrowed, Outline

__all__ = ["GateON", "first_rate", "gating_only", "obstruction_only", "preset"]


@dataclass
class GateON(Method):
    """n-GateON (`per="unit"`) or p-GateON (`per="parameter"`).

    Fields are the arguments of `gateon.attach` and `gateon.obstruct` of the same name; the defaults
    are the preset "best" per unit.

    Args:
        per: whether availability is per unit (n-GateON) or per parameter (p-GateON).
        rate: eta_A, how fast relevance freezes: one number, one for falling and one for rising, or
            either by pattern of site names such as first=0.04,*=0.004; or room, which freezes the
            same share of what is left in every task, so that all tasks expected find room.
        epsilon: relevance below it unfreezes.
        floor: the smallest availability.
        relevance: how the relevance of units is measured.
        apply: apply the availability of every step at once, or that of the last switch.
        scale: whether availability scales the optimizer's update or the gradient.
        first_rate: eta_A in the first context; the same by default, but on texts twice as much if
            the first task has fewer than 50 steps, as in the paper.
        frozen: patterns of names of parameters that never move.
        gather_after: the share of a task after which relevance counts; 0 for all of it.
        bias_apart: normalise the relevance of biases separately from that of weights.
        tasks: how many are expected in all, which decides the share of the room that a task takes.
        density: share of units whose gate starts open: one number, or numbers by pattern of site
            names such as group3*=0.1,*=0.5; none: it follows from the tasks expected.
        start: how gates start: random, open (gain 1), or the gain at which all open ones start.
        width: random gates start with weights |v| uniform in [0, width].
        power: the gain is sigma(v) ** power.
        steepness: gains are those of steepness times a gate's weight: above 1 gates learn faster
            than weights.
        shared: patterns of site names such as first,group1* where gates start on the same units in
            every context.
        before_norm: place gates before norms.
        residual: whether the layers of a residual network whose results are summed have a gate
            each, or all of a stage have one, so that the stage is narrowed whole.
        sites: where gates go; found automatically by default.
        seed: of the gates.
        gating: False leaves every gate open: obstruction only.
        obstruct_head: give output layers availabilities too.
        rescale: divide the initial weights of a site, and those with which an output layer reads
            it, by the square root of its density, so that a sub-network starts like a network of
            its own width.
        prefer: open the gates of a new context with probabilities proportional to availability to
            this power; 0 for equal ones.
        inherit: start every new context as a copy of the one before it, as far as parameters are
            available; see gateon.inherit.
        gate_penalty: lambda, the penalty on active units.
        encoder: gate a pretrained encoder like BERT at the places of the paper, see
            `gateon.anatomy.encoders`; instead of `sites`.

    >>> GateON(per="parameter").name
    'p-gateon'
    """

    per: View = "unit"
    rate: Rate | Mapping[str, Rate] = 0.01
    epsilon: float = 0.5
    floor: float = 0.0
    relevance: Relevance | FiringRate | Measure = "gradient"
    apply: Literal["step", "switch"] = "switch"
    scale: Literal["update", "gradient"] = "update"
    first_rate: float | None = None
    frozen: str | tuple[str, ...] = ()
    obstruct_head: bool = False
    gather_after: float = 0.0
    bias_apart: bool = False
    gating: bool = True
    tasks: int | None = None
    density: float | Mapping[str, float] | None = 0.25
    start: Literal["random", "open"] | float = "random"
    width: float = 0.3
    power: int = 1
    steepness: float = 1.0
    shared: str | tuple[str, ...] = ()
    before_norm: bool = False
    rescale: bool = False
    prefer: float = 0.0
    inherit: bool = False
    gate_penalty: float = 0.0
    residual: Residual = "branch"
    sites: str | tuple[str, ...] | Mapping[str, str | tuple[str, ...]] | None = None
    encoder: bool = False
    example: Any = field(default=None, repr=False)
    seed: int = 0
    rule: Measure | None = field(default=None, repr=False)

    gates: Gates | None = field(default=None, init=False, repr=False, compare=False)
    handle: Obstruction | None = field(default=None, init=False, repr=False, compare=False)
    heirs: Heirs | None = field(default=None, init=False, repr=False, compare=False)

    label_at_test = (
        True  # the context whose gates are switched on; the learner may infer it while it learns
    )

    @property
    def name(self) -> str:  # type: ignore[override]
        """As on the command line."""
        if not self.gating:
            return "obstruction-only"
        return "gating-only" if self.rate == 0 else "n-gateon" if self.per == "unit" else "p-gateon"

    def prepare(self, model: nn.Module) -> Adopt:
        """Attach the gates; obstruct every optimizer that is built from now on."""
        if not 0 <= self.gate_penalty < math.inf:
            raise ValueError(
                f"gate_penalty must be at least 0 and finite, got {self.gate_penalty}."
            )
        if self.gate_penalty and self.start == "open":
            raise ValueError(
                "gate_penalty closes gates, and gates of start='open' never close: "
                "leave one of them out."
            )
        if not 0 <= self.prefer < math.inf:
            raise ValueError(f"prefer must be at least 0 and finite, got {self.prefer}.")
        frozen = (self.frozen,) if isinstance(self.frozen, str) else self.frozen
        rules = Rules(
            self.per,
            self.rate,
            self.epsilon,
            self.floor,
            self.relevance,
            self.apply,
            self.scale,
            self.obstruct_head,
            frozen,
            self.bias_apart,
            self.first_rate,
            self.gather_after,
            self.rule,
        )
        if self.gating:
            warn_if_norms_are_shared(model)
        self.gates = attach(
            model,
            density=usual_density(self.tasks) if self.density is None else self.density,
            start=self.start,
            sites=encoder_sites(model, self.example, fixed=self.rate != 0)
            if self.encoder
            else self.sites,
            residual=self.residual,
            example=self.example,
            power=self.power,
            width=self.width,
            steepness=self.steepness,
            shared=self.shared,
            before_norm=self.before_norm,
            seed=self.seed,
        )
        if self.rescale:
            _rescale(self.gates)
        if not self.gating:
            self.gates.off()
        try:
            self.handle = Obstruction(self.gates, rules)
        except ValueError:
            self.gates.detach()
            raise
        if self.prefer:
            self.gates.prefers = self._prefers
        if self.inherit and self.gating:
            # after the obstruction: it copies by the availabilities that hold from the switch on
            self.heirs = Heirs(self.gates)
        self.handle.expect(tasks=self._expected)
        return self.handle.follow

    def expect(self, outline: Outline) -> None:
        """Tell the availabilities how long the next task is, and how many there are."""
        if self.handle is not None:
            self.handle.expect(outline.steps, self._expected)

    @property
    def _expected(self) -> int | None:
        """How many tasks; at a fixed rate nothing depends on it."""
        return self.tasks if looks_after_room(self.rate) else None

    def penalty(self, model: nn.Module, batch: Batch) -> Tensor | None:
        """lambda sum_l 1/N_l sum_i max(v_i, 0) (Methods, Wide-resnet).

        It is the mean of the context's weights over each layer. A closed gate, v <= 0, counts as
        zero, as its gain does: |v| would pull it towards 0 and, with momentum, open.
        """
        if not self.gate_penalty or not self.gating or self.gates is None:
            return None
        gates = gates_of(model)
        assert gates is not None
        total = sum(
            torch.relu(gate.weight.index_select(0, gate.context)).mean(0).sum()
            / self.gates.sites[name].units  # of the whole layer
            for name, gate in gates.gates.items()
            if gate.weight is not None
        )
        return self.gate_penalty * torch.as_tensor(total)

    def narrowed(self) -> Narrowed | None:
        """Availabilities are cut with the sub-network; firing rates fade outside it too."""
        if self.handle is None or firing_rate_of(self.relevance) is not None:
            return None
        return Narrowed(self, Availabilities(self.handle))

    def _prefers(self, site: Site) -> Tensor | None:
        room = None if self.handle is None else self.handle.room(site)
        return None if room is None else room**self.prefer

    def state_dict(self) -> dict[str, Any]:
        """The availabilities, and what new contexts will inherit from; gates are in the model."""
        availabilities = {} if self.handle is None else self.handle.state_dict()
        return availabilities | ({} if self.heirs is None else self.heirs.state_dict())

    def state_like(self, state: Any, model: Grown) -> Any:
        """Availabilities of the same units and parameters, and of those that new contexts add."""
        like = (
            {}
            if self.handle is None
            else availabilities_like(self.handle.state_dict(), state, model)
        )
        if "context" in like:  # a learner is in one context at a time
            like["context"] = contexts_like(model, torch.tensor(0))
        if self.heirs is not None and "parents" in state:
            like["parents"] = contexts_like(model, state["parents"])
        return like

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        if self.handle is not None:
            self.handle.load_state_dict(
                {name: tensor for name, tensor in state.items() if name != "parents"}
            )
        if self.heirs is not None and "parents" in state:  # older states have none
            self.heirs.load_state_dict(state)


@torch.no_grad()
def _rescale(gates: Gates) -> None:
    heads = {owned for site in gates.sites.values() if site.head for owned in site.owns}
    for name, gain in gates.gain(0).items():
        site, density = gates.sites[name], (gain > 0).float().mean()
        for layer in (*site.owns, *heads.intersection(site.readers)):
            for weight in input_weights(gates.model.get_submodule(layer))[0].values():
                if weight.dim() > 1:  # a norm's scale stays
                    weight.div_(density.sqrt())


def gating_only(base: GateON | None = None) -> GateON:
    """Principle 1 alone: gates, but every parameter stays fully available.

    >>> gating_only().name
    'gating-only'
    """
    return replace(base or GateON(), rate=0.0)


def obstruction_only(base: GateON | None = None) -> GateON:
    """Principle 2 alone: availabilities, but every gate open.

    >>> obstruction_only().name
    'obstruction-only'
    """
    return replace(base or GateON(), gating=False)


def preset(name: str, per: View = "unit") -> GateON:
    """The settings of one of five presets.

    Args:
        name: "room": every task freezes its share of what is left, for many tasks. "paper": the equations as printed, epsilon 0; the output layer is obstructed but not
            gated. "released": the choices of the released code, except its choice of models on test
            data. "best": what measured best on validation data at a fixed rate; the default. "language": for
            pretrained encoders like BERT, whose gates start open.
        per: "unit" or "parameter".

    >>> preset("paper").apply, preset("released").scale
    ('step', 'gradient')
    """
    fixed = GateON(per=per, epsilon=0.0)
    presets = {
        "room": replace(
            fixed, rate="room", relevance="fisher", density=None, obstruct_head=True, prefer=3.0
        ),
        "paper": replace(fixed, apply="step", obstruct_head=True, density=0.5, width=1.0),
        "released": replace(
            fixed,
            scale="gradient",
            bias_apart=True,
            density=0.5,
            width=0.095,
            power=2,
            before_norm=True,
        ),
        "language": replace(
            fixed, rate=0.05, density=1.0, start="open", steepness=100.0, encoder=True
        ),
        "best": replace(fixed, epsilon=0.5)
        if per == "unit"
        else replace(fixed, rate=0.03, obstruct_head=True, prefer=3.0),
    }
    if name not in presets:
        raise ValueError(f"There is no preset {name!r}: choose one of {', '.join(presets)}.")
    return presets[name]


def first_rate(steps: int, usual: float = 0.05) -> float | None:
    """eta_A of a first task of few steps, which would freeze too little (Methods, BERT).

    None if the usual rate will do.

    >>> first_rate(49), first_rate(50)
    (0.1, None)
    """
    return 2 * usual if steps < 50 else None
