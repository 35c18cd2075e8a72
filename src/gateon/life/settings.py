"""How a living model learns: a handful of options, each with a measured default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from .columns import Kind

__all__ = ["DEFAULTS", "Settings", "settings_for"]


@dataclass(frozen=True)
class Settings:
    """The settings of a living model; all but `epochs` are fixed when it begins.

    Args:
        model: the language model that reads texts: minilm, mpnet-base, smollm2-135m, tiny, a
            directory, or a name on a hub.
        channels: of the convolutions that look at images.
        hidden: units of each hidden layer.
        dropout: of samples and hidden units, where there are no convolutions.
        density: share of the units that are open in the context of a task.
        per: whether availability is per unit or per parameter.
        rate: eta_A, of availability.
        epochs: the most passes over the rows of a task; it ends early when the held-out share gets
            no better.
        patience: epochs without an improvement after which it ends.
        batch: rows in a step.
        lr: learning rate of Adam.
        features: random features of the recogniser.
        seed: of weights, gates, the order of rows and what is held out.
    """

    model: str = "minilm"
    channels: tuple[int, ...] = ()
    hidden: tuple[int, ...] = (1000,)
    dropout: float = 0.0
    density: float = 0.25
    per: Literal["unit", "parameter"] = "unit"
    rate: float = 0.05
    epochs: int = 40
    patience: int = 6
    batch: int = 32
    lr: float = 1e-3
    features: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the settings."""
        for name, holds, wanted in (
            ("epochs", self.epochs >= 1, "at least 1"),
            ("density", 0 < self.density <= 1, "above 0 and at most 1"),
            ("dropout", 0 <= self.dropout < 1, "at least 0 and below 1"),
            ("lr", 0 < self.lr < math.inf, "above 0 and finite"),
            ("seed", 0 <= self.seed < 1 << 63, "from 0 to 2^63 - 1"),
        ):
            if not holds:
                raise ValueError(f"{name} must be {wanted}, got {getattr(self, name)}.")

    def state(self) -> dict[str, Any]:
        """What is kept, as JSON."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Settings:
        """The settings of this state."""
        lists = {name: tuple(state[name]) for name in ("channels", "hidden")}
        return cls(**{**state, **lists})


DEFAULTS: dict[Kind, Settings] = {
    "texts": Settings(hidden=(2000,), density=0.125, features=4000, dropout=0.5),
    "images": Settings(channels=(32, 64), hidden=(500,), epochs=20),
    "features": Settings(hidden=(2000, 2000), density=0.125),
}


def settings_for(
    kind: Kind,
    model: str | None = None,
    epochs: int | None = None,
    density: float | None = None,
    seed: int | None = None,
) -> Settings:
    """The measured defaults for a kind of data, overridden by what is given.

    >>> settings_for("texts", epochs=5).epochs
    5
    """
    given = {"model": model, "epochs": epochs, "density": density, "seed": seed}
    if model is not None and kind != "texts":
        raise ValueError(f"A language model reads texts, and these are {kind}: leave out --model.")
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(DEFAULTS[kind], **chosen)
