"""The records of the benchmarks as Markdown: what stands in docs/performance.md.

python benchmarks/tables.py
"""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "results"


def load(name: str) -> dict:
    return json.loads((RESULTS / name / "record.json").read_text())["result"]


def table(rows: dict[str, dict[str, float]]) -> list[str]:
    lines = ["| | ratio | quartiles | ms |", "|---|---|---|---|"]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {row['ratio']:.3f} | {row['low']:.3f} - {row['high']:.3f} | {row['milliseconds']:.1f} |"
        )
    return lines


def density(rows: list[dict]) -> list[str]:
    lines = [
        "| stream | method | density | continual | forgetting | time of plain | most frozen layer |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        share = "-" if row["density"] is None else row["density"]
        percent = [f"{100 * row[key]:.2f}" for key in ("continual_accuracy", "forgetting_rate")]
        shares = [f"{row[key]:.2f}" for key in ("of_plain", "frozen")]
        lines.append(
            "| " + " | ".join([row["stream"], row["method"], str(share), *percent, *shares]) + " |"
        )
    return lines


def main() -> None:
    print("\n".join(["### full-width-step", "", *table(load("cost/full-width-step"))]))
    for title, rows in load("cost/compact-step").items():
        print(f"\n### {title}\n")
        if isinstance(rows, dict) and all(
            isinstance(row, dict) and "ratio" in row for row in rows.values()
        ):
            print("\n".join(table(rows)))
        else:
            print(json.dumps(rows, indent=1))
    print("\n".join(["", "### density", "", *density(load("cost/density"))]))


if __name__ == "__main__":
    main()
