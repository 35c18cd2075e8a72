"""Adapters: small learned modules inside a frozen encoder, and HAT on their units."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...anatomy.kinds import is_layer, unit_dim, units_of
from ...anatomy.sites import Site, matching
from ...anatomy.wiring import Wiring, trace
from ..base import Adopt, Outline
from ..hat import HAT, UnitMask, owned_by
from ..shared.places import BEHIND, install
from ..shared.samples import seeded
from .frozen import encoder_of, freeze

__all__ = ["Adapter", "HatAdapters", "branch_ends", "started"]

SUMS = {"add", "iadd", "radd"}


class Adapter(nn.Module):
    """x + relu(W2 relu(W1 (x + s(x)))), where s, if there is one, is what tasks share.

    Args:
        units: of the place it sits at.
        width: of its own hidden layer.
        seed: of its weights, drawn from N(0, 0.02^2): at first it changes next to nothing.
        shared: s.

    >>> Adapter(8, 4, (0, 0))(torch.ones(2, 3, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self, units: int, width: int, seed: tuple[int, int], shared: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.shared = shared
        self.specific = nn.Sequential(
            nn.Linear(units, width), nn.ReLU(), nn.Linear(width, units), nn.ReLU()
        )
        started(self.specific, (*seed, 0, 1))

    def forward(self, x: Tensor) -> Tensor:
        """What the branch hands to the residual sum instead of x."""
        specific: Tensor = self.specific(x if self.shared is None else x + self.shared(x))
        return x + specific

    def sites(self, name: str) -> list[Site]:
        """Where its units are masked, if it has that name in a model."""
        first, second, expand = f"{name}.specific.0", f"{name}.specific.2", f"{name}.shared.expand"
        width, units = (
            int(layer.out_features) for layer in self.specific if isinstance(layer, nn.Linear)
        )
        found = [
            Site(first, f"{name}.specific.1", (first,), width, narrows=True, readers=(second,)),
            Site(second, f"{name}.specific.3", (second,), units),
        ]
        return found if self.shared is None else [Site(expand, expand, (expand,), units), *found]


@torch.no_grad()
def started(module: nn.Module, seed: tuple[int, ...]) -> None:
    """Weights from N(0, 0.02^2) and biases 0, as BERT's own layers start.

    >>> layer = nn.Linear(100, 100)
    >>> started(layer, (0, 0, 0, 1))
    >>> round(layer.weight.std().item(), 2), layer.bias.any().item()
    (0.02, False)
    """
    generator = seeded(*seed)
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        else:
            parameter.normal_(0, 0.02, generator=generator)


@dataclass
class HatAdapters(HAT):
    """Adapters with HAT: two learn in every layer of a frozen encoder, and tasks mask their units.

    Norms of the encoder are learned too.

    An adapter x + a2 * relu(W2 (a1 * relu(W1 x))) sits behind the output layers of attention and of
    the feed-forward part, before the residual sum. a1 and a2 are the masks of `HAT`, with its rule
    for updates, regulariser and compensation. Scales and shifts of norms are shared by all tasks
    and not protected.

    Ke, Xu and Liu, "Adapting BERT for continual learning of a sequence of aspect sentiment
    classification tasks", NAACL 2021, who put HAT on the adapters of Houlsby et al. 2019. There:
    width 2000 in BERT's 768 units, a head for every task (`TaskHeads`), Adam with rate 5e-5, warmed
    up over a tenth of the steps, and decay 0.01, batches of 32.

    Args:
        width: units of an adapter's hidden layer.
        places: names or patterns of the layers that adapters follow, such as *.output.dense; by
            default those that feed residual sums.
        encoder: name of the encoder in the model; found automatically by default.

    `example` of HAT is one batch of the encoder's input, where its layers cannot be followed
    without.

    >>> HatAdapters(width=64).name
    'hat-adapters'
    """

    name = "hat-adapters"

    width: int = 2000
    places: tuple[str, ...] = ()
    encoder: str | None = None

    def prepare(self, model: nn.Module) -> Adopt:
        """Freeze the encoder, put adapters in, and masks behind their layers."""
        if self.width < 1:
            raise ValueError(f"width must be a whole number of at least 1, got {self.width}.")
        if self.strength < 0 or self.s_max <= 1 or min(self.steps, self.largest, self.clip) <= 0:
            raise ValueError(
                f"{self.name} needs strength of at least 0, s_max above 1, and steps, largest and "
                "clip above 0."
            )
        sites = self._inserted(model)
        self.begin()
        self.masks, self._owned = {}, owned_by(model, sites)
        for n, site in enumerate(sites):
            self.masks[site.name] = UnitMask(site, self.s_max, self.steps, (self.seed, n)).to(
                next(model.parameters())
            )
            install(model, site, self.masks[site.name])
        return self._adopt

    def expect(self, outline: Outline) -> None:
        """Let s run up once in an epoch, or in the task if that is shorter."""
        for mask in self.masks.values():
            mask.cycle = max(2, min(outline.epoch, outline.steps))

    def _inserted(self, model: nn.Module) -> list[Site]:
        """Put adapters into the encoder; the places of their masks."""
        encoder = encoder_of(model, self.encoder)
        found, sites = self._ends(model.get_submodule(encoder)), []
        freeze(model.get_submodule(encoder), norms=False)
        like = next(model.parameters())
        for n, (end, units) in enumerate(found.items()):
            place = f"{encoder}.{end}" if encoder else end
            adapter = Adapter(
                units, self.width, (self.seed, n), self._shared(units, (self.seed, n))
            ).to(like)
            install(model, Site(place, place, (), units), adapter)
            sites += adapter.sites(f"{place}.{BEHIND}")
        return sites

    def _shared(self, units: int, seed: tuple[int, int]) -> nn.Module | None:
        """What tasks share in an adapter: nothing here."""
        return None

    def _ends(self, encoder: nn.Module) -> dict[str, int]:
        """The places of adapters, with their units."""
        layers = {
            name: units_of(m) or 0
            for name, m in encoder.named_modules()
            if is_layer(m) and not isinstance(m, nn.Embedding)
        }
        if self.places:
            return {
                name: layers[name]
                for pattern in self.places
                for name in matching(pattern, layers, "layer")
            }
        found = branch_ends(trace(encoder, self.example))
        if not found:
            candidates = dict.fromkeys(re.sub(r"\.\d+(?=\.)", ".*", name) for name in layers)
            raise ValueError(
                f"No layer of {type(encoder).__name__} ends a branch beside a residual connection: "
                "name those behind which adapters shall sit, places= some of "
                f"{', '.join(candidates) or '(it has no layer)'}."
            )
        return found


def branch_ends(wiring: Wiring) -> dict[str, int]:
    """Where branches join the residual stream: the last module before the sum, with its units.

    A branch ends with a layer that feeds nothing but the sum; the other summand is the stream,
    which is no such layer.

    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.into, self.out, self.drop = nn.Linear(4, 8), nn.Linear(8, 4), nn.Dropout(0.1)
    ...     def forward(self, x):
    ...         return x + self.drop(self.out(self.into(x).relu()))
    >>> branch_ends(trace(Block()))
    {'drop': 4}
    """
    found: dict[str, int] = {}
    for index, call in enumerate(wiring.calls):
        if call.module is None and call.name in SUMS and len(call.inputs) == 2:
            ends = [
                end for end in (_branch(wiring, i, index) for i in call.inputs) if end is not None
            ]
            found.update(ends if len(ends) == 1 else [])
    return found


def _branch(wiring: Wiring, index: int, user: int) -> tuple[str, int] | None:
    """The last module and the units of the branch that ends in `user`, if a layer made it."""
    place = ""
    while wiring.users(index) == [user]:
        call = wiring.calls[index]
        place = place or (call.name if call.module is not None else "")
        if is_layer(call.module):
            assert call.module is not None
            units = units_of(call.module)
            fits = unit_dim(call.module) == -1 and not isinstance(call.module, nn.Embedding)
            return (place, units) if fits and units else None
        passes = isinstance(call.module, nn.Dropout | nn.Identity) or (
            call.module is None and call.name in {"dropout", "getitem"}
        )
        if not passes or len(call.inputs) != 1:
            return None
        index, user = call.inputs[0], index
    return None
