"""Whether two processes, or two runs, hold the same."""

from __future__ import annotations

import torch


def flat(state, prefix=""):
    """All that is nested in a state by one name each; numbers as tensors."""
    if not isinstance(state, dict | list | tuple):
        is_number = type(state) in (float, int)
        return {prefix: torch.tensor(state).double().nan_to_num(-1) if is_number else state}
    items = state.items() if isinstance(state, dict) else enumerate(state)
    return {k: v for key, value in items for k, v in flat(value, f"{prefix}{key}/").items()}


def assert_equal(one, other):
    """Equal to the bit."""
    assert one.keys() == other.keys()
    for key, value in one.items():
        is_tensor = isinstance(value, torch.Tensor)
        assert torch.equal(value, other[key]) if is_tensor else value == other[key], key
