"""A frozen encoder: only what stands on top of it is learned."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ...anatomy.kinds import is_norm
from ..base import Method

__all__ = ["Frozen", "encoder_of", "freeze"]


@dataclass
class Frozen(Method):
    """Keeps the pretrained encoder as it is, to the bit; the layers behind it are learned.

    The usual lower bound of language models: what the pretrained features alone are good for.

    Args:
        encoder: name of the encoder in the model; found automatically by default.

    >>> Frozen().name
    'frozen'
    """

    name = "frozen"

    encoder: str | None = None

    def prepare(self, model: nn.Module) -> None:
        """Ask for no gradient of the encoder."""
        name = encoder_of(model, self.encoder)
        freeze(model.get_submodule(name))
        if name == "" or not any(p.requires_grad for p in model.parameters()):
            raise ValueError(
                f"Nothing of {type(model).__name__} would be learned: "
                "put a head on top of the encoder."
            )


def encoder_of(model: nn.Module, name: str | None = None) -> str:
    """The name of the pretrained part: the child `encoder`, or the base of transformers.

    >>> encoder_of(nn.ModuleDict({"encoder": nn.Linear(2, 2), "head": nn.Linear(2, 2)}))
    'encoder'
    """
    children = [child for child, _ in model.named_children()]
    if name is not None:
        if name not in dict(model.named_modules()):
            raise ValueError(
                f"{type(model).__name__} has no module {name!r}: name its encoder, perhaps "
                f"{', '.join(children)}."
            )
        return name
    base: object = getattr(model, "base_model", None)  # transformers' word for it
    for found, module in model.named_modules():
        if module is base:
            return str(found)
    if "encoder" in children:
        return "encoder"
    raise ValueError(
        f"{type(model).__name__} has no child called encoder: name it, encoder= one of "
        f"{', '.join(children)}."
    )


def freeze(encoder: nn.Module, *, norms: bool = True) -> None:
    """Ask for no gradient of any parameter; of norms only if `norms`.

    >>> encoder = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    >>> freeze(encoder, norms=False)
    >>> [p.requires_grad for p in encoder.parameters()]
    [False, False, True, True]
    """
    for module in encoder.modules():
        for parameter in module.parameters(recurse=False):
            if norms or not is_norm(module):
                parameter.requires_grad_(False)
