"""A task as files that run without gateon: folded, plain, with everything that prepares its input."""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_linear_bn_weights

from ..detection.ridge import signs
from .asking import believed
from .encode_features import FARTHEST, FeatureEncoder
from .encode_images import ImageEncoder
from .exported.plain import Answer, FeatureTask, ImageTask, TextTask, perceptron
from .front import SIDE
from .knowledge import Knowledge
from .manual import manual
from .task import Task

__all__ = ["FORMATS", "Format", "export", "known_task", "plain_task"]

Format = Literal["torch", "onnx", "hf"]
FORMATS: tuple[str, ...] = get_args(Format)
TOLERANCE = 1e-3  # of a probability: float32 in another order
PROBES = 3  # samples that are compared


def export(knowledge: Knowledge, task: Task, format: Format, folder: Path) -> Path:
    """Write a task as a directory of files that run without gateon.

    What was written is read back and compared with the model before the directory appears.

    Args:
        knowledge: of the model.
        task: one of its tasks.
        format: torch (`torch.export`), onnx, or hf (transformers, texts only).
        folder: to write; it must not exist.
    """
    if format not in FORMATS:
        raise ValueError(f"There is no format {format!r}: choose {', '.join(FORMATS)}.")
    if format == "hf" and knowledge.kind != "texts":
        raise ValueError(
            f"The format hf is for models of texts, and this one reads {knowledge.kind}: "
            "choose onnx or torch."
        )
    if folder.exists():
        raise ValueError(f"{folder} already exists: give another one with --out.")
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        WRITERS[format](knowledge, task, aside)
        (aside / "task.json").write_text(_described(knowledge, task, format), encoding="utf-8")
        (aside / "README.md").write_text(manual(knowledge, task, format), encoding="utf-8")
        aside.rename(folder)
    finally:
        with suppress(OSError):
            shutil.rmtree(aside, ignore_errors=True)
    return folder


@torch.no_grad()
def plain_task(knowledge: Knowledge, task: Task) -> nn.Module:
    """The model for one known task, as a plain module."""
    encoder = knowledge.front.encoder
    answer = _answer(knowledge, task).eval()
    _check_answer(knowledge, task, answer)
    module: nn.Module
    if isinstance(encoder, ImageEncoder):
        module = ImageTask(SIDE, answer)
    elif isinstance(encoder, FeatureEncoder):
        places = [len(words) + 2 for words in encoder.categories.values()]
        module = FeatureTask(len(encoder.numbers), places, FARTHEST, answer)
        for number, (mean, deviation) in enumerate(encoder.numbers.values()):
            module.mean[number], module.deviation[number] = mean, deviation
    else:
        sentences = knowledge.front.sentences
        module = TextTask(sentences.network.encoder, sentences.layers, answer)
    return module.eval()


def _answer(knowledge: Knowledge, task: Task) -> Answer:
    recogniser, network = knowledge.recogniser, knowledge.network
    ridge = recogniser.ridge
    names = {label: number for number, label in enumerate(task.labels)}
    experts = [_expert(network.folded(part.context), part.rows) for part in task.parts]
    labels = [[names[label] for label in part.labels] for part in task.parts]
    answer = Answer(ridge.inputs, ridge.width, labels, experts)
    rows = [row for part in task.parts for row in part.rows]
    answer.signs.copy_(signs(ridge.inputs, ridge.width, ridge.seed))
    answer.weights.copy_(ridge.weights()[:, rows])
    answer.scales.copy_(torch.tensor([recogniser.a, recogniser.b, recogniser.c]))
    return answer


def _expert(folded: nn.Module, rows: tuple[int, ...]) -> nn.Module:
    """The folded sub-network with the outputs of its task alone; norms are folded into layers."""
    layers = dict(folded.named_children())
    *_, last = layers
    head = layers[last]
    assert isinstance(head, nn.Linear)
    chosen = nn.Linear(head.in_features, len(rows))
    chosen.weight.copy_(head.weight[list(rows)])
    chosen.bias.copy_(head.bias[list(rows)])
    body = [module for name, module in layers.items() if name != last]
    if any(isinstance(module, nn.Conv2d) for module in body):
        return nn.Sequential(*body, chosen).eval()
    linears: list[nn.Linear] = []
    for module in (*body, chosen):
        if isinstance(module, nn.Linear):
            linears.append(module)
        elif isinstance(module, nn.BatchNorm1d):
            linears[-1] = _fused(linears[-1], module)
    made = perceptron([linears[0].in_features, *(linear.out_features for linear in linears)])
    for new, old in zip(_linears(made), linears, strict=True):
        new.weight.copy_(old.weight)
        new.bias.copy_(old.bias)
    return made.eval()


def _linears(network: nn.Module) -> list[nn.Linear]:
    return [module for module in network.children() if isinstance(module, nn.Linear)]


def _fused(linear: nn.Linear, norm: nn.BatchNorm1d) -> nn.Linear:
    """A layer and the norm behind it, in evaluation, as one layer."""
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None and variance is not None
    scale = torch.ones_like(mean) if norm.weight is None else norm.weight
    shift = torch.zeros_like(mean) if norm.bias is None else norm.bias
    fused = nn.Linear(linear.in_features, linear.out_features)
    weight, bias = fuse_linear_bn_weights(
        linear.weight, linear.bias, mean, variance, norm.eps, scale, shift
    )
    fused.weight.copy_(weight)
    fused.bias.copy_(bias)
    return fused


def _check_answer(knowledge: Knowledge, task: Task, answer: Answer) -> None:
    """Compare the plain module with the model on samples drawn at random."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((16, *knowledge.front.shape), generator=generator)
    belief = believed(knowledge, x, task)
    columns = [belief.names.index(label) for label in task.labels]
    said = answer(x, knowledge.front.recognised_by(x)).exp()
    _check(belief.labels[:, columns], said)


# Formats


@torch.no_grad()
def _write_torch(knowledge: Knowledge, task: Task, folder: Path) -> None:
    module = plain_task(knowledge, task)
    inputs, dynamic = _example(knowledge)
    program = torch.export.export(module, (), inputs, dynamic_shapes=dynamic)
    torch.export.save(program, folder / "model.pt2")
    read = torch.export.load(folder / "model.pt2").module()
    _check(module(**inputs).exp(), read(**inputs).exp())
    _keep_tokenizer(knowledge, folder)


@torch.no_grad()
def _write_onnx(knowledge: Knowledge, task: Task, folder: Path) -> None:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "The format onnx needs onnxscript and onnxruntime: pip install 'gateon[onnx]'."
        ) from error
    module = plain_task(knowledge, task)
    inputs, dynamic = _example(knowledge)
    with _quiet():
        torch.onnx.export(
            module,
            (),
            folder / "model.onnx",
            kwargs=inputs,
            dynamic_shapes=dynamic,
            output_names=["log_probabilities"],
            external_data=False,
            verbose=False,
        )
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    arrays = {name: value.numpy() for name, value in inputs.items()}
    _check(module(**inputs).exp(), torch.from_numpy(session.run(None, arrays)[0]).exp())
    _keep_tokenizer(knowledge, folder)


@torch.no_grad()
def _write_hf(knowledge: Knowledge, task: Task, folder: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    from .exported.modeling_task import TaskConfig, TaskModel

    module = plain_task(knowledge, task)
    assert isinstance(module, TextTask)
    answer = module.answer
    encoder: Any = knowledge.front.sentences.network.encoder
    sizes = [
        [linears[0].in_features, *(linear.out_features for linear in linears)]
        for linears in map(_linears, answer.networks)
    ]
    config = TaskConfig(
        encoder=encoder.config.to_dict(),
        layers=module.layers,
        inputs=answer.signs.shape[0],
        width=answer.signs.shape[1],
        rows=[[task.labels.index(label) for label in part.labels] for part in task.parts],
        sizes=sizes,
        id2label=dict(enumerate(task.labels)),
        label2id={label: number for number, label in enumerate(task.labels)},
        auto_map={
            "AutoConfig": "modeling_task.TaskConfig",
            "AutoModelForSequenceClassification": "modeling_task.TaskModel",
        },
    )
    whole = TaskModel(config)
    whole.task.load_state_dict(module.state_dict())
    whole.save_pretrained(folder)
    for name in ("plain.py", "modeling_task.py"):
        source = files(f"{__package__}.exported") / name
        (folder / name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    _keep_tokenizer(knowledge, folder)
    read = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    inputs, _ = _example(knowledge)
    _check(module(**inputs).exp(), read.eval()(**inputs).logits.exp())


WRITERS: Mapping[str, Callable[[Knowledge, Task, Path], None]] = {
    "torch": _write_torch,
    "onnx": _write_onnx,
    "hf": _write_hf,
}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warnings about its own exporter."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _example(knowledge: Knowledge) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Inputs to try a module with, and which of their dimensions may change."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.export.Dim("rows")
    encoder = knowledge.front.encoder
    if isinstance(encoder, ImageEncoder):
        shape = (PROBES, encoder.channels, encoder.size, encoder.size)
        return {"images": torch.rand(shape, generator=generator)}, {"images": {0: rows}}
    if isinstance(encoder, FeatureEncoder):
        places = [len(words) + 2 for words in encoder.categories.values()]
        scales = torch.tensor(list(encoder.numbers.values()), dtype=torch.float64).reshape(-1, 2)
        drawn = torch.randn(PROBES, len(scales), generator=generator, dtype=torch.float64)
        numbers = drawn * scales[:, 1] + scales[:, 0]
        numbers[0] = torch.nan  # all missing
        columns = [torch.randint(0, n, (PROBES, 1), generator=generator) for n in places]
        categories = torch.cat(columns, 1) if columns else torch.zeros(PROBES, 0, dtype=torch.int64)
        inputs = {"numbers": numbers, "categories": categories}
        return inputs, {name: {0: rows} for name in inputs}
    texts = ["a first text", "another one, a little longer than the first", "short"]
    found = knowledge.front.sentences.tokenizer(texts, padding=True, return_tensors="pt")
    inputs = {name: found[name] for name in ("input_ids", "attention_mask")}
    longest = torch.export.Dim("tokens", min=2, max=knowledge.front.sentences.longest)
    return inputs, {name: {0: rows, 1: longest} for name in inputs}


def _check(expected: Tensor, found: Tensor) -> None:
    """Refuse files that compute something else than the model."""
    difference = (expected - found).abs().max().item()
    if not difference < TOLERANCE:
        raise ValueError(
            f"The exported files do not compute what the model does: probabilities differ by "
            f"{difference:.2g}; nothing was kept. Choose another format."
        )


def _keep_tokenizer(knowledge: Knowledge, folder: Path) -> None:
    if knowledge.kind == "texts":
        knowledge.front.sentences.tokenizer.save_pretrained(folder)


def _described(knowledge: Knowledge, task: Task, format: str) -> str:
    """What a program needs to know, as JSON: labels by output, and how input is prepared."""
    encoder = knowledge.front.encoder
    content: dict[str, Any] = {"task": task.name, "labels": list(task.labels), "format": format}
    content["output"] = "log-probabilities, one column for each label"
    if isinstance(encoder, FeatureEncoder):
        content["numbers"] = list(encoder.numbers)
        content["categories"] = dict(encoder.categories)
    elif isinstance(encoder, ImageEncoder):
        content |= {"size": encoder.size, "channels": encoder.channels}
    else:
        content["longest"] = knowledge.front.sentences.longest
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def known_task(knowledge: Knowledge, name: str | None) -> Task:
    """The task with this name; by default the only one."""
    names = ", ".join(task.name for task in knowledge.tasks)
    if name is None and len(knowledge.tasks) == 1:
        return knowledge.tasks[0]
    if name is None:
        raise ValueError(f"Which task? Choose one of {names}.")
    found = knowledge.task(name)
    if found is None:
        raise ValueError(f"There is no task {name!r}: choose one of {names}.")
    return found
