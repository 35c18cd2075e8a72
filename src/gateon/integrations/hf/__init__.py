"""Gates for pretrained encoders of transformers, in your own loop or with Trainer.

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
from .saving import FILE, Loaded, from_pretrained, save_pretrained

__all__ = [
    "FILE",
    "GateONCallback",
    "Loaded",
    "attach",
    "from_pretrained",
    "obstruct",
    "save_pretrained",
]
