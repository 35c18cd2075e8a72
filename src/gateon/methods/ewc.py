"""EWC: parameters that the likelihood of past tasks depends on are held near their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from ..storage.states import COUNT, NUMBER, Grown
from .base import Adopt, Method
from .shared.calls import check_seed, check_strength, evaluating, outputs, trainable
from .shared.per_sample import check_single_samples, square_sums
from .shared.quadratic import check_fits, check_loaded, energy, pull
from .shared.samples import Memory, Samples, gathered, picked, seeded

__all__ = ["EWC", "fisher"]

Labels = Literal["exact", "sampled", "empirical"]
AT_ONCE = 1000  # samples whose outputs are held at once


@dataclass
class EWC(Method):
    """Elastic weight consolidation (Kirkpatrick et al. 2017, PNAS 114:3521).

    Loss + strength / 2 * sum_k sum_i F_ki (theta_i - theta*_ki)^2 over the past tasks k, where
    theta*_k are the parameters at the end of task k and F_k is the diagonal of the Fisher
    information there: the mean over samples of the squared gradients of the log-likelihood of
        single samples. A sum of quadratics is one quadratic: with I = sum_k F_k and the centre c =
        sum_k F_k theta*_k / I it is I (theta - c)^2 and a constant, so any number of tasks costs as
        much as one.

    online: I <- decay * I + F_k and c = theta*_k, the last parameters only (Schwarz et al. 2018,
    ICML).

    The gradient of the penalty is added to the gradients just before the optimizer's step; the loss
    of the learner is that of the task alone, and `value` gives the penalty. A parameter that has no
    gradient in a step is left alone.

    Args:
        strength: lambda. The publication gives no number; with F averaged over samples, 100 is
            usual for permuted MNIST.
        online: one running quadratic instead of the sum.
        decay: gamma of the online form.
        labels: whose likelihood F measures: "exact": the expectation over the model's own predictions;
            "sampled": one label drawn from them for each sample; "empirical": the true label.
        samples: number of samples of a task, drawn at random, over which F is averaged; none for
            all.
        seed: of that choice and of sampled labels.

    >>> EWC(strength=500.0, online=True).name
    'ewc-online'
    """

    strength: float = 100.0
    online: bool = False
    decay: float = 1.0
    labels: Labels = "exact"
    samples: int | None = 1000
    seed: int = 0

    importance: dict[str, Tensor] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    centre: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    # the constant that is left of the sum
    spread: float = field(default=0.0, init=False, repr=False, compare=False)
    tasks: int = field(default=0, init=False, repr=False, compare=False)
    model: nn.Module | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:  # type: ignore[override]
        """As on the command line."""
        return "ewc-online" if self.online else "ewc"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check_strength("strength", self.strength)
        check_strength("decay", self.decay)
        check_seed(self.seed)
        Memory(self.samples)
        if self.labels not in get_args(Labels):
            raise ValueError(
                f"labels must be one of {', '.join(get_args(Labels))}, got {self.labels!r}."
            )

    def prepare(self, model: nn.Module) -> Adopt:
        """Add the penalty's gradient before every optimizer step."""
        check_single_samples(model, "EWC")
        self.model = model
        self.importance, self.centre, self.spread, self.tasks = {}, {}, 0.0, 0

        def pull_all(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            for name, p in trainable(model).items():
                if p.grad is not None and name in self.importance:
                    pull(p, self.importance[name], self.centre[name], self.strength)

        def adopt(optimizer: Optimizer) -> None:
            check_fits(self.importance, model)
            optimizer.register_step_pre_hook(pull_all)

        return adopt

    def value(self, model: nn.Module) -> Tensor:
        """The penalty."""
        return self.strength / 2 * (energy(model, self.importance, self.centre) + self.spread)

    @torch.no_grad()
    def end_task(self, model: nn.Module, task: int, data: Iterable[tuple[Any, Tensor]]) -> None:
        """Estimate the Fisher information of the task and add its quadratic."""
        check_fits(self.importance, model)
        generator = seeded(self.seed, self.tasks)
        kept = Memory(self.samples)
        kept.add(gathered(data, task, generator))
        found = fisher(model, kept.parts[0], self.labels, generator)
        for name, p in trainable(model).items():
            old, c = self.importance.get(name), self.centre.get(name)
            if old is None or c is None:  # the first task, or a parameter that is new
                self.importance[name], self.centre[name] = found[name], p.detach().clone()
            elif self.online:
                old.mul_(self.decay).add_(found[name])
                c.copy_(p)
            else:
                total = old + found[name]
                # of the new task in the centre
                share = torch.where(total > 0, found[name] / total, 1)
                self.spread += float((old * share * (p - c).square()).sum())
                old.copy_(total)
                c.lerp_(p.detach(), share)
        self.tasks += 1

    def state_dict(self) -> dict[str, Any]:
        """Importances, centres, the constant and the number of tasks."""
        return {
            "importance": dict(self.importance),
            "centre": dict(self.centre),
            "spread": self.spread,
            "tasks": self.tasks,
        }

    def state_like(self, state: Any, model: Grown) -> Any:
        """Importance and centre of the same parameters."""
        kept = {name: model.parameters[name] for name in state["importance"]}
        return {"importance": kept, "centre": kept, "spread": NUMBER, "tasks": COUNT}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        model = check_loaded(
            {"importance": state["importance"], "centre": state["centre"]}, self.model
        )
        parameters = dict(model.named_parameters())
        self.importance = {
            name: t.to(parameters[name]).clone() for name, t in state["importance"].items()
        }
        self.centre = {name: t.to(parameters[name]).clone() for name, t in state["centre"].items()}
        self.spread, self.tasks = float(state["spread"]), int(state["tasks"])


@torch.no_grad()
def fisher(
    model: nn.Module, samples: Samples, labels: Labels, generator: torch.Generator
) -> dict[str, Tensor]:
    """The diagonal of the Fisher information, F_i = mean_n E_y (d/dtheta_i log p(y | x_n))^2.

    The model is in evaluation mode. The expectation is exact over the model's classes, over one
    label drawn from its prediction, or over the true label alone.

    >>> x, y = torch.randn(20, 3), torch.zeros(20, dtype=torch.long)
    >>> samples = gathered([(x, y)], 0, torch.Generator())
    >>> found = fisher(nn.Linear(3, 2), samples, "exact", torch.Generator())
    >>> found["weight"].shape
    torch.Size([2, 3])
    """
    parameters = trainable(model)
    sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
    with evaluating(model):
        for rows in torch.arange(len(samples.y)).split(AT_ONCE):
            x = picked(samples.x, rows)
            p = outputs(model, x).softmax(1)
            n, classes = p.shape
            if (
                labels == "exact"
            ):  # sqrt(p) log p has the squared gradient p (d log p)^2, where the root is held fixed
                x = picked(x, torch.arange(n).repeat_interleave(classes))
                pick = p.sqrt().diag_embed().flatten(0, 1)
            else:
                y = (
                    samples.y[rows]
                    if labels == "empirical"
                    else torch.multinomial(p.cpu(), 1, generator=generator)[:, 0]
                )
                pick = F.one_hot(y.to(p.device), classes).to(p)
            for name, sum_ in square_sums(model, parameters, x, pick).items():
                sums[name] += sum_
    return {name: sum_ / len(samples.y) for name, sum_ in sums.items()}
