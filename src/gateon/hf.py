"""The integration with transformers under its short name: see `gateon.integrations.hf`."""

from .integrations.hf import (
    FILE,
    GateONCallback,
    Loaded,
    attach,
    from_pretrained,
    obstruct,
    save_pretrained,
)

__all__ = [
    "FILE",
    "GateONCallback",
    "Loaded",
    "attach",
    "from_pretrained",
    "obstruct",
    "save_pretrained",
]
