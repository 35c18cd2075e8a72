"""Figures of records, through one style."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..record import Record

__all__ = ["compare_figure"]

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 150,
    "savefig.bbox": "tight",
}
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568")


def compare_figure(records: Mapping[str, Record], path: Path) -> list[Path]:
    """Accuracy matrices side by side, and the mean accuracy over the tasks seen so far; written as PNG and SVG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):  # type: ignore[arg-type]  # its keys are a long Literal
        figure, axes = plt.subplots(1, len(records) + 1, figsize=(3.4 * (len(records) + 1), 3.2))
        for n, (name, record) in enumerate(records.items()):
            size = len(record.accuracy)
            values = np.full((size, size), np.nan)
            for k, row in enumerate(record.accuracy):
                values[k, : len(row)] = [np.nan if a is None else 100 * a for a in row]
            image = axes[n].imshow(values, vmin=0, vmax=100, cmap="viridis")
            axes[n].set(title=name, xlabel="tested on task", ylabel="after learning task")
            ticks = range(0, size, max(1, size // 10))
            axes[n].set_xticks(ticks, [t + 1 for t in ticks])
            axes[n].set_yticks(ticks, [t + 1 for t in ticks])
            figure.colorbar(image, ax=axes[n], fraction=0.046, label="accuracy (%)")
            means = values.mean(axis=1, where=np.tri(size, dtype=bool))  # NaN, and not drawn, where some task was not measured
            axes[-1].plot(range(1, size + 1), means, "o-", color=COLOURS[n % len(COLOURS)], markersize=3, label=name)
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        axes[-1].set(xlabel="tasks learned", ylabel="mean accuracy over them (%)", ylim=(0, 102))
        axes[-1].legend(frameon=False)
        figure.tight_layout()
        written = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
        for file in written:
            figure.savefig(file)
        plt.close(figure)
    return written
