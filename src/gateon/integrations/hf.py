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

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..anatomy.adapters import is_peft
from ..anatomy.encoders import encoder_sites
from ..anatomy.sites import Site
from ..availability.obstruct import Obstruction, Rules, View, obstruction_of
from ..availability.obstruct import obstruct as obstruct_anywhere
from ..availability.rule import Rate
from ..gating.attach import attach as attach_anywhere
from ..gating.gates import Gates, gates_of
from ..methods.gateon import first_rate, preset
from ..networks.pretrained import with_weights
from ..networks.text import TextClassifier
from ..storage import checkpoint
from ..storage.files import is_regular, printable
from ..storage.states import (
    ANYTHING,
    COUNT,
    FLAG,
    NUMBER,
    Partly,
    Whole,
    availabilities_like,
    check,
    check_fits,
    grown,
)
from ..storage.states import Rule as Fits

try:
    import transformers
except ImportError as error:
    raise ImportError("gateon.hf needs transformers: pip install 'gateon[text]'.") from error

__all__ = [
    "FILE",
    "GateONCallback",
    "Loaded",
    "attach",
    "from_pretrained",
    "obstruct",
    "save_pretrained",
]

FILE = "gateon.safetensors"  # beside the weights: gates and availabilities
KEY = "gateon"  # in the first parameter group of a saved optimizer
GATE = "gate:"  # there: how the names of gates begin, among those of availabilities
LANGUAGE = preset("language")


def attach(
    model: nn.Module,
    contexts: int = 1,
    *,
    example: Any = None,
    steepness: float = LANGUAGE.steepness,
) -> Gates:
    """Give an encoder like BERT open gates, in place: until it is trained, it computes what it did before, bit for bit.

    Gates go behind embeddings, attention, the activation between the two Linears of a block, its
    output, and the pooler. The weights of embeddings and attention are fixed; their gates learn.
    `gateon.attach(model, start="open")` gates any other network. In a model that PEFT has given
    adapters, what PEFT trains is trained, and nothing else.

    Args:
        model: BERT, DistilBERT, RoBERTa, ELECTRA, MiniLM ..., with or without output layers; a
            `text_classifier`; or what `get_peft_model` has made of one.
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
        model,
        contexts,
        density=LANGUAGE.density,
        start=LANGUAGE.start,
        sites=encoder_sites(model, example),
        steepness=steepness,
    )


def obstruct(
    optimizer: Optimizer,
    gates: Gates,
    *,
    per: View = "unit",
    rate: Rate | Mapping[str, Rate] = LANGUAGE.rate,
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
        first_task_steps: how many steps the first task has; below 50 its rate is twice as high, as
            in the paper.
    """
    rates = rate.values() if isinstance(rate, Mapping) else [rate]
    usual = max(max(r) if isinstance(r, tuple) else r for r in rates)
    first = None if first_task_steps is None else first_rate(first_task_steps, usual)
    return obstruct_anywhere(
        optimizer, gates, per=per, rate=rate, epsilon=epsilon, head=head, first_rate=first
    )


class GateONCallback(transformers.TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Learn a task in its own context::

        callback = GateONCallback(context=0)
        trainer = Trainer(model=model, args=args, train_dataset=reviews, callbacks=[callback])
        trainer.train()

    The next task takes the same model, a new Trainer and `GateONCallback(context=1)`. A model
    without gates gets those of `gateon.hf.attach`, and so does every model of `model_init`.

    Evaluate earlier tasks along with this one with `eval_dataset={"books": ..., "films": ...}` and
    `GateONCallback(context=1, contexts={"books": 0, "films": 1})`, or look at one with
    `gateon.gates_of(model).show(0)`.

    Gates and availabilities are saved with the optimizer of a checkpoint, so that
    `resume_from_checkpoint` goes on as if nothing had happened, wherever that checkpoint lies; and
    beside the weights, in checkpoints and by `trainer.save_model`, so that
    `gateon.hf.from_pretrained` reads them.

    Args:
        context: of this task; contexts that do not exist yet are added.
        contexts: by the name of a data set, the context it is evaluated in; others are evaluated in
            the context at hand.
        per: "unit" (n-GateON) or "parameter" (p-GateON).
        rate: eta_A; twice as high in context 0 if its task has fewer than 50 steps.
        epsilon: relevance below it unfreezes.
        head: obstruct the output layers too.
    """

    def __init__(
        self,
        context: int = 0,
        *,
        contexts: Mapping[str, int] | None = None,
        per: View = "unit",
        rate: float = float(LANGUAGE.rate),  # type: ignore[arg-type]
        epsilon: float = LANGUAGE.epsilon,
        head: bool = LANGUAGE.obstruct_head,
    ) -> None:
        self.context, self.contexts, self.per, self.rate, self.epsilon, self.head = (
            context,
            contexts or {},
            per,
            rate,
            epsilon,
            head,
        )
        for index in (context, *self.contexts.values()):
            if index < 0:
                raise ValueError(f"A context is an index of at least 0, not {index}.")
        self.handle: Obstruction | None = None
        self._hook: Any = None

    def on_init_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Before Trainer builds its optimizer: the gates of this context must exist."""
        self._gated(given["model"])
        if (trainer := _calling_trainer()) is not None:
            self._join(trainer)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Switch, and obstruct the optimizer inside whatever Accelerate has made of it."""
        gates = gates_of(given["model"])
        if gates is None:
            raise ValueError(
                "The model has lost its gates since Trainer was made, or the callback was added only then: pass it in "
                "Trainer(callbacks=[...]), and do not detach() or replace the model in between."
            )
        inner = _unwrapped(given["optimizer"])
        self.handle = self._obstruction(gates, state.max_steps)
        self.handle.follow(inner)
        gates.switch(self.context)
        saved = inner.param_groups[0].pop(KEY, None)
        if saved is not None:
            _load_gates(
                gates,
                {
                    key.removeprefix(GATE): value
                    for key, value in saved.items()
                    if key.startswith(GATE)
                },
            )
            self.handle.load_state_dict(
                {key: value for key, value in saved.items() if not key.startswith(GATE)}
            )
        elif state.global_step > 0:
            raise ValueError(
                f"The checkpoint of step {state.global_step} holds no availabilities, as it was made without GateONCallback: "
                "resume without it, or start anew."
            )
        self._hook = inner.register_state_dict_post_hook(self._save_with)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Leave the optimizer's files alone again; availabilities stay with the gates."""
        if self._hook is not None:
            self._hook.remove()
        gates = gates_of(given["model"])
        best = Path(state.best_model_checkpoint or "", FILE)
        if (
            gates is not None and args.load_best_model_at_end and best.is_file()
        ):  # files of adapters hold no gates
            _load_gates(gates, checkpoint.load(best, only=["gates"])["gates"])

    def _gated(self, model: Any) -> Any:
        """The model with gates, and with those of every context that is asked for."""
        gates, wanted = gates_of(model), 1 + max(self.context, *self.contexts.values(), 0)
        if gates is None:
            gates = attach(model, wanted)
        while gates.contexts < wanted:
            gates.add_context()
        return model

    def _join(self, trainer: Any) -> None:
        """Have a part in what Trainer tells no callback of: new models, files, and which data set it is about to evaluate."""
        named = (
            trainer.eval_dataset if self.contexts and isinstance(trainer.eval_dataset, dict) else {}
        )
        missing = next((name for name in named if name not in self.contexts), None)
        if missing is not None:
            raise ValueError(
                f"contexts= says nothing of the data set {missing!r}: add the context it is to be evaluated in."
            )
        new_model, save_model, evaluation_loop = (
            trainer.call_model_init,
            trainer.save_model,
            trainer.evaluation_loop,
        )

        def call_model_init(trial: Any = None) -> Any:
            return self._gated(new_model(trial))

        def save_with_gates(output_dir: str | None = None, _internal_call: bool = False) -> None:
            save_model(output_dir, _internal_call)
            if (
                trainer.args.should_save
                and gates_of(trainer.model) is not None
                and _saves_itself(trainer.model)
            ):
                _save_gates(trainer.model, output_dir or trainer.args.output_dir)

        def evaluate_in_context(
            dataloader: Any,
            description: str,
            prediction_loss_only: bool | None = None,
            ignore_keys: list[str] | None = None,
            metric_key_prefix: str = "eval",
        ) -> Any:
            with self._shown(trainer.model, metric_key_prefix):
                return evaluation_loop(
                    dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
                )

        trainer.call_model_init, trainer.save_model = call_model_init, save_with_gates
        trainer.evaluation_loop = evaluate_in_context

    @contextmanager
    def _shown(self, model: Any, prefix: str) -> Iterator[None]:
        """The context of the data set whose name ends the prefix of its metrics, as in eval_books; the one before it afterwards."""
        gates = gates_of(model)
        names = [name for name in self.contexts if f"_{prefix}".endswith(f"_{name}")]
        if gates is None or not names:
            yield
            return
        before = gates.context
        gates.show(self.contexts[max(names, key=len)])
        try:
            yield
        finally:
            gates.show(before)

    def _obstruction(self, gates: Gates, steps: int) -> Obstruction:
        """The model's own, from the tasks before, or a new one."""
        handle = obstruction_of(gates)
        if handle is None:
            first = first_rate(steps, self.rate) if self.context == 0 else None
            rules = Rules(
                self.per,
                self.rate,
                self.epsilon,
                0.0,
                "gradient",
                "switch",
                "update",
                self.head,
                (),
                False,
                first,
            )
            return Obstruction(gates, rules)
        if handle.rules.per != self.per:
            raise ValueError(
                f"This model was learned with availabilities per {handle.rules.per}: pass per={handle.rules.per!r}."
            )
        return handle

    def _save_with(self, optimizer: Optimizer, saved: dict[str, Any]) -> None:
        # Unknown entries of parameter groups survive Optimizer.load_state_dict, which Trainer calls
        # before this callback is asked. Gates are among them, as Trainer saves no parameters of a
        # model with adapters but those of the adapters.
        if self.handle is not None:
            gates = {
                GATE + name: weight.clone()
                for name, weight in _gate_weights(self.handle.gates).items()
            }
            saved["param_groups"][0][KEY] = self.handle.state_dict() | gates


def _calling_trainer() -> Any:
    """The Trainer that calls its callbacks, which are not told; None if it is none of transformers."""
    frame = inspect.currentframe()
    while frame is not None and not isinstance(frame.f_locals.get("self"), transformers.Trainer):
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]


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


def save_pretrained(
    model: nn.Module, directory: str | Path, handle: Obstruction | None = None
) -> None:
    """Write the weights as transformers does, and gates and availabilities in one file beside them.

    The weights alone are a model of transformers as any other, without gates. Of a model with
    adapters PEFT writes the adapters.

    Args:
        model: a gated model of transformers or of PEFT, or a gated `text_classifier`.
        directory: where to; made if it does not exist.
        handle: what `obstruct` returned; None finds it.
    """
    gates = gates_of(model)
    if gates is None:
        raise ValueError(
            "This model has no gates: attach them first, or use model.save_pretrained."
        )
    saved: Any = gates.model.encoder if isinstance(gates.model, TextClassifier) else gates.model
    if not _saves_itself(saved):
        raise ValueError(
            f"{type(model).__name__} is no model of transformers: save model.state_dict() and handle.state_dict()."
        )
    saved.save_pretrained(
        directory,
        state_dict={k: v for k, v in saved.state_dict().items() if "context_gate" not in k},
    )
    _save_gates(model, directory, handle)


def _saves_itself(model: Any) -> bool:
    return isinstance(model, transformers.PreTrainedModel) or is_peft(model, "PeftModel")


def _save_gates(model: nn.Module, directory: str | Path, handle: Obstruction | None = None) -> None:
    """Gates and availabilities as one file, and what makes a `text_classifier` out of an encoder."""
    gates = gates_of(model)
    assert gates is not None
    handle, model = handle or obstruction_of(gates), gates.model
    state = {
        "gates": _gate_weights(gates),
        "sites": [asdict(site) for site in gates.sites.values()],
        "arguments": gates.arguments,
        "context": gates.context if isinstance(gates.context, int) else gates.context.tolist(),
        "rules": None if handle is None else asdict(handle.rules),
        "availability": None if handle is None else handle.state_dict(),
        "classifier": None,
    }
    if isinstance(model, TextClassifier):
        head = {
            name: tensor
            for name, tensor in model.head.state_dict().items()
            if "context_gate" not in name
        }
        names = ("pad", "separator", "pooling")
        state["classifier"] = {name: getattr(model, name) for name in names} | {
            "head": head,
            "dropout": model.dropout.p,
        }
    checkpoint.save(state, Path(directory) / FILE)


def from_pretrained(directory: str | Path, model: nn.Module | None = None) -> Loaded:
    """The model, gates and availabilities that `save_pretrained` wrote, bit for bit; in evaluation mode, as transformers has it.

    Args:
        directory: of `save_pretrained`, or a checkpoint of Trainer with `GateONCallback`.
        model: with its weights, and without gates; where the directory holds adapters of PEFT only.
            Make it with `PeftModel.from_pretrained(model, directory, is_trainable=True)`.
    """
    path = Path(directory) / FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{directory} holds no {FILE}: write it with gateon.hf.save_pretrained."
        )
    state = checkpoint.load(path)
    with _naming(path):
        check_fits(state, _state_like)
    model = (
        _loaded_model(Path(directory), partly=state["classifier"] is not None)
        if model is None
        else model
    )
    with _naming(path):
        if state["classifier"] is not None and not isinstance(model, TextClassifier):
            model = _classifier(model, state["classifier"])
        gates = _regated(model, state)
        try:
            return Loaded(model, gates, _reobstructed(gates, state["rules"], state["availability"]))
        except BaseException:
            gates.detach()
            raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """What does not fit, in a sentence that names the file."""
    try:
        yield
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        LookupError,
        RuntimeError,
        ArithmeticError,
        AssertionError,
    ) as reason:
        told = printable(reason).rstrip(".")
        raise ValueError(
            f"{path} does not fit ({told}): write it again with gateon.hf.save_pretrained."
        ) from reason


def _texts(least: int = 0) -> Fits:
    return Fits(
        lambda value: (
            isinstance(value, list)
            and len(value) >= least
            and all(isinstance(one, str) for one in value)
        ),
        "be a list of names",
    )


def _one_of(*values: Any) -> Fits:
    return Fits(
        lambda value: type(value) in map(type, values) and value in values,
        f"be one of {', '.join(map(str, values))}",
    )


TEXT = Fits(lambda value: isinstance(value, str), "be a text")
# of a site, by their annotations
FIELDS = {
    "str": TEXT,
    "int": Whole(-8, 1 << 31),
    "bool": FLAG,
    "tuple[str, ...]": _texts(),
}


def _state_like(state: Any) -> dict[str, Any]:
    """What a file of gates looks like before it is known what model it is for."""
    weights = state["gates"]
    check(
        weights, {name: Fits(_is_weight, "be a row for every context") for name in weights}, "gates"
    )
    contexts = {len(weight) for weight in weights.values()}
    if len(contexts) != 1:
        raise ValueError("gates must have rows, and the same number of them everywhere")
    index = Whole(0, contexts.pop() - 1)
    held = state["context"]
    sites = [
        Partly(
            {f.name: FIELDS[str(f.type)] for f in fields(Site)}, ("name", "place", "owns", "units")
        )
        for _ in state["sites"]
    ]
    for site in state["sites"]:
        unknown = set(site) - {f.name for f in fields(Site)}
        if unknown:
            raise ValueError(f"sites have no {min(map(str, unknown))!r}")
    rules = state["rules"]
    return {
        "gates": ANYTHING,
        "sites": sites,
        "arguments": _known(state["arguments"], ARGUMENTS, "arguments"),
        "context": [index for _ in held] if isinstance(held, list) and held else index,
        "rules": None if rules is None else _known(rules, RULES, "rules"),
        "availability": None if rules is None else ANYTHING,
        "classifier": None if state["classifier"] is None else CLASSIFIER,
    }


def _known(held: Mapping[str, Any], like: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The template of a table that may lack what came later."""
    unknown = set(held) - set(like)
    if unknown:
        raise ValueError(f"{name} have no {min(map(str, unknown))!r}")
    return {key: like[key] for key in held}


def _is_weight(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.dim() == 2
        and min(value.shape) > 0
    )


def _are_rates(value: Any) -> bool:
    """A number, a pair of them, or either by patterns of names."""
    if isinstance(value, Mapping):
        return all(
            isinstance(name, str) and not isinstance(one, Mapping) and _are_rates(one)
            for name, one in value.items()
        )
    pair = value if isinstance(value, list) and len(value) == 2 else [value]
    return all(NUMBER.accepts(one) for one in pair)


RATES = Fits(_are_rates, "be a number, a pair of them, or numbers by patterns of names")
ARGUMENTS = {
    "density": RATES,
    "start": Fits(
        lambda value: isinstance(value, str) or NUMBER.accepts(value), "be a text or a number"
    ),
    "power": Whole(1, 1000),
    "width": NUMBER,
    "steepness": NUMBER,
    "shared": Fits(lambda value: isinstance(value, str) or _texts().accepts(value), "be names"),
    "before_norm": FLAG,
    "batch_dim": Whole(-8, 8),
    "seed": Whole(0, 1 << 63),
}
RULES = {
    "per": TEXT,
    "rate": RATES,
    "epsilon": NUMBER,
    "floor": NUMBER,
    "relevance": TEXT,
    "apply": TEXT,
    "scale": TEXT,
    "head": FLAG,
    "frozen": _texts(),
    "bias_apart": FLAG,
    "first_rate": Fits(
        lambda value: value is None or NUMBER.accepts(value), "be a number or nothing"
    ),
    "rule": None,
}
CLASSIFIER = {
    "pad": Whole(-1),
    "separator": Fits(
        lambda value: value is None or (type(value) is int and 0 <= value <= COUNT.high),
        "be a token or nothing",
    ),
    "pooling": _one_of("mean", "first"),
    "dropout": Fits(lambda value: NUMBER.accepts(value) and 0 <= value <= 1, "be between 0 and 1"),
    "head": {
        "weight": Fits(_is_weight, "be a row for every class"),
        "bias": Fits(
            lambda value: isinstance(value, Tensor) and value.is_floating_point(),
            "be a number for every class",
        ),
    },
}


def _regated(model: Any, state: Mapping[str, Any]) -> Gates:
    """Attach the gates of a file; a model they do not fit is as it was before."""
    weights, sites = state["gates"], [_site(values) for values in state["sites"]]
    room = sum(p.numel() for p in model.parameters())
    for site in sites:
        check(site.units, Whole(0, room), f"units of site {site.name}")
        if site.gated and site.name in weights:
            check(
                weights[site.name].shape[1],
                Whole(site.units, site.units),
                f"units of gate {site.name}",
            )
        for name in (site.place, *site.owns, *site.readers):
            model.get_submodule(name)
    contexts = len(next(iter(weights.values())))
    gates = attach_anywhere(model, contexts, sites=sites, **state["arguments"])
    try:
        _load_gates(gates, weights)
        gates.switch(state["context"])
    except BaseException:
        gates.detach()
        raise
    return gates


def _reobstructed(
    gates: Gates, rules: Mapping[str, Any] | None, availability: Any
) -> Obstruction | None:
    """The availabilities of a file, for a model that has its gates."""
    if rules is None:
        return None
    handle = Obstruction(gates, Rules(**{name: _pairs(value) for name, value in rules.items()}))
    known = grown(gates.model, gates.model.state_dict())
    check_fits(availability, lambda held: availabilities_like(handle.state_dict(), held, known))
    handle.load_state_dict(availability)
    return handle


def _pairs(value: Any) -> Any:
    """Lists as the tuples they were before JSON."""
    if isinstance(value, Mapping):
        return {name: _pairs(one) for name, one in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _loaded_model(directory: Path, *, partly: bool) -> Any:
    """The model whose weights are in a directory; of the encoder of a `text_classifier` some may be missing."""
    for file in directory.iterdir():
        if not file.is_dir() and not is_regular(file):
            raise ValueError(f"{file} is no regular file: remove it.")
    if (directory / "adapter_config.json").is_file():
        raise ValueError(
            f"{directory} holds adapters and no whole model: pass model=, as "
            "peft.PeftModel.from_pretrained(model, directory, is_trainable=True) makes it."
        )
    config = transformers.AutoConfig.from_pretrained(directory)
    kind = getattr(transformers, (config.architectures or ["AutoModel"])[0], None)
    if kind is None:
        raise ValueError(
            f"{directory} holds a {config.architectures[0]}, which this transformers does not know."
        )
    model, report = with_weights(kind, directory, {"dtype": "auto", "output_loading_info": True})
    if (missing := sorted(report["missing_keys"])) and not partly:
        raise ValueError(
            f"The weights in {directory} are not all there, {missing[0]!r} is missing: save the model again."
        )
    return model


def _classifier(encoder: Any, held: Mapping[str, Any]) -> TextClassifier:
    """The `text_classifier` that an encoder was part of."""
    head = held["head"]
    names = ("pad", "separator", "pooling", "dropout")
    model = TextClassifier(encoder, len(head["weight"]), **{name: held[name] for name in names})
    model.head.load_state_dict(head)
    return model.to(head["weight"].dtype).eval()


def _gate_weights(gates: Gates) -> dict[str, Tensor]:
    return {
        name: gate.weight.detach() for name, gate in gates.gates.items() if gate.weight is not None
    }


@torch.no_grad()
def _load_gates(gates: Gates, weights: Mapping[str, Tensor]) -> None:
    check(weights, _gate_weights(gates), "gates")
    for name, weight in weights.items():
        gates.gates[name].get_parameter("weight").copy_(weight)


def _site(values: Mapping[str, Any]) -> Site:
    held: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return Site(**held)
