"""What a recurrent layer hands on: its outputs at every step, and the state behind the last one.

torch computes all steps of `nn.LSTM`, `nn.GRU` and `nn.RNN` in one call, inside which no gate can
act. What acts on the units of such a layer acts on its outputs and on the last hidden state of its
top layer, which is the output of the last step. A cell is called once a step, so that what acts on
its hidden state takes part in the recurrence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

__all__ = ["on_units"]

Act = Callable[[Tensor], Tensor]


def on_units(layer: nn.Module, output: Any, act: Act, batch_dim: int = 0) -> Any:
    """What a layer returns, with a function applied to its units.

    Args:
        layer: any layer; of one that returns a tuple, the first item holds the units.
        output: what it returned.
        act: of an activity whose last dimension counts units.
        batch_dim: the dimension of activities that counts samples for `act`.
    """
    if isinstance(layer, nn.RNNBase):
        made, state = output
        hidden, *cell = state if isinstance(state, tuple) else (state,)
        hidden = _on_top(layer, hidden, act, batch_dim)
        if isinstance(made, PackedSequence):
            made = _on_packed(made, act, batch_dim)
        elif made.dim() == 2:  # one sequence, without a batch dimension
            made = _with_samples_at(made[None], 0, act, batch_dim)[0]
        else:
            made = _with_samples_at(made, 0 if layer.batch_first else 1, act, batch_dim)
        return made, (hidden, *cell) if cell else hidden
    if isinstance(output, tuple):
        return act(output[0]), *output[1:]
    return act(output)


def _with_samples_at(x: Tensor, dim: int, act: Act, batch_dim: int) -> Tensor:
    """`act` on an activity whose dimension `dim` counts samples."""
    target = batch_dim % x.dim()
    return act(x.movedim(dim, target)).movedim(target, dim)


def _on_top(layer: nn.RNNBase, hidden: Tensor, act: Act, batch_dim: int) -> Tensor:
    """`act` on the hidden state, (layers x directions, batch, units), of the top layer."""
    directions = 2 if layer.bidirectional else 1
    below, top = hidden[:-directions], hidden[-directions:]
    lone = top.dim() == 2
    top = top[:, None] if lone else top
    side_by_side = top.transpose(0, 1).flatten(1)[:, None]  # (batch, 1, directions x units)
    acted = _with_samples_at(side_by_side, 0, act, batch_dim)[:, 0]
    top = acted.unflatten(1, (directions, -1)).transpose(0, 1)
    return torch.cat([below, top[:, 0] if lone else top])


def _on_packed(made: PackedSequence, act: Act, batch_dim: int) -> PackedSequence:
    """`act` on sequences of several lengths, in the order of the batch."""
    by_length = PackedSequence(made.data, made.batch_sizes)
    padded, lengths = pad_packed_sequence(by_length, batch_first=True)
    if made.unsorted_indices is not None:
        padded = padded[made.unsorted_indices]
    padded = _with_samples_at(padded, 0, act, batch_dim)
    if made.sorted_indices is not None:
        padded = padded[made.sorted_indices]
    data = pack_padded_sequence(padded, lengths, batch_first=True).data
    return PackedSequence(data, made.batch_sizes, made.sorted_indices, made.unsorted_indices)
