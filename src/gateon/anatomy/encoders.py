"""Sites of pretrained encoders like BERT, found by what their layers do rather than by their names.

A block of such an encoder is attention followed by two Linears; each of the two parts is added to
its input and normalised. Gates go where the paper has them (Methods, BERT network architecture):
behind the embeddings, behind the norm of each attention, behind the activation between the two
Linears, behind the norm after them, and behind the pooler. Embeddings and attention are fixed at
availability 0, since we do not know what pretraining found relevant there. Their gates still learn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from .adapters import base_layer
from .flow import SUMS, TRANSPARENT
from .kinds import is_layer, is_norm
from .sites import Site, find_sites
from .wiring import Call, Wiring, trace

__all__ = ["encoder_sites"]


def encoder_sites(model: nn.Module, example: Any = None, *, fixed: bool = True) -> list[Site]:
    """Find the sites of an encoder like BERT, or of a model that contains one.

    Args:
        model: BERT, DistilBERT, RoBERTa, ELECTRA, MiniLM or any other encoder with such blocks,
            with or without output layers.
        example: One batch of input, for models that do not come with one.
        fixed: Whether to hold embeddings and attention at availability 0.
    """
    wiring, found = trace(model, example), find_sites(model, None, example)
    by_layer = {layer: site for site in found for layer in site.owns}
    after_activation = {reader for site in found for reader in site.readers if site.gated}
    merged: dict[str, Site] = {}
    inside_attention: set[str] = set()
    held: set[str] = set()
    branches_found = set()
    for index, call in enumerate(wiring.calls):
        branch = _normalised_branch(wiring, index)
        if branch is None:
            continue
        norm, layer = by_layer[call.name], wiring.calls[branch]
        is_attention = layer.name not in after_activation
        branches_found.add(is_attention)
        merged[norm.name] = replace(
            norm,
            name=layer.name,
            owns=(layer.name, call.name),
            gated=True,
            fixed=fixed and is_attention,
        )
        merged[by_layer[layer.name].name] = merged[norm.name]
        if is_attention:
            before = _layers_before(wiring, branch)
            held.update(wiring.calls[i].name for i in before)
            inside_attention.update(
                wiring.calls[i].name for i in before if not _read_by_layer(wiring, i)
            )
    if branches_found != {True, False}:
        raise ValueError(
            f"{type(model).__name__} is not an encoder like BERT, whose blocks are attention and "
            f"two Linears with a norm behind each sum ({_repeated_blocks(model)}): use "
            "gateon.attach(model, start='open'), which takes any network, or name its sites=."
        )
    sites: dict[str, Site] = {}
    for site in found:
        if site.name in merged:
            site = merged[site.name]
        elif site.name in inside_attention:  # no layer reads the units of query, key and value
            site = Site(
                site.name, "", site.owns, 0, gated=False, fixed=fixed, note="inside attention"
            )
        elif site.name in held or any(
            isinstance(base_layer(model.get_submodule(name)), nn.Embedding) for name in site.owns
        ):
            site = replace(site, fixed=fixed)
        sites[site.name] = site
    return list(sites.values())


def _normalised_branch(wiring: Wiring, index: int) -> int | None:
    """The Linear whose result is added to something else just for the norm at `index`.

    None if the call at `index` is not a norm behind such a sum.
    """
    calls = wiring.calls
    if not is_norm(calls[index].module) or len(calls[index].inputs) != 1:
        return None
    total = _before_dropout(wiring, calls[index].inputs[0])
    summed = calls[total]
    is_sum = summed.module is None and summed.name in SUMS and len(summed.inputs) == 2
    if not is_sum or wiring.users(total) != [index]:
        return None
    sources = [_before_dropout(wiring, i) for i in summed.inputs]
    branches = [i for i in sources if _is_linear(calls[i])]
    alone = [i for i in branches if not _read_by_layer(wiring, i)]
    return alone[0] if len(alone) == 1 else None


def _is_linear(call: Call) -> bool:
    if call.module is None or not is_layer(call.module):
        return False
    return not isinstance(base_layer(call.module), nn.Embedding)


def _before_dropout(wiring: Wiring, index: int) -> int:
    """The call itself, or what feeds it if it is dropout."""
    call = wiring.calls[index]
    while isinstance(call.module, TRANSPARENT) or call.name == "dropout":
        index = call.inputs[0]
        call = wiring.calls[index]
    return index


def _read_by_layer(wiring: Wiring, index: int) -> bool:
    return any(is_layer(wiring.calls[user].module) for user in wiring.users(index))


def _layers_before(wiring: Wiring, index: int) -> set[int]:
    """The layers that lead to a call, back to the last norm."""
    queue, seen = list(wiring.calls[index].inputs), set[int]()
    while queue:
        current = queue.pop()
        if current not in seen and not is_norm(wiring.calls[current].module):
            seen.add(current)
            queue.extend(wiring.calls[current].inputs)
    return {i for i in seen if is_layer(wiring.calls[i].module)}


def _repeated_blocks(model: nn.Module) -> str:
    """The repeated blocks of a model, for the error message."""
    blocks = [
        f"{name}: {len(module)} x {type(module[0]).__name__}"
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module)
    ]
    if not blocks:
        return "it has no repeated blocks"
    return "its repeated blocks are " + ", ".join(blocks[:5])
