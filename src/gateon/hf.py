"""Gates for pretrained encoders of transformers: attach, obstruct, save and load, and a callback for Trainer.

Your own loop::

    gates = gateon.hf.attach(model, contexts=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    handle = gateon.hf.obstruct(optimizer, gates)
    for k, batches in enumerate(tasks):
        gates.switch(k)
        ...

Or `Trainer(..., callbacks=[GateONCallback(context=k)])`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from torch.optim import Optimizer

from . import checkpoint
from .encoders import encoder_sites
from .gates import Gates, gates_of
from .gates import attach as attach_anywhere
from .methods.gateon import first_rate, preset
from .models.text import TextClassifier
from .obstruct import Obstruction, Rules, View, obstruction_of
from .obstruct import obstruct as obstruct_anywhere
from .sites import Site

try:
    import transformers
except ImportError as error:
    raise ImportError("gateon.hf needs transformers: pip install 'gateon[text]'.") from error

__all__ = ["FILE", "GateONCallback", "Loaded", "attach", "from_pretrained", "obstruct", "save_pretrained"]

FILE = "gateon.safetensors"  # beside the weights: gates and availabilities
KEY = "gateon"  # in the first parameter group of a saved optimizer
LANGUAGE = preset("language")


def attach(model: nn.Module, contexts: int = 1, *, example: Any = None, steepness: float = LANGUAGE.steepness) -> Gates:
    """Give an encoder like BERT open gates, in place: until it is trained, it computes what it did before, bit for bit.

    Gates go behind embeddings, attention, the activation between the two Linears of a block, its output, and the pooler. The
    weights of embeddings and attention are fixed; their gates learn. `gateon.attach(model, start="open")` gates any other network.

    Args:
        model: BERT, DistilBERT, RoBERTa, ELECTRA, MiniLM ..., with or without output layers; or a `text_classifier`.
        contexts: how many to begin with; `Gates.add_context` adds more at any time.
        example: one batch of input, for models that carry none.
        steepness: how much faster than weights gates learn.

    >>> from transformers import BertConfig, BertForSequenceClassification
    >>> config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    >>> gates = attach(BertForSequenceClassification(config), contexts=3)
    >>> len(gates.gates), gates.contexts, sorted({float(gain.mean()) for gain in gates.gain(2).values()})
    (5, 3, [1.0])
    """
    return attach_anywhere(
        model, contexts, density=LANGUAGE.density, start=LANGUAGE.start, sites=encoder_sites(model, example), steepness=steepness
    )


def obstruct(
    optimizer: Optimizer,
    gates: Gates,
    *,
    per: View = "unit",
    rate: float | Mapping[str, float] = LANGUAGE.rate,
    epsilon: float = LANGUAGE.epsilon,
    head: bool = LANGUAGE.obstruct_head,
    first_task_steps: int | None = None,
) -> Obstruction:
    """`gateon.obstruct` with the settings of language models.

    Args:
        optimizer: any torch optimizer built after `attach`.
        gates: what `attach` returned.
        per: "unit" (n-GateON) or "parameter" (p-GateON).
        rate: eta_A.
        epsilon: relevance below it unfreezes.
        head: obstruct the output layers too.
        first_task_steps: how many steps the first task has; below 50 its rate is twice as high, as in the paper.
    """
    usual = rate if isinstance(rate, float | int) else max(rate.values())
    first = None if first_task_steps is None else first_rate(first_task_steps, usual)
    return obstruct_anywhere(optimizer, gates, per=per, rate=rate, epsilon=epsilon, head=head, first_rate=first)


class GateONCallback(transformers.TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Learn a task in its own context::

        trainer = Trainer(model=model, args=args, train_dataset=reviews, callbacks=[GateONCallback(context=0)])
        trainer.train()

    The next task takes the same model, a new Trainer and `GateONCallback(context=1)`. A model without gates gets those of
    `gateon.hf.attach`. Evaluate an earlier task with `gateon.gates_of(model).show(0)`.

    Availabilities are saved with the optimizer of a checkpoint, so that `resume_from_checkpoint` goes on as if nothing had
    happened, wherever that checkpoint lies.

    Args:
        context: of this task; contexts that do not exist yet are added.
        per: "unit" (n-GateON) or "parameter" (p-GateON).
        rate: eta_A; twice as high in context 0 if its task has fewer than 50 steps.
        epsilon: relevance below it unfreezes.
        head: obstruct the output layers too.
    """

    def __init__(
        self,
        context: int = 0,
        *,
        per: View = "unit",
        rate: float = float(LANGUAGE.rate),  # type: ignore[arg-type]
        epsilon: float = LANGUAGE.epsilon,
        head: bool = LANGUAGE.obstruct_head,
    ) -> None:
        if context < 0:
            raise ValueError(f"A context is an index of at least 0, not {context}.")
        self.context, self.per, self.rate, self.epsilon, self.head = context, per, rate, epsilon, head
        self.handle: Obstruction | None = None
        self._hook: Any = None

    def on_init_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Before Trainer builds its optimizer: the gates of this context must exist."""
        model = given["model"]
        gates = gates_of(model)
        if gates is None:
            gates = attach(model, self.context + 1)
        while gates.contexts <= self.context:
            gates.add_context()

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Switch, and obstruct the optimizer inside whatever Accelerate has made of it."""
        gates = gates_of(given["model"])
        if gates is None:
            raise ValueError("The model has lost its gates since Trainer was made: do not detach() or replace it in between.")
        inner = _unwrapped(given["optimizer"])
        self.handle = self._obstruction(gates, state.max_steps)
        self.handle.follow(inner)
        gates.switch(self.context)
        saved = inner.param_groups[0].pop(KEY, None)
        if saved is not None:
            self.handle.load_state_dict(saved)
        elif state.global_step > 0:
            raise ValueError(
                f"The checkpoint of step {state.global_step} holds no availabilities, as it was made without GateONCallback: "
                "resume without it, or start anew."
            )
        self._hook = inner.register_state_dict_post_hook(self._save_with)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the optimizer's files alone again; availabilities stay with the gates."""
        if self._hook is not None:
            self._hook.remove()

    def _obstruction(self, gates: Gates, steps: int) -> Obstruction:
        """The model's own, from the tasks before, or a new one."""
        handle = obstruction_of(gates)
        if handle is None:
            first = first_rate(steps, self.rate) if self.context == 0 else None
            rules = Rules(self.per, self.rate, self.epsilon, 0.0, "gradient", "switch", "update", self.head, (), False, first)
            return Obstruction(gates, rules)
        if handle.rules.per != self.per:
            raise ValueError(f"This model was learned with availabilities per {handle.rules.per}: pass per={handle.rules.per!r}.")
        return handle

    def _save_with(self, optimizer: Optimizer, saved: dict[str, Any]) -> None:
        # Unknown entries of parameter groups survive Optimizer.load_state_dict, which Trainer calls before this callback is asked.
        if self.handle is not None:
            saved["param_groups"][0][KEY] = self.handle.state_dict()


def _unwrapped(optimizer: Any) -> Optimizer:
    """Accelerate's optimizer holds the one that steps."""
    while not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        optimizer = optimizer.optimizer
    inner: Optimizer = optimizer
    return inner


class Loaded(NamedTuple):
    """What `from_pretrained` returns. `handle.follow(optimizer)` goes on obstructing; None if nothing was obstructed."""

    model: Any
    gates: Gates
    handle: Obstruction | None


def save_pretrained(model: nn.Module, directory: str | Path, handle: Obstruction | None = None) -> None:
    """Write the weights as transformers does, and gates and availabilities in one file beside them.

    The weights alone are a model of transformers as any other, without gates.

    Args:
        model: a gated model of transformers, or a gated `text_classifier`.
        directory: where to; made if it does not exist.
        handle: what `obstruct` returned; None finds it.
    """
    gates = gates_of(model)
    if gates is None:
        raise ValueError("This model has no gates: attach them first, or use model.save_pretrained.")
    handle = handle or obstruction_of(gates)
    encoder: Any = model.encoder if isinstance(model, TextClassifier) else model
    if not isinstance(encoder, transformers.PreTrainedModel):
        raise ValueError(f"{type(model).__name__} is no model of transformers: save model.state_dict() and handle.state_dict().")
    encoder.save_pretrained(directory, state_dict={k: v for k, v in encoder.state_dict().items() if "context_gate" not in k})
    state = {
        "gates": {name: gate.weight for name, gate in gates.gates.items()},
        "sites": [asdict(site) for site in gates.sites.values()],
        "arguments": gates.arguments,
        "context": gates.context if isinstance(gates.context, int) else gates.context.tolist(),
        "rules": None if handle is None else asdict(handle.rules),
        "availability": None if handle is None else handle.state_dict(),
        "classifier": None,
    }
    if isinstance(model, TextClassifier):
        head = {name: tensor for name, tensor in model.head.state_dict().items() if "context_gate" not in name}
        names = ("pad", "separator", "pooling")
        state["classifier"] = {name: getattr(model, name) for name in names} | {"head": head, "dropout": model.dropout.p}
    checkpoint.save(state, Path(directory) / FILE)


def from_pretrained(directory: str | Path) -> Loaded:
    """The model, gates and availabilities that `save_pretrained` wrote, bit for bit; in evaluation mode, as transformers has it."""
    path = Path(directory) / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no {FILE}: write it with gateon.hf.save_pretrained.")
    state = checkpoint.load(path)
    config = transformers.AutoConfig.from_pretrained(directory)
    kind = getattr(transformers, (config.architectures or ["AutoModel"])[0], None)
    if kind is None:
        raise ValueError(f"{directory} holds a {config.architectures[0]}, which this transformers does not know.")
    model: Any = kind.from_pretrained(directory, dtype="auto")
    if (kept := state["classifier"]) is not None:
        head = kept.pop("head")
        model = TextClassifier(model, len(head["weight"]), **kept)
        model.head.load_state_dict(head)
        model.to(head["weight"].dtype).eval()
    weights = state["gates"]
    contexts = len(next(iter(weights.values())))
    gates = attach_anywhere(model, contexts, sites=[_site(values) for values in state["sites"]], **state["arguments"])
    for name, gate in gates.gates.items():
        assert gate.weight is not None
        gate.weight.data.copy_(weights[name])
    gates.switch(state["context"])
    if state["rules"] is None:
        return Loaded(model, gates, None)
    rules = state["rules"]
    handle = Obstruction(gates, Rules(**(rules | {"frozen": tuple(rules["frozen"])})))
    handle.load_state_dict(state["availability"])
    return Loaded(model, gates, handle)


def _site(values: Mapping[str, Any]) -> Site:
    held: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return Site(**held)
