"""A gguf file as an ordinary model of transformers: whole weights in safetensors, and a tokenizer."""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from .library import transformers, without_reports

__all__ = ["from_gguf"]


def from_gguf(file: Path, place: Path) -> list[Path]:
    """Write the model and the tokenizer of a gguf file as transformers does; the files written.

    Weights of few bits become float32, so that they can be trained.

    Args:
        file: The gguf file.
        place: An existing directory.
    """
    library, before = transformers(), set(place.iterdir())
    where: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
    with without_reports(), redirect_stderr(StringIO()):  # bars of progress
        tokenizer = library.AutoTokenizer.from_pretrained(file.parent, **where)
        read = library.AutoModelForCausalLM.from_pretrained(
            file.parent, **where, dtype=torch.float32
        )
        config = read.config
        # A model that was read from a few bits refuses to be saved: its twin knows nothing of
        # them.
        del config.quantization_config
        whole = type(read)(config)
        whole.load_state_dict(read.state_dict())
        whole.generation_config = read.generation_config
        whole.save_pretrained(place)
        tokenizer.save_pretrained(place)
    return sorted(set(place.iterdir()) - before)
