"""Small data and small settings for tests of the living model."""

from __future__ import annotations

import numpy as np
import pytest

from gateon.life import settings, training
from gateon.life.settings import Settings

SMALL = {
    "texts": Settings(model="tiny", hidden=(64,), features=128, epochs=8, lr=3e-3),
    "images": Settings(channels=(8,), hidden=(64,), features=128, epochs=8, batch=8, lr=3e-3),
    "features": Settings(hidden=(64,), features=128, epochs=8, lr=3e-3),
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Networks that learn in a tenth of a second."""
    for kind, small in SMALL.items():
        monkeypatch.setitem(settings.DEFAULTS, kind, small)
    monkeypatch.setattr(training, "FEWEST", 60)


def clouds(seed, labels, rows=120, noise=0.4, draw=0):
    """Rows of five numbers around one centre a label, and their labels."""
    centres = 2 * np.random.default_rng(seed).normal(size=(len(labels), 5))
    drawn = np.random.default_rng(1000 * seed + draw)
    y = np.arange(rows) % len(labels)
    x = centres[y] + noise * drawn.normal(size=(rows, 5))
    return x, [labels[n] for n in y]


def write_csv(path, source):
    x, y = source
    lines = [
        ",".join([*(f"{value:.4f}" for value in row), name]) for row, name in zip(x, y, strict=True)
    ]
    path.write_text("a,b,c,d,e,label\n" + "\n".join(lines) + "\n")
    return path
