"""The integration with transformers under its short name: see `gateon.integrations.hf`."""

from .integrations.hf import (
    FILE,
    Adapted,
    GateONCallback,
    Loaded,
    attach,
    from_pretrained,
    in_contexts,
    lora,
    merge,
    obstruct,
    save_pretrained,
)

__all__ = [
    "FILE",
    "Adapted",
    "GateONCallback",
    "Loaded",
    "attach",
    "from_pretrained",
    "in_contexts",
    "lora",
    "merge",
    "obstruct",
    "save_pretrained",
]
