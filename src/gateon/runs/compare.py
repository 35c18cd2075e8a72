"""Several methods and seeds side by side, each a run of a specification."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from ..methods.registry import method_options
from ..options.kinds import Within, checked, flag
from .progress import Progress
from .record import Record
from .specification import Specification
from .specified import run_specification

__all__ = ["Seeds", "compare", "side_by_side"]

Seeds = Annotated[int, Within(1, 10_000)]  # of one comparison


def compare(
    specification: Specification,
    methods: Sequence[str],
    seeds: int,
    out: Path,
    *,
    options: Mapping[str, Any] | None = None,
    isolated: bool = False,
    progress: Callable[[], Progress | None] = lambda: None,
) -> dict[str, list[Record]]:
    """Every method with every seed, each in a directory of its own below `out`.

    Args:
        specification: common to all; options of its method hold for those that have them.
        methods: their names.
        seeds: how many, from the specification's on.
        out: directory of all runs.
        options: further options of methods by dotted name: each method takes those it has.
        isolated: also train a network on each task alone, for the accuracy deviation.
        progress: makes the progress display of a run.
    """
    wanted = side_by_side(specification, methods, options or {})
    checked("seeds", seeds, Seeds)
    records: dict[str, list[Record]] = {}
    for name, one in wanted.items():
        for seed in range(specification.seed, specification.seed + seeds):
            record = run_specification(
                one.with_options({"seed": seed}),
                out / f"{name}-{seed}",
                isolated=isolated,
                progress=progress(),
            )
            records.setdefault(name, []).append(record)
    return records


def side_by_side(
    specification: Specification, methods: Sequence[str], options: Mapping[str, Any]
) -> dict[str, Specification]:
    """The specification of every method; an option that none of them has is an error.

    >>> asked = Specification.from_options({"stream.name": "split-mnist"})
    >>> two = side_by_side(asked, ["ewc", "finetune"], {"method.strength": 5.0})
    >>> two["ewc"]["method.strength"], two["finetune"].get("method.strength")
    (5.0, None)
    """
    if not methods:
        raise ValueError("Name at least one method to compare.")
    known = {name: {f"method.{option}" for option in method_options(name)} for name in methods}
    for option in options:
        if not any(option in own for own in known.values()):
            names = ", ".join(methods)
            raise ValueError(f"None of {names} has the option {flag(option)}: leave it out.")
    return {
        name: specification.with_options(
            {"method.name": name} | {o: v for o, v in options.items() if o in own}
        )
        for name, own in known.items()
    }
