"""What the paper claims and what we aim at, as data: each with a check that reads records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .findings import (
    NOT_MEASURED,
    Check,
    Finding,
    Found,
    above,
    all_of,
    at_least,
    best_row,
    fall,
    leads,
    number,
    ordered,
)
from .jobs import JOBS
from .paper import (
    CIFAR,
    CNN_FED,
    FED,
    INFERRED,
    LANGUAGE,
    LANGUAGE_TRANSFER,
    PERMUTED,
    PUBLISHED,
    ROTATED,
    SHUFFLED,
    SPLIT,
    TABLE_1,
    TABLE_CIFAR,
    TEXTS,
    Numbers,
)
from .show import entry_of

__all__ = ["CLAIMS", "TARGETS", "Claim"]

SATURATED = 1.0  # points of immediate accuracy between the first and the last tenth of the tasks
SIMILAR = 1.0  # points within which accuracies count as similar
LEARNS_LESS = (
    "where another is ahead, it is by fractions of a point and mostly in accuracy right after a task: part of the units learn a "
    "little less in so few batches; p-GateON forgets next to nothing"
)
FALLS_ON_AVERAGE = (
    "relevance has a mean of one over a layer, so that with an epsilon below 1 availability falls on average; it falls everywhere "
    "where relevance is spread over most of the few units in use, as in our sub-networks"
)
HALF_FOR_GOOD = (
    "half of a task's gates, drawn at random, start closed and have no slope to open by: tasks can share more than chance only by "
    "the gates they close, which so short a training does little of"
)
GATEON = ("n-GateON 0", "n-GateON 0.5", "n-GateON 1", "p-GateON 0", "p-GateON 0.5")


@dataclass(frozen=True)
class Claim:
    """A sentence, the paper's number where it has one, what is wanted of us, the check, and why it fails, said where it does."""

    text: str
    check: Check
    paper: str = "-"
    wanted: str = ""
    cause: str = ""


def _saturation(job: str) -> Check:
    def check(found: Found) -> Finding:
        falls = {row: fall(found, job, row, PERMUTED) for row in GATEON[:3]}
        known = {row: points for row, points in falls.items() if points is not None}
        shown = "immediate accuracy falls by " + ", ".join(
            f"{points:.2f} ({row})" for row, points in known.items()
        )
        if len(known) < 3:
            return NOT_MEASURED
        return Finding(
            shown,
            known["n-GateON 0"] > SATURATED
            and max(known["n-GateON 0.5"], known["n-GateON 1"]) < SATURATED,
        )

    return check


def _near_isolated(stream: str) -> Check:
    def check(found: Found) -> Finding:
        row = best_row(found, "table-1", stream)
        ours = None if row is None else number(found, "table-1", row, stream)
        alone = number(found, "table-1", "Isolated", stream)
        if row is None or ours is None:
            return NOT_MEASURED
        if alone is None:  # at least some tasks are also learned alone
            deviation = number(found, "table-1", row, stream, "accuracy_deviation")
            if deviation is None:
                return NOT_MEASURED
            return Finding(
                f"{stream.removesuffix('-mnist')}: accuracy deviation {deviation:+.2f}",
                abs(deviation) < SIMILAR,
            )
        return Finding(
            f"{stream.removesuffix('-mnist')} {ours:.2f} against {alone:.2f}",
            abs(ours - alone) < SIMILAR,
        )

    return check


def _first_of_its_kind(stream: str) -> Check:
    """GateON leads the methods that need no replay; all have one head in this protocol."""

    def check(found: Found) -> Finding:
        content = found.get("comparison", {"entries": []})
        rivals = {
            e["row"]: 100 * e["measures"]["continual_accuracy"]["mean"]
            for e in content["entries"]
            if e["stream"] == stream
            and e["measures"]
            and not e["replay"]
            and not e.get("heads")
            and e["row"] != "Isolated"
        }
        mine = best_row(found, "comparison", stream)
        others = {
            row: n for row, n in rivals.items() if row not in ("n-GateON", "p-GateON", "Finetune")
        }
        if mine is None or not others:
            return NOT_MEASURED
        next_ = max(others, key=lambda row: others[row])
        shown = f"{stream.removesuffix('-mnist')}: {mine} {rivals[mine]:.2f}, {next_} {others[next_]:.2f}"
        return Finding(shown, rivals[mine] > others[next_])

    return check


def _relevances(found: Found) -> Finding:
    content = found.get("figure-relevance")
    if content is None:
        return NOT_MEASURED
    parts, holds = [], []
    for stream in content["streams"]:
        numbers = [number(found, "figure-relevance", row, stream) for row in content["rows"]]
        known = [n for n in numbers if n is not None]
        if len(known) == len(content["rows"]):
            parts.append(f"{stream.removesuffix('-mnist')} " + ", ".join(f"{n:.2f}" for n in known))
            holds.append(max(known) - min(known) < SIMILAR)
    return (
        Finding(f"{'; '.join(parts)} ({', '.join(content['rows'])})", all(holds))
        if parts
        else NOT_MEASURED
    )


def _neighbours(found: Found) -> Finding:
    """Whether rotated tasks of neighbouring angles share more gates than others do."""
    correlations = _correlations(found, ROTATED)
    if correlations is None:
        return NOT_MEASURED
    tasks = correlations.shape[-1]
    apart = np.abs(np.subtract.outer(np.arange(tasks), np.arange(tasks)))
    near, far = (float(np.nanmean(correlations[:, where])) for where in (apart == 1, apart > 1))
    return Finding(
        f"mean correlation {near:.3f} of neighbours, {far:.3f} of others", near > far + 0.05
    )


def _shared_last_layer(found: Found) -> Finding:
    """Whether permuted tasks share the units of the last hidden layer more than those of the first."""
    correlations = _correlations(found, PERMUTED)
    if correlations is None:
        return NOT_MEASURED
    others = ~np.eye(correlations.shape[-1], dtype=bool)
    first, last = (float(np.nanmean(correlations[layer][others])) for layer in (0, -1))
    return Finding(
        f"mean correlation {first:.3f} in the first layer, {last:.3f} in the last",
        last > first + 0.05,
    )


def _correlations(found: Found, stream: str) -> Any:
    entry = entry_of(
        found.get("figure-correlation", {"entries": []}), "n-GateON 0", "paper", stream
    )
    return None if entry is None else np.array(entry["series"]["correlation"]["mean"], dtype=float)


def _stays_frozen(found: Found) -> Finding:
    """Units selective for task 2 have lost availability in it, and do not get it back in task 3."""
    content = found.get("figure-availability")
    if content is None or not content["entries"]:
        return NOT_MEASURED
    seen = content["entries"][0]["found"][0]
    steps, courses = len(seen["step"]) // seen["tasks"], seen["courses"]["availability"]
    selective, everyone = courses["selective for task 2"], courses["all"]
    before, after, end = selective[steps - 1], selective[2 * steps - 1], selective[-1]
    shown = f"availability {before:.2f} before task 2, {after:.2f} after it, {end:.2f} after task 3 (all units {everyone[-1]:.2f})"
    return Finding(shown, after < before and end <= after)


def _inferred_as_known(found: Found) -> Finding:
    pairs = {
        s: tuple(
            number(found, "table-hundred", "p-GateON", s, column=c) for c in ("known", "inferred")
        )
        for s in JOBS["table-hundred"].streams
    }
    known = {s: (a, b) for s, (a, b) in pairs.items() if a is not None and b is not None}
    shown = "; ".join(
        f"{s.removesuffix('-mnist')} {a:.2f} known, {b:.2f} inferred" for s, (a, b) in known.items()
    )
    return (
        Finding(shown, all(abs(a - b) < SIMILAR for a, b in known.values()))
        if known
        else NOT_MEASURED
    )


def _of_best_two(stream: str) -> Check:
    """n-GateON is one of the two best rows; joint training and networks apart are no rivals."""

    def check(found: Found) -> Finding:
        rows = found.get("table-language", {"rows": ()})["rows"]
        numbers = {
            r: number(found, "table-language", r, stream)
            for r in rows
            if r not in ("MTL (joint)", "Isolated")
        }
        known = {row: n for row, n in numbers.items() if n is not None}
        if "n-GateON" not in known or len(known) < 3:
            return NOT_MEASURED
        ranked = sorted(known, key=lambda row: -known[row])
        shown = ", ".join(
            f"{row} {known[row]:.2f}" for row in dict.fromkeys([*ranked[:2], "n-GateON"])
        )
        return Finding(f"{stream}: {shown}", "n-GateON" in ranked[:2])

    return check


def _pairs(rows: tuple[str, ...], *streams: str) -> list[tuple[str, str]]:
    return [(row, stream) for row in rows for stream in streams]


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Over ten tasks GateON comes close to networks that learn one task each.",
        all_of(*(_near_isolated(s) for s in (PERMUTED, ROTATED, SPLIT))),
    ),
    Claim(
        "GateON is ahead of all other methods that need no replay, under comparable conditions.",
        all_of(*(_first_of_its_kind(s) for s in JOBS["comparison"].streams)),
        cause=LEARNS_LESS,
    ),
    Claim(
        "Gating alone improves on a plain network.",
        ordered("table-ablation", PERMUTED, ("Vanilla", "Gating only")),
    ),
    Claim(
        "Obstruction alone improves on a plain network (so the text; the paper's own table has it the other way round).",
        ordered("table-ablation", PERMUTED, ("Vanilla", "Obstruction only")),
    ),
    Claim(
        "Neither alone competes with both.",
        all_of(
            *(
                ordered("table-ablation", s, ("Gating only", "p-GateON 0"))
                for s in (PERMUTED, ROTATED, SHUFFLED)
            )
        ),
    ),
    Claim(
        "n-GateON with epsilon 0 saturates over 100 permuted tasks, with 0.5 and 1 it does not.",
        _saturation("figure-epsilon"),
        cause=FALLS_ON_AVERAGE,
    ),
    Claim(
        "p-GateON saturates less than n-GateON (epsilon 0, continual accuracy).",
        ordered("table-ablation", PERMUTED, ("n-GateON 0", "p-GateON 0")),
    ),
    Claim(
        "A larger epsilon forgets more (n-GateON, permuted).",
        ordered("table-supplement", PERMUTED, GATEON[:3], "forgetting_rate"),
    ),
    Claim(
        "Knowledge transfers forward on rotated and shuffled tasks.",
        above("table-supplement", _pairs(GATEON, ROTATED, SHUFFLED), "accuracy_deviation", 0.0),
        cause="n-GateON 0 saturates, so that late tasks are learned worse than alone; the others are ahead of networks that learn "
        "alone from the first task on, where nothing can have been transferred, and later tasks add little to that",
    ),
    Claim(
        "It does not on permuted ones.",
        above("table-supplement", _pairs(GATEON, PERMUTED), "accuracy_deviation", 0.0, below=True),
        cause="in so few steps a sub-network learns more than networks that learn alone, at full width, from the first task on: "
        "that is no transfer",
    ),
    Claim(
        "There is no backward transfer on MNIST: the forgetting rate is positive.",
        above(
            "table-supplement", _pairs(GATEON, PERMUTED, ROTATED, SHUFFLED), "forgetting_rate", 0.0
        ),
        cause="it is next to nothing for p-GateON, above or below; nowhere is there a backward transfer worth the name",
    ),
    Claim(
        "Three measures of relevance, from gradients to mere activity, reach similar accuracy.",
        _relevances,
    ),
    Claim(
        "Units that a task selects lose availability in it and keep it low in the next.",
        _stays_frozen,
    ),
    Claim("Rotated tasks of neighbouring angles share gates.", _neighbours, cause=HALF_FOR_GOOD),
    Claim(
        "Permuted tasks share the last layer, and not the first.",
        _shared_last_layer,
        cause=HALF_FOR_GOOD,
    ),
    Claim(
        "Contexts inferred from the loss do as well as known ones (p-GateON, 100 tasks).",
        _inferred_as_known,
    ),
    Claim(
        "On language benchmarks n-GateON is the best or second best of all but joint training.",
        all_of(*map(_of_best_two, TEXTS)),
    ),
    Claim(
        "Knowledge transfers forward on texts, with n-GateON and p-GateON.",
        above(
            "table-language-transfer",
            _pairs(("n-GateON", "p-GateON"), *TEXTS),
            "accuracy_deviation",
            0.0,
        ),
    ),
    Claim(
        "n-GateON transfers backward on ASC and DSC: its forgetting rate is negative.",
        above(
            "table-language-transfer",
            _pairs(("n-GateON",), "asc", "dsc"),
            "forgetting_rate",
            0.0,
            below=True,
        ),
    ),
    Claim(
        "On texts n-GateON forgets less than p-GateON.",
        all_of(
            *(
                ordered("table-language-transfer", s, ("n-GateON", "p-GateON"), "forgetting_rate")
                for s in TEXTS
            )
        ),
    ),
)


def _printed(numbers: Numbers, row: str, stream: str) -> str:
    return f"{numbers[row][stream]['continual_accuracy']:g}"


def _hundred(stream: str, wanted: float, numbers: Numbers, row: str, column: str) -> Claim:
    text = f"{stream.removesuffix('-mnist')}, 100 tasks, contexts {column}: continual accuracy"
    return Claim(
        text,
        at_least("table-hundred", stream, wanted, column=column),
        _printed(numbers, row, stream),
        f"{wanted:g}",
    )


def _ten(
    stream: str,
    wanted: float,
    measure: str,
    name: str,
    paper: str = "-",
    *,
    at_most: bool = False,
    cause: str = "",
) -> Claim:
    words = f"{'at most ' if at_most else ''}{wanted:g}"
    check = at_least("table-1", stream, wanted, measure, at_most=at_most)
    return Claim(f"{stream.removesuffix('-mnist')}, ten tasks: {name}", check, paper, words, cause)


def _rotated_cnn(
    wanted: float, measure: str, name: str, paper: str = "-", *, at_most: bool = False
) -> Claim:
    check = at_least("table-cnn", ROTATED, wanted, measure, at_most=at_most)
    return Claim(
        f"rotated, with convolutions: {name}",
        check,
        paper,
        f"{'at most ' if at_most else ''}{wanted:g}",
        FEWER_CHANNELS,
    )


def _cifar(row: str, other: str, least: float, paper: str = "-") -> Claim:
    """A row's continual accuracy on split CIFAR-100 less that of another."""
    check = leads("table-cifar", CIFAR, row, other, least)
    cause = "" if "narrow" not in row else FILLS_UP if row.startswith("n-") else NARROW_FILLS_UP
    return Claim(
        f"split CIFAR-100, 20 tasks: {row} less {other}, points", check, paper, f"{least:+g}", cause
    )


def _texts(stream: str, other: str, least: float, printed: str, cause: str = "") -> Claim:
    """That of n-GateON on texts less that of another."""
    ours, theirs = (LANGUAGE[row][stream]["continual_accuracy"] for row in ("n-GateON 0", printed))
    check = leads("table-language", stream, "n-GateON", other, least)
    return Claim(
        f"{stream}: n-GateON less {other}, points",
        check,
        f"{ours - theirs:+.1f}",
        f"{least:+g}",
        cause,
    )


def _texts_forgotten(stream: str) -> Claim:
    check = at_least(
        "table-language", stream, 1.0, "forgetting_rate", rows=("n-GateON",), at_most=True
    )
    return Claim(
        f"{stream}: forgetting rate of n-GateON",
        check,
        f"{LANGUAGE_TRANSFER['n-GateON 0'][stream]['forgetting_rate']:g}",
        "at most 1",
    )


def _printed_lead(row: str, other: str) -> str:
    if other not in TABLE_CIFAR:
        return "-"
    ours, theirs = (
        TABLE_CIFAR[one][CIFAR]["continual_accuracy"]
        for one in (f"{row.partition(',')[0]} 0", other)
    )
    return f"{ours - theirs:+.1f}"


def _native(row: str, level: float) -> Claim:
    """The published level of another method, within a point."""
    check = at_least(
        "table-native", PERMUTED, level - 1, "final_accuracy", column="native", rows=(row,)
    )
    text = f"permuted, ten tasks, {row} in its own protocol: final accuracy"
    return Claim(text, check, f"{level:g} published", f"{level - 1:g}", FELL_SHORT.get(row, ""))


FELL_SHORT = {
    "SI": "half the published width, at the published length and strength: there is less room to put ten tasks in",
    "EWC": "a fifth of the steps, on batches twice as large",
    "XdG": "at the published size and length every task is learned, but without SI early ones are forgotten by some points. The "
    "published code trains at a third of the rate it states, since its Adam does not count its steps, and leaves the bias of the "
    "output layer alone; neither is done here",
    "Active dendrites + SI": "a quarter of the published width and steps; alone, at the published size, they are within their band",
    "HAT": "it forgets nothing, but two passes over the data instead of 200, in half the width, teach less",
    "RMN": "it forgets nothing, but in so small a network late tasks find most weights taken and are learned less well",
    "OGD": "one pass over the data instead of five",
}
FIRST_TASK_ONLY = (
    "only the first task is compared, before anything can have been transferred; later ones are learned no better, in denser "
    "sub-networks neither"
)
FEWER_CHANNELS = "a part of the channels learns a little less than all of them, and what tasks share does not make up for it"
FILLS_UP = (
    "per unit so small a network fills up after a few tasks: what early ones keep, late ones lack"
)
NARROW_FILLS_UP = "so narrow a network fills up per parameter, too: late tasks are learned less well than early ones"
SAME_LABELS = (
    "with one head for all tasks a label means the same in each, and fine-tuning forgets nothing; published numbers have a head "
    "for every task, as in the next row"
)

ORDER = ("Obstruction only", "Vanilla", "Gating only", "p-GateON 0")

TARGETS: tuple[Claim, ...] = (
    _ten(
        PERMUTED,
        98.0,
        "continual_accuracy",
        "continual accuracy",
        _printed(TABLE_1, "n-GateON 0", PERMUTED),
    ),
    _ten(PERMUTED, 0.05, "forgetting_rate", "forgetting rate", at_most=True),
    _ten(PERMUTED, -0.2, "accuracy_deviation", "accuracy deviation"),
    _ten(
        ROTATED,
        98.2,
        "continual_accuracy",
        "continual accuracy",
        f"{_printed(TABLE_1, 'p-GateON 0', ROTATED)} with convolutions",
    ),
    _ten(ROTATED, 0.0, "accuracy_deviation", "accuracy deviation", cause=FIRST_TASK_ONLY),
    _ten(
        SPLIT,
        99.7,
        "continual_accuracy",
        "continual accuracy",
        f"{_printed(TABLE_1, 'p-GateON 0', SPLIT)} with convolutions",
    ),
    _ten(SHUFFLED, 98.0, "continual_accuracy", "continual accuracy"),
    _hundred(PERMUTED, 97.4, FED, "p-GateON 0", "known"),
    _hundred(PERMUTED, 97.2, INFERRED, "p-GateON 0.5", "inferred"),
    _hundred(ROTATED, 98.2, INFERRED, "p-GateON 0", "known"),
    _hundred(SHUFFLED, 97.9, FED, "n-GateON 0", "known"),
    Claim(
        "capacity: five times as many permuted tasks in the same network: continual accuracy",
        at_least(
            "table-hundred",
            PERMUTED,
            96.0,
            column="known",
            rows=("p-GateON, five times the tasks",),
        ),
        wanted="96",
        cause="the network fills up: late tasks are learned less well than early ones, and cost those a little",
    ),
    Claim(
        "ablations, permuted: " + " < ".join(ORDER),
        ordered("table-ablation", PERMUTED, ORDER),
        "yes",
        "yes",
    ),
    Claim(
        "epsilon: n 0 saturates, n 0.5 and n 1 do not",
        _saturation("figure-epsilon"),
        "yes",
        "yes",
        FALLS_ON_AVERAGE,
    ),
    *(_native(row, numbers[PERMUTED]["final_accuracy"]) for row, numbers in PUBLISHED.items()),
    Claim(
        "split, two convolutions of 32: continual accuracy",
        at_least("table-cnn-split", SPLIT, 99.95),
        _printed(TABLE_1, "n-GateON 0", SPLIT),
        "99.95",
        "networks that learn one task each reach no more in so short a training",
    ),
    _rotated_cnn(
        99.0,
        "continual_accuracy",
        "continual accuracy",
        f"{_printed(CNN_FED, 'n-GateON 0', ROTATED)} of 100 tasks",
    ),
    _rotated_cnn(0.1, "forgetting_rate", "forgetting rate", at_most=True),
    _rotated_cnn(0.0, "accuracy_deviation", "accuracy deviation"),
    *(
        _cifar(row, other, least, _printed_lead(row, other))
        for gateon in ("n-GateON", "p-GateON")
        for row, other, least in (
            (gateon, "Isolated", -1.5),
            (gateon, "EWC", 5.0),  # as many units at work
            (gateon, "Finetune", 15.0),
            (f"{gateon}, narrow", "EWC", 5.0),  # as many units in all
            (f"{gateon}, narrow", "Finetune", 15.0),
        )
    ),
    *(_texts(stream, "MTL (joint)", -3.0, "MTL") for stream in TEXTS),
    _texts("news20", "Naive (finetune)", 10.0, "Naive"),
    _texts("asc", "Naive (finetune)", 10.0, "Naive", SAME_LABELS),
    _texts("asc", "Naive, a head for every task", 10.0, "Naive"),
    *(_texts_forgotten(stream) for stream in TEXTS),
    Claim(
        "asc: accuracy deviation of n-GateON",
        above("table-language-transfer", [("n-GateON", "asc")], "accuracy_deviation", 0.0),
        f"{LANGUAGE_TRANSFER['n-GateON 0']['asc']['accuracy_deviation']:g}",
        "above 0",
    ),
)
