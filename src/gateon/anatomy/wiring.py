"""Which call of a model feeds which, in the order in which layers run, not that of declaration."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from .composite import is_composite
from .examples import example_line

__all__ = ["Call", "Wiring", "evaluating", "is_leaf", "outputs_on", "trace"]


@dataclass
class Call:
    """One use of a module or function.

    Args:
        name: The name of the module in the model, or of the function.
        module: The module; None for a function.
        inputs: The indices of the calls whose results it takes.
    """

    name: str
    module: nn.Module | None
    inputs: tuple[int, ...]


@dataclass
class Wiring:
    """All calls of one forward pass in order, and the indices of those the model returns."""

    calls: list[Call] = field(default_factory=list)
    outputs: tuple[int, ...] = ()

    def users(self, index: int) -> list[int]:
        """The calls that take the result of call `index`."""
        return [i for i, call in enumerate(self.calls) if index in call.inputs]

    def cut_loose_ends(self) -> Wiring:
        """Drop the inputs of functions whose result is unused, such as a check for NaN."""
        used = set(self.outputs)
        for i, call in reversed(list(enumerate(self.calls))):
            if call.module is None and i not in used:
                call.inputs = ()
            used.update(call.inputs)
        return self

    def times(self, name: str) -> int:
        """How often the module with that name is called."""
        return sum(call.module is not None and call.name == name for call in self.calls)


def trace(model: nn.Module, example: Any = None) -> Wiring:
    """Trace one forward pass of the model.

    Without an example the pass is symbolic (torch.fx) and needs no data. A model whose `forward`
    branches on values cannot be traced that way and needs an example.

    Args:
        model: The network.
        example: A tensor, a tuple of positional arguments or a mapping of keyword arguments.

    >>> [call.name for call in trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU())).calls]
    ['input', '0', '1']
    """
    if example is None:
        try:
            return _trace_symbolically(model)
        except Exception as failure:
            reason = failure
        try:  # models of transformers come with an example input, which does not always fit
            return _trace_by_running(model, model.dummy_inputs)
        except Exception as failure:
            reason = failure if hasattr(model, "dummy_inputs") else reason
            why = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
            raise ValueError(
                f"{type(model).__name__} cannot be traced without data ({why}): pass example=, one "
                f"batch of its input, as in {example_line(model)}, or name the sites as a mapping."
            ) from reason
    return _trace_by_running(model, example)


def is_leaf(module: nn.Module) -> bool:
    """Whether the module counts as one call."""
    return is_composite(module) or next(module.children(), None) is None


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_leaf(m)


def _trace_symbolically(model: nn.Module) -> Wiring:
    modules = dict(model.named_modules())
    wiring = Wiring()
    index: dict[fx.Node, int] = {}
    for node in _Tracer().trace(model).nodes:
        if node.op == "get_attr" or _is_shape(node, index):
            continue
        sources = tuple(index[n] for n in node.all_input_nodes if n in index)
        if node.op == "output":
            wiring.outputs = sources
            continue
        if node.target is operator.getitem and wiring.calls[sources[0]].name == "halves":
            index[node] = sources[0]  # as where the model is run: both halves are one result
            continue
        index[node] = len(wiring.calls)
        module = modules[str(node.target)] if node.op == "call_module" else None
        if node.op == "placeholder":
            name = "input"
        elif module is not None:
            name = str(node.target)
        else:
            name = _label(node.target, node.args, node.kwargs)
        wiring.calls.append(Call(name, module, sources))
    return wiring.cut_loose_ends()


def _is_shape(node: fx.Node, tensors: Mapping[fx.Node, int]) -> bool:
    """Whether the node is a number such as x.size(0), or computed from such numbers only."""
    if node.op == "call_method" and node.target in {"size", "dim", "numel", "ndimension"}:
        return True
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] in {"shape", "ndim", "device", "dtype"}
    inputs = node.all_input_nodes
    return node.op == "call_function" and bool(inputs) and not any(n in tensors for n in inputs)


def _trace_by_running(model: nn.Module, example: Any) -> Wiring:
    recorder = _Recorder()
    # Only with gradients enabled do torch's transformer layers call their submodules.
    with recorder.watching(model), evaluating(model), torch.enable_grad(), recorder:
        recorder.record("input", None, (), example)
        recorder.finish(_call(model, example))
    return recorder.wiring.cut_loose_ends()


class _Recorder(TorchFunctionMode):
    """Records the calls of a running model.

    Tensors are recognised by id() and kept alive, so that no id is recycled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wiring = Wiring()
        self.maker: dict[int, int] = {}
        self.kept: list[Tensor] = []
        self.inside = 0

    def record(self, name: str, module: nn.Module | None, taken: Any, made: Any) -> None:
        results = list(_tensors(made))
        if not results:
            return
        inputs = dict.fromkeys(self.maker[id(t)] for t in _tensors(taken) if id(t) in self.maker)
        if module is None and not inputs and name != "input":
            return  # a constant
        for tensor in results:
            self.maker[id(tensor)] = len(self.wiring.calls)
            self.kept.append(tensor)
        self.wiring.calls.append(Call(name, module, tuple(inputs)))

    def finish(self, output: Any) -> None:
        if isinstance(output, Mapping) and "logits" in output:
            output = output[
                "logits"
            ]  # hidden states and caches are returned too, but are not heads
        found = dict.fromkeys(self.maker[id(t)] for t in _tensors(output) if id(t) in self.maker)
        self.wiring.outputs = tuple(found)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.inside:
            self.record(_label(func, args, kwargs or {}), None, (args, kwargs), result)
        return result

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            self.inside += 1

        def leave_as(name: str) -> Callable[..., None]:
            def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
                self.inside -= 1
                if not self.inside:
                    self.record(name, module, (args, kwargs), output)

            return leave

        hooks = []
        try:
            for name, module in model.named_modules():
                if is_leaf(module):
                    hooks.append(module.register_forward_pre_hook(enter, with_kwargs=True))
                    hooks.append(module.register_forward_hook(leave_as(name), with_kwargs=True))
            yield
        finally:
            for hook in hooks:
                hook.remove()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run in evaluation mode; restore the mode of every module and the random state afterwards."""
    modes = {module: module.training for module in model.modules()}
    state = torch.get_rng_state()
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        torch.set_rng_state(state)


def _call(model: nn.Module, example: Any) -> Any:
    if isinstance(example, Mapping):
        return model(**example)
    return model(*example) if isinstance(example, tuple | list) else model(example)


@torch.no_grad()
def outputs_on(model: nn.Module, example: Any) -> list[Tensor]:
    """The tensors a model returns for an example in evaluation mode, or just its logits."""
    with evaluating(model):
        output = _call(model, example)
    if isinstance(output, Mapping) and "logits" in output:
        output = output["logits"]
    return list(_tensors(output))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def _label(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """One name for all spellings: "relu" for relu, relu_ and Tensor.relu, "add" for + and __add__.

    A view or reshape to (batch, -1) is called "flatten" too, a cut of the last dimension into two
    halves "halves", and gated linear units over another dimension are none of single units.
    """
    name = str(getattr(function, "__name__", function)).strip("_")
    if name in {"chunk", "tensor_split", "split"}:
        return "halves" if _halves_last_dimension(name, args, kwargs) else name
    if name == "glu":
        dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
        return "glu" if dim == -1 else "glu_elsewhere"
    if name == "flatten":
        start = args[1] if len(args) > 1 else kwargs.get("start_dim", 0)
        return "flatten" if start == 1 else "reshape"
    if name in {"view", "reshape"}:
        sizes = args[1] if len(args) > 1 and isinstance(args[1], tuple | list) else args[1:]
        if len(sizes) != 2:
            return "reshape"
        return "flatten" if sizes[1] == -1 else "flatten_to_size"
    return name


def _halves_last_dimension(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a chunk or split cuts the last dimension into two halves."""
    x, *rest = args
    rest += [value for key, value in kwargs.items() if key not in {"dim", "axis", "input"}]
    parts, dim = rest[0], rest[1] if len(rest) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
    if isinstance(x, Tensor) and isinstance(dim, int) and dim >= 0:
        dim -= x.dim()
    if dim != -1:
        return False
    if isinstance(parts, tuple | list):
        return len(parts) == 2 and parts[0] == parts[1] and name == "split"
    if name == "split":
        return isinstance(x, Tensor) and x.shape[-1] == 2 * parts
    return bool(parts == 2) and not (isinstance(x, Tensor) and x.shape[-1] % 2)
