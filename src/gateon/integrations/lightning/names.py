"""Lightning under the name it is installed by: lightning, or pytorch_lightning."""

from __future__ import annotations

from typing import Any

__all__ = ["Callback"]

Callback: Any
try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise ImportError(
            "gateon.integrations.lightning needs Lightning: pip install 'gateon[lightning]'."
        ) from error
