"""Gates for LoRA and for pretrained encoders of transformers, in your own loop or with Trainer.

Your own loop::

    gates = gateon.hf.attach(model, contexts=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    handle = gateon.hf.obstruct(optimizer, gates)
    for k, batches in enumerate(tasks):
        gates.switch(k)
        ...

With Trainer: `Trainer(..., callbacks=[GateONCallback(context=k)])`.
"""

try:
    import transformers  # noqa: F401
except ImportError as error:
    raise ImportError("gateon.hf needs transformers: pip install 'gateon[text]'.") from error

from .callback import GateONCallback
from .encoders import attach, obstruct
from .ranks import Adapted, lora
from .saving import FILE, Loaded, from_pretrained, save_pretrained
from .serving import in_contexts, merge

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
