"""Active dendrites: segments that see the context modulate units, and the strongest win."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.optim import Optimizer

from ..anatomy.contextual import Contextual
from ..anatomy.sites import Site, find_sites
from .base import Adopt, Method

__all__ = ["Dendrites", "DendriticUnits", "Prototypes"]


class DendriticUnits(nn.Module):
    """Takes the place of an activation: y = kWTA(t * sigmoid(d)), t = w x + b.

    d = u_j c with j = argmax_j |u_j c|.

    Args:
        units: how many, along dimension `dim` of the input.
        dim: which.
        segments: u_1, u_2 ... of every unit.
        inputs: numbers in a context vector c.
        winners: how many units of each sample keep their value; the others become 0.
        generator: of the segments' start, U(-1 / sqrt(inputs), 1 / sqrt(inputs)).
    """

    contexts: Tensor  # context vectors, (contexts, inputs)
    chosen: Tensor | None  # which of them each sample has; None: all have the first

    def __init__(
        self,
        units: int,
        dim: int,
        segments: int,
        inputs: int,
        winners: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.dim, self.winners = dim, winners
        bound = 1 / math.sqrt(inputs)
        self.segments = nn.Parameter(
            torch.empty(units, segments, inputs).uniform_(-bound, bound, generator=generator)
        )
        self.contexts, self.chosen = torch.zeros(1, inputs), None

    def forward(self, t: Tensor) -> Tensor:
        """The modulated values of the winners."""
        dim = self.dim % t.dim()
        gain = torch.sigmoid(self.modulation()).to(t.dtype)
        gain = gain if self.chosen is None else gain[self.chosen]
        y = t * gain.reshape(
            [len(gain) if d == 0 else gain.shape[1] if d == dim else 1 for d in range(t.dim())]
        )
        return y * torch.zeros_like(y).scatter_(dim, y.topk(self.winners, dim).indices, 1)

    def modulation(self) -> Tensor:
        """d of every context and unit."""
        units, segments, _ = self.segments.shape
        # One plain product: einsum would copy the segments, which are most of the network.
        d = (self.segments.flatten(0, 1) @ self.contexts.to(self.segments).T).view(
            units, segments, -1
        )
        return d.gather(1, d.abs().argmax(1, keepdim=True)).squeeze(1).T


class Prototypes(Contextual):
    """The mean input of every task.

    In training it is the mean of what was seen so far; at test each sample takes the nearest.

    Args:
        inputs: numbers in one input.
        mean, std: by which inputs are standardised before the network and the prototypes see them.
    """

    means: Tensor
    counts: Tensor
    over: Tensor

    def __init__(self, inputs: int, mean: float = 0.0, std: float = 1.0) -> None:
        super().__init__()
        self.mean, self.std = mean, std
        self.register_buffer("means", torch.zeros(1, inputs))
        self.register_buffer("counts", torch.zeros(1, dtype=torch.long))
        self.register_buffer("over", torch.zeros(1, dtype=torch.bool))
        self.pending: tuple[Tensor, int] | None = (
            None  # mean and count with the batch at hand, until it is learned
        )

    @property
    def contexts(self) -> int:
        """How many there are."""
        return len(self.means)

    def add_context(self) -> None:
        """Add one, which has seen nothing yet."""
        self._add_contexts(1)

    def _add_contexts(self, count: int) -> None:
        for name in ("means", "counts", "over"):
            buffer = getattr(self, name)
            setattr(self, name, torch.cat([buffer, buffer.new_zeros(count, *buffer.shape[1:])]))

    def of_batch(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Context vectors for a batch (samples, inputs), and which of them is each sample's."""
        k = self.context
        if not self.training:
            seen = self.means[self.counts > 0]
            return (seen, torch.cdist(x, seen).argmin(1)) if len(seen) else (self.means[:1], None)
        if self.over[k]:
            return self.means[k : k + 1], None
        count = int(self.counts[k]) + len(x)
        mean = self.means[k] + (x - self.means[k]).sum(0) / count
        self.pending = mean, count
        return mean[None], None

    def learn(self) -> None:
        """Count the current batch as learned."""
        if self.pending is not None:
            self.means[self.context], self.counts[self.context] = self.pending
            self.pending = None

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved = state.get(prefix + "means")
        if saved is not None and saved.shape[1:] == self.means.shape[1:]:
            self._add_contexts(max(0, len(saved) - self.contexts))
        super()._load_from_state_dict(state, prefix, *rest)


@dataclass
class Dendrites(Method):
    """Active dendrites with prototype contexts: no task label at test.

    Hidden units compute y = kWTA((w x + b) sigmoid(d)), where d is, of all u_j c, the one with the
    largest absolute value, and kWTA keeps the k largest units of a sample. The context vector c is
    the mean training input of the task; at test every sample takes the nearest mean. Weights are
    sparse: a random part of each unit's inputs is cut off, again after every step.

    Iyer, Grewal, Velu, Souza, Forest and Ahmad, "Avoiding catastrophe: Active dendrites enable
    multi-task learning in dynamic environments", Frontiers in Neurorobotics 2022. There the mean of
    the whole training set is known before a task begins; a learner of batches uses the mean of what
    it has seen of the task so far, and keeps it when the task is over. Activations must be modules:
    they are replaced. Weights of Linear and convolution layers start anew from U(+-1 / sqrt(share
    of active inputs * density * inputs)).

    Args:
        segments: number of segments per unit; by default one per task, as published.
        on: share of the units of a layer that win; of the channels, at each position, in a
            convolution.
        sparsity: share of each unit's weights that stay 0.
        mean, std: of the data, by which inputs are standardised; those of MNIST by default. Without
            it, prototypes would be much alike, and so would the modulation in different tasks.
        inputs: numbers in one input; by default those of the first layer, if that is a Linear.
        example: one batch of input, for models whose layers cannot be followed without data.
        seed: of weights, segments and sparsity.

    >>> Dendrites().name
    'dendrites'
    """

    name = "dendrites"
    whole_batch = True  # its mean is what prototypes are made of

    segments: int = 10
    on: float = 0.05
    sparsity: float = 0.5
    mean: float = 0.1307
    std: float = 0.3081
    inputs: int | None = None
    example: Any = field(default=None, repr=False)
    seed: int = 0

    prototypes: Prototypes | None = field(default=None, init=False, repr=False, compare=False)
    _layers: list[nn.Module] = field(default_factory=list, init=False, repr=False, compare=False)

    def prepare(self, model: nn.Module) -> Adopt:
        """Replace the activations, cut weights off, and watch the model's inputs."""
        if self.segments < 1 or not 0 < self.on <= 1 or not 0 <= self.sparsity < 1 or self.std <= 0:
            raise ValueError(
                "Dendrites needs at least one segment, on in (0, 1], sparsity in [0, 1) and std "
                "above 0."
            )
        sites = find_sites(model, None, self.example)
        hidden = [site for site in sites if site.gated]
        for site in hidden:
            if not site.activation or site.activation != site.place:
                raise ValueError(
                    f"Layer {site.name!r} has no activation of its own to replace: "
                    "make it a module, nn.ReLU()."
                )
        inputs = self.inputs or getattr(model.get_submodule(sites[0].name), "in_features", None)
        if inputs is None:
            raise ValueError(
                "The first layer does not tell how many numbers an input has: "
                "set inputs, such as 784."
            )
        self._layers = [
            m
            for m in model.modules()
            if isinstance(m, nn.Linear | _ConvNd) and not isinstance(m, Contextual)
        ]
        generator = torch.Generator().manual_seed(self.seed)
        readers = {name for site in hidden for name in site.readers}
        for layer in self._layers:
            reads_winners = any(model.get_submodule(name) is layer for name in readers)
            _start_sparse(layer, self.sparsity, self.on if reads_winners else 1.0, generator)
        self.prototypes = Prototypes(inputs, self.mean, self.std).train(model.training)
        for n, site in enumerate(hidden):
            winners = max(1, round(self.on * site.units))
            units = DendriticUnits(site.units, site.dim, self.segments, inputs, winners, generator)
            if n == 0:  # a child of the model would be called if that is an nn.Sequential
                units.add_module("prototypes", self.prototypes)
            _put_in_place(model, site, units)
        model.to(next(model.parameters()))
        model.register_forward_pre_hook(_show_contexts)
        return self._adopt

    def stepped(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Add what was seen to the task's mean."""
        assert self.prototypes is not None
        self.prototypes.learn()

    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Keep the task's mean as it is."""
        assert self.prototypes is not None
        self.prototypes.over[self.prototypes.context] = True

    def _adopt(self, optimizer: Optimizer) -> None:
        optimizer.register_step_post_hook(self._cut_off)

    @torch.no_grad()
    def _cut_off(self, *_: Any) -> None:
        for layer in self._layers:
            layer.get_parameter("weight").mul_(layer.get_buffer("weight_on"))


def _show_contexts(model: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Before a forward pass: standardise the input and show dendrites each sample's context."""
    if not args or not isinstance(args[0], Tensor):
        raise ValueError(
            "Active dendrites take one tensor of inputs, whose mean is a task's prototype."
        )
    units = [module for module in model.modules() if isinstance(module, DendriticUnits)]
    prototypes = next(module for module in model.modules() if isinstance(module, Prototypes))
    standard = (args[0] - prototypes.mean) / prototypes.std
    x = standard.detach().flatten(1)
    if x.shape[1] != prototypes.means.shape[1]:
        raise ValueError(
            f"An input has {x.shape[1]} numbers, but the prototypes have "
            f"{prototypes.means.shape[1]}: set inputs."
        )
    contexts, chosen = prototypes.of_batch(x.to(prototypes.means))
    for module in units:
        module.contexts, module.chosen = contexts, chosen
    return (standard, *args[1:])


def _put_in_place(model: nn.Module, site: Site, units: DendriticUnits) -> None:
    parent, _, child = site.activation.rpartition(".")
    setattr(model.get_submodule(parent), child, units.train(model.training))


@torch.no_grad()
def _start_sparse(
    layer: nn.Module, sparsity: float, active: float, generator: torch.Generator
) -> None:
    """Weights U(+-1 / sqrt(active * density * inputs)); a share of each unit's inputs is on."""
    weight = layer.get_parameter("weight")
    flat = torch.empty(weight.flatten(1).shape)
    inputs = flat.shape[1]
    kept = max(1, round((1 - sparsity) * inputs))
    places = torch.rand(flat.shape, generator=generator).topk(kept, 1).indices
    is_on = torch.zeros_like(flat).scatter_(1, places, 1)
    bound = 1 / math.sqrt(active * kept)
    flat.uniform_(-bound, bound, generator=generator)
    weight.copy_((flat * is_on).view(weight.shape))
    layer.register_buffer("weight_on", is_on.view(weight.shape).to(weight))
