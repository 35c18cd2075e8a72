"""Sites of pretrained encoders like BERT, found by what their layers do and not by what they are called.

A block of such an encoder is attention and then a pair of Linears, and what each adds to its input
is normalised at once. Gates go where the paper has them (Methods, BERT network architecture):
behind the embeddings, behind the norm of each attention, behind the activation between the two
Linears, behind the norm after them, and behind the pooler. Embeddings and attention are fixed, at
availability 0: nothing is known of what pretraining found relevant there. Their gates still learn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from .adapters import base_layer
from .kinds import is_layer, is_norm
from .sites import SUMS, TRANSPARENT, Site, find_sites
from .wiring import Call, Wiring, trace

__all__ = ["encoder_sites"]


def encoder_sites(model: nn.Module, example: Any = None, *, fixed: bool = True) -> list[Site]:
    """The sites of a model that is an encoder like BERT, or has one inside.

    Args:
        model: BERT, DistilBERT, RoBERTa, ELECTRA, MiniLM or any other whose blocks are built so,
            with or without output layers.
        example: one batch of input, for models that carry none.
        fixed: hold embeddings and attention at availability 0.
    """
    wiring, found = trace(model, example), find_sites(model, None, example)
    by_layer = {layer: site for site in found for layer in site.owns}
    # by layers behind an activation
    read = {reader for site in found for reader in site.readers if site.gated}
    merged: dict[str, Site] = {}
    inner: set[str] = set()
    held: set[str] = set()
    kinds = set()
    for index, call in enumerate(wiring.calls):
        branch = _normalised_branch(wiring, index)
        if branch is None:
            continue
        norm, layer = by_layer[call.name], wiring.calls[branch]
        is_attention = layer.name not in read
        kinds.add(is_attention)
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
            inner.update(wiring.calls[i].name for i in before if not _read_by_layer(wiring, i))
            held.update(wiring.calls[i].name for i in before)
    if kinds != {True, False}:
        raise ValueError(
            f"{type(model).__name__} has no blocks of attention and two Linears with a norm behind each sum, as encoders like BERT "
            f"have ({_candidates(model)}): use gateon.attach(model, start='open'), for any network, or name places with its sites=."
        )
    sites: dict[str, Site] = {}
    for site in found:
        if site.name in merged:
            site = merged[site.name]
        elif site.name in inner:  # query, key and value make no units that another layer reads
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
    """The layer whose result is added to something else for the norm at `index` alone; None if that is no such norm."""
    calls = wiring.calls
    if not is_norm(calls[index].module) or len(calls[index].inputs) != 1:
        return None
    total = _through(wiring, calls[index].inputs[0])
    summed = calls[total]
    if (
        summed.module is not None
        or summed.name not in SUMS
        or wiring.users(total) != [index]
        or len(summed.inputs) != 2
    ):
        return None
    branches = [i for i in (_through(wiring, i) for i in summed.inputs) if _is_linear(calls[i])]
    alone = [i for i in branches if not _read_by_layer(wiring, i)]
    return alone[0] if len(alone) == 1 else None


def _is_linear(call: Call) -> bool:
    return (
        call.module is not None
        and is_layer(call.module)
        and not isinstance(base_layer(call.module), nn.Embedding)
    )


def _through(wiring: Wiring, index: int) -> int:
    """Back through dropout to what made its input."""
    while (
        isinstance(wiring.calls[index].module, TRANSPARENT) or wiring.calls[index].name == "dropout"
    ):
        index = wiring.calls[index].inputs[0]
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


def _candidates(model: nn.Module) -> str:
    """The repeated blocks of a model, for whoever looks for its layers."""
    lists = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module)
    }
    blocks = [
        f"{name}: {len(blocks)} x {type(blocks[0]).__name__}" for name, blocks in lists.items()
    ]
    return (
        "its repeated blocks are " + ", ".join(blocks[:5])
        if blocks
        else "it has no repeated blocks"
    )
