"""Random networks, learned in sub-networks and at full width: they must end in the same place.

    python benchmarks/fuzz_compact.py                          2,000 networks, with a record
    python benchmarks/fuzz_compact.py --networks 100 --dry     fewer, and no record
    python benchmarks/fuzz_compact.py --only 1234              one of them, with what differs

Networks count once they have learned in a sub-network and at full width. Those in which nothing can
be narrowed, and options that are refused at full width too, are counted apart and drawn in
addition.

Every network, method, optimizer and order of contexts is drawn from the number of the trial alone.
Both learners see the same batches in float64. Compared are all parameters, both availabilities of
everything, and the outputs in every context.

Some networks turn rounding errors into numbers of their own: where a gradient is zero but for
rounding, relevance normalises it. Where two learners differ, a third learns at full width from the
same batches in reverse order of their samples, which is the same mathematics: if everything that
differs does so there as well, rounding decides and not the sub-network.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import gateon
import measure
from gateon.networks.heads import TaskHeads

ALLOWED = 1e-7
INPUTS, CLASSES = 12, 4
ACTIVATIONS: list[Callable[[int], nn.Module]] = [
    lambda units: nn.ReLU(),
    lambda units: nn.LeakyReLU(0.1),
    lambda units: nn.PReLU(),
    lambda units: nn.PReLU(units),
    lambda units: nn.GELU(),
    lambda units: nn.Tanh(),
    lambda units: nn.Sigmoid(),
    lambda units: nn.SiLU(),
    lambda units: nn.ELU(),
]
# Steps that are Lipschitz in the gradient, or nearly: eps keeps rounding errors from becoming whole
# steps.
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.05),
    "momentum": partial(torch.optim.SGD, lr=0.02, momentum=0.9),
    "nesterov": partial(torch.optim.SGD, lr=0.02, momentum=0.9, nesterov=True),
    "adam": partial(torch.optim.Adam, lr=5e-3, eps=1e-4),
    "amsgrad": partial(torch.optim.Adam, lr=5e-3, eps=1e-4, amsgrad=True),
    "adamw": partial(torch.optim.AdamW, lr=5e-3, eps=1e-4, weight_decay=0.0),
    "adamax": partial(torch.optim.Adamax, lr=5e-3, eps=1e-4),
    "nadam": partial(torch.optim.NAdam, lr=2e-3, eps=1e-4),
    "radam": partial(torch.optim.RAdam, lr=2e-3, eps=1e-4),
    "rmsprop": partial(torch.optim.RMSprop, lr=2e-3, eps=1e-4, momentum=0.5),
    "adagrad": partial(torch.optim.Adagrad, lr=2e-2, eps=1e-4),
    "adadelta": partial(torch.optim.Adadelta, lr=0.5, eps=1e-4),
}


class Residual(nn.Module):
    """A block whose inside can be narrowed; its sum can where all that is summed has one gate."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inside(x)


class Branches(nn.Module):
    """Two layers that read the same units, summed or side by side."""

    def __init__(self, first: nn.Module, second: nn.Module, *, summed: bool) -> None:
        super().__init__()
        self.first, self.second, self.summed = first, second, summed

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x), self.second(x)
        return a + b if self.summed else torch.cat([a, b], 1)


class Functional(nn.Module):
    """An activation that is no module."""

    def __init__(self, inside: nn.Module, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inside, self.function = inside, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.inside(x))


def linear(draw: random.Random, inputs: int, units: int, *, bias: bool = True) -> nn.Module:
    layer: nn.Module = nn.Linear(inputs, units, bias=bias and draw.random() < 0.8)
    kind = draw.random()
    if kind < 0.04:
        return parametrizations.weight_norm(layer)
    return parametrizations.spectral_norm(layer) if kind < 0.06 else layer


def dense(draw: random.Random, inputs: int) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = []
    for _ in range(draw.randint(1, 3)):
        units, kind, norm = (
            draw.choice([1, 3, 8, 16, 24]),
            draw.random(),
            draw.choice([None, None, "batch", "layer"]),
        )
        # In front of a batch norm the gradient of a bias is rounding error alone, and so would its
        # availability be.
        last = partial(linear, draw, bias=norm != "batch")
        if kind < 0.15:
            layer: nn.Module = Branches(last(inputs, units), last(inputs, units), summed=True)
        elif kind < 0.25:
            layer = Branches(last(inputs, units), last(inputs, units), summed=False)
            units *= 2
        elif kind < 0.4:
            inside = nn.Sequential(
                linear(draw, inputs, units), draw.choice(ACTIVATIONS)(units), last(units, inputs)
            )
            layer, units = Residual(inside), inputs
        elif kind < 0.5:
            layer = Functional(
                linear(draw, inputs, units),
                draw.choice([torch.relu, torch.tanh, nn.functional.gelu]),
            )
        else:
            layer = last(inputs, units)
        layers.append(layer)
        if norm == "batch":
            layers.append(
                nn.BatchNorm1d(
                    units, affine=draw.random() < 0.5, track_running_stats=draw.random() < 0.8
                )
            )
        elif (
            norm == "layer" and units > 1
        ):  # of one unit it leaves a constant, and nothing before it would have a gradient
            layers.append(nn.LayerNorm(units))
        layers.append(draw.choice(ACTIVATIONS)(units))
        inputs = units
    return layers, inputs


def convolutional(draw: random.Random) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = [nn.Unflatten(1, (1, 3, 4))]
    channels, size = 1, (3, 4)
    for _ in range(draw.randint(1, 2)):
        units = draw.choice([2, 6, 9])
        normed = draw.random() < 0.5
        if draw.random() < 0.8:
            layers.append(nn.Conv2d(channels, units, 3, padding=1, bias=not normed))
        else:
            layers.append(nn.ConvTranspose2d(channels, units, 2, bias=not normed))
            size = (size[0] + 1, size[1] + 1)
        if normed:
            layers.append(nn.BatchNorm2d(units, affine=draw.random() < 0.5))
        layers.append(draw.choice(ACTIVATIONS)(units))
        if draw.random() < 0.4:
            layers.append(draw.choice([nn.MaxPool2d(2, 1), nn.AvgPool2d(2, 1)]))
            size = (size[0] - 1, size[1] - 1)
        channels = units
    return [*layers, nn.Flatten()], channels * size[0] * size[1]


def network(draw: random.Random) -> nn.Module:
    layers, units = convolutional(draw) if draw.random() < 0.3 else ([], INPUTS)
    if not layers or draw.random() < 0.6:
        more, units = dense(draw, units)
        layers = [*layers, *more]
    head = TaskHeads(units, CLASSES) if draw.random() < 0.2 else nn.Linear(units, CLASSES)
    model: nn.Module = nn.Sequential(*layers, head)
    if draw.random() < 0.8:
        model = gateon.context_norms(model, statistics=draw.choice(["context", "context", "batch"]))
    return model.double()


def method(draw: random.Random) -> gateon.GateON:
    choose = draw.choice
    chosen = gateon.GateON(
        per=choose(["unit", "parameter"]),
        rate=choose([0.0, 0.01, 0.05, 0.2]),
        epsilon=choose([0.0, 0.0, 0.5, 1.0]),
        floor=choose([0.0, 0.01]),
        relevance=choose(["gradient", "gradient", "activity", "next-layer", "next-layer-gated"]),
        apply=choose(["step", "switch"]),
        scale=choose(["update", "update", "update", "gradient"]),
        first_rate=choose([None, None, 0.0, 0.1]),
        frozen=choose([(), (), (), "*.bias"]),
        obstruct_head=choose([True, False]),
        bias_apart=choose([True, False]),
        density=choose([0.1, 0.3, 0.5, 0.9]),
        start=choose(["random", "random", 0.95]),
        width=choose([0.3, 1.0]),
        power=choose([1, 1, 2]),
        steepness=choose([1.0, 1.0, 10.0]),
        shared=choose([(), (), "*"]),
        before_norm=choose([False, False, True]),
        rescale=choose([False, True]),
        prefer=choose([0.0, 0.0, 3.0]),
        inherit=choose([False, False, True]),
        gate_penalty=choose([0.0, 0.0, 0.1]),
        seed=draw.randrange(1000),
    )
    # Not drawn with the others, so that those of a number stay what they were.
    chosen.residual = random.Random(chosen.seed).choice(["branch", "stage"])
    return chosen


def learned(number: int, *, compact: bool, reverse: bool = False) -> gateon.Learner:
    draw = random.Random(number)
    torch.manual_seed(number)
    model, with_method = network(draw), method(draw)
    learner = gateon.Learner(
        model,
        optimizer=OPTIMIZERS[draw.choice(list(OPTIMIZERS))],
        method=with_method,
        compact=compact,
    )
    samples, generator = draw.choice([1, 2, 7, 16]), torch.Generator().manual_seed(number)
    if any("Norm" in type(module).__name__ for module in model.modules()):
        samples = max(samples, 7)  # one sample has no variance, and two have hardly any
    for context in draw.choice([(0, 1, 0), (0, 1, 2), (2, 0, 2), (0, 0, 1)]):
        for _ in range(draw.randint(3, 8)):
            x = torch.randn(samples, INPUTS, generator=generator, dtype=torch.float64)
            y = torch.randint(0, CLASSES, (samples,), generator=generator)
            learner.observe(
                x.flip(0) if reverse else x, y.flip(0) if reverse else y, context=context
            )
    return learner


def compared(number: int, whole: gateon.Learner, part: gateon.Learner) -> dict[str, float]:
    """By what is compared, the greatest difference relative to its size where that is above one."""
    found: dict[str, float] = {}
    pairs = {
        f"parameter {n}": (a, b)
        for (n, a), (_, b) in zip(
            whole.model.named_parameters(), part.model.named_parameters(), strict=True
        )
    }
    ours, theirs = whole.method.state_dict(), part.method.state_dict()
    pairs |= {
        f"state {name}": (ours[name].double(), theirs[name].double())
        for name in ours.keys() | theirs.keys()
    }
    gates = gateon.gates_of(whole.model)
    assert gates is not None
    x = torch.randn(5, INPUTS, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    pairs |= {
        f"outputs {k}": (whole.predict(x, k).double(), part.predict(x, k).double())
        for k in range(gates.contexts)
    }
    for name, (a, b) in pairs.items():
        if not (torch.isfinite(a).all() and torch.isfinite(b).all()):
            found[name] = float("inf")
        elif a.numel():
            found[name] = ((a - b).abs() / a.abs().clamp_min(1)).max().item()
    return found


def rounding_decides(
    number: int, whole: gateon.Learner, found: dict[str, float]
) -> dict[str, Any] | None:
    """How far all that differs does so at full width too, samples reversed; None if some does not."""
    reverse = compared(number, whole, learned(number, compact=False, reverse=True))
    off = [name for name, difference in found.items() if difference > ALLOWED]
    if any(reverse[name] <= ALLOWED for name in off):
        return None
    return {
        "where": sorted(off),
        "difference": max(found[name] for name in off),
        "at full width, samples reversed": max(reverse[name] for name in off),
        "of everything else": max(found[name] for name in found if name not in off),
    }


def trial(number: int) -> dict[str, Any]:
    """What became of one network: the greatest difference, or why it cannot be made, or its crash."""
    torch.set_num_threads(1)
    try:
        whole = learned(number, compact=False)
    except FloatingPointError as reason:  # the settings diverge
        return {"number": number, "outcome": "diverged", "reason": str(reason)}
    except ValueError as reason:
        return {"number": number, "outcome": "refused", "reason": str(reason)}
    except Exception:
        return {"number": number, "outcome": "crashed", "reason": traceback.format_exc()}
    try:  # what learns at full width must learn in a sub-network too: no refusal counts here
        part = learned(number, compact=True)
        found = compared(number, whole, part)
        where = max(found, key=found.__getitem__)
        outcome = (
            "differs"
            if found[where] > ALLOWED
            else "equal"
            if part.is_compact
            else "equal, nothing to narrow"
        )
        if outcome == "differs" and (rounded := rounding_decides(number, whole, found)):
            return {"number": number, "outcome": "rounding decides"} | rounded
    except Exception:
        return {"number": number, "outcome": "crashed", "reason": traceback.format_exc()}
    return {"number": number, "outcome": outcome, "difference": found[where], "where": where}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, help="one network, with all that differs")
    parser.add_argument("--dry", action="store_true", help="write no record")
    options = parser.parse_args()
    if options.only is not None:
        print(learned(options.only, compact=True).model, method_of(options.only), sep="\n")
        whole, part = (learned(options.only, compact=compact) for compact in (False, True))
        for name, difference in compared(options.only, whole, part).items():
            print(f"{name:40} {difference:.2g}")
        return 0
    start, outcomes, counts = time.perf_counter(), [], Counter[str]()
    with ProcessPoolExecutor(options.workers) as pool:
        number = options.first
        while counts["equal"] + counts["differs"] < options.networks:
            batch = range(number, number := number + 100)
            outcomes += (seen := list(pool.map(trial, batch, chunksize=10)))
            counts.update(outcome["outcome"] for outcome in seen)
            for outcome in seen:
                if outcome["outcome"] in ("differs", "crashed", "rounding decides"):
                    print(outcome, flush=True)
            print(
                f"{len(outcomes)} drawn, {counts['equal']} equal, {time.perf_counter() - start:.0f} s",
                flush=True,
            )
    reasons = Counter(
        re.sub(r"'[\d.a-z]*\d[\d.a-z]*'", "...", outcome["reason"].split(":")[0])
        for outcome in outcomes
        if outcome["outcome"] == "refused"
    )
    worst = max(
        (o["difference"] for o in outcomes if o["outcome"].startswith(("equal", "differs"))),
        default=0.0,
    )
    result = {
        "drawn": len(outcomes),
        "outcomes": dict(counts),
        "greatest difference": worst,
        "refused because": dict(reasons),
        "rounding decides": [
            outcome for outcome in outcomes if outcome["outcome"] == "rounding decides"
        ],
    }
    print(result)
    if not options.dry:
        settings = {"networks": options.networks, "first": options.first, "allowed": ALLOWED}
        measure.write("reliability/fuzz-compact", settings, result, f"python {' '.join(sys.argv)}")
    return 1 if counts["differs"] or counts["crashed"] else 0


def method_of(number: int) -> gateon.GateON:
    """The method of a network, for whoever looks at one."""
    draw = random.Random(number)
    network(draw)
    return method(draw)


if __name__ == "__main__":
    sys.exit(main())
