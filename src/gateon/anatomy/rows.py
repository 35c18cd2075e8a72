"""Rows of contexts that are not at work, kept in host memory or in a file.

Ten thousand contexts have as many rows of gates and statistics, and a model computes with one at a
time. It may keep only that one on its device; the table of all of them is then elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn

from .contextual import Contextual
from .shards import full

__all__ = ["ByRow", "Rows", "all_rows", "fetch_rows", "keep_rows", "replace_data"]


class Rows:
    """A table with a row for each context, of which a module has one at work, (1, units).

    Args:
        rows: (contexts, units), copied.
        where: "cpu" for host memory, or the directory of a file that is mapped into memory; the
            file has no name, and is gone with the process.
        shown: the context whose row is at work; that row may be newer than the table.

    >>> at_work = torch.tensor([[5.0, 5.0]])
    >>> rows = Rows(torch.zeros(3, 2), shown=1)
    >>> rows.show(at_work, 2); at_work
    tensor([[0., 0.]])
    >>> rows.table(at_work)[1]
    tensor([5., 5.])
    """

    def __init__(self, rows: Tensor, where: str | Path = "cpu", shown: int = 0) -> None:
        self.where, self.shown = where, shown
        # Of gates, which an optimizer moves: the contexts in a gradient that no step has used yet,
        # and the one an optimizer remembers; None: the one at work, as after loading.
        self.unused: set[int] = set()
        self.learned: int | None = -1
        self._file: IO[bytes] | None = None
        if where != "cpu":
            if not Path(where).is_dir():
                raise ValueError(
                    'Rows are kept on the "device", in the memory of the host ("cpu") or in a '
                    f"directory, and {str(where)!r} is none of these: create it first."
                )
            self._file = TemporaryFile(dir=where)  # noqa: SIM115 (open as long as it is mapped)
        self._room, self._count = self._made(len(rows), rows), len(rows)
        self._room[:] = rows.detach()

    def __len__(self) -> int:
        """How many contexts have a row."""
        return self._count

    def add(self, row: Tensor) -> None:
        """Add a context."""
        if self._count == len(self._room):
            self._grow(self._count + max(16, self._count // 4))
        self._room[self._count] = row
        self._count += 1

    def table(self, at_work: Tensor) -> Tensor:
        """All rows, (contexts, units), with the one at work as it is now."""
        self._room[self.shown] = at_work.detach()[0]
        return self._room[: self._count]

    def fetch(self, at_work: Tensor) -> None:
        """Put the row of the context that is shown to work, as the table has it."""
        at_work.data.copy_(self._room[self.shown][None])

    def show(self, at_work: Tensor, context: int) -> None:
        """Put the row at work away, and that of another context to work."""
        if context != self.shown:
            self.table(at_work)
            self.shown = context
            self.fetch(at_work)

    def fill(self, saved: Tensor) -> Tensor:
        """Take over saved rows, as many as there are or more; returns the one to put to work."""
        if len(saved) > len(self._room):
            self._grow(len(saved))
        self._count = len(saved)
        self._room[: self._count] = saved.detach()
        self.unused.clear()
        self.learned = None
        return self._room[self.shown][None]

    def cast(self, dtype: torch.dtype) -> None:
        """Hold numbers of another kind."""
        if dtype != self._room.dtype:
            converted = self._room[: self._count].to(dtype)
            self._room = self._made(self._count, converted)
            self._room[:] = converted

    def without_data(self) -> Rows:
        """The same with shapes only."""
        return Rows(self._room[: self._count].to("meta"), shown=self.shown)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has a table of its own."""
        return Rows, (self._room[: self._count].clone(), self.where, self.shown)

    def _grow(self, contexts: int) -> None:
        before, self._room = self._room, self._made(contexts, self._room)
        if self._file is None:
            self._room[: len(before)] = before

    def _made(self, contexts: int, like: Tensor) -> Tensor:
        """Room for so many contexts; in a file, with what is there already."""
        units = like.shape[1]
        if self._file is None:
            device = "meta" if like.is_meta else "cpu"
            return torch.empty(contexts, units, dtype=like.dtype, device=device)
        width = units * like.element_size()
        try:
            if hasattr(os, "posix_fallocate"):  # on a full disk, writing to a hole ends the process
                os.posix_fallocate(self._file.fileno(), 0, contexts * width)
            mapped = np.memmap(self._file, np.uint8, "r+", shape=(contexts, width))
        except OSError as reason:
            raise OSError(
                f"The rows of {contexts} contexts could not be kept in {self.where} "
                f"({reason.strerror}): free some space, or choose another directory."
            ) from reason
        return torch.from_numpy(mapped).view(like.dtype)


class ByRow(Contextual):
    """A contextual module some of whose tensors have a row for each context.

    Where their rows are kept elsewhere, these tensors have a single row: that of the context shown.
    """

    by_row: tuple[str, ...] = ()  # the names of these tensors; those that are None have no rows

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Rows] = {}  # by name; empty while all rows are on the device

    def rows_of(self, name: str) -> Tensor:
        """All rows of a tensor, (contexts, units), wherever they are."""
        at_work: Tensor = getattr(self, name)
        return self.kept[name].table(at_work) if name in self.kept else full(at_work.detach())

    def at_work(self, context: int | Tensor) -> int | Tensor:
        """Which row of its tensors is that of a context; it is put to work if it is elsewhere."""
        for name, rows in self.kept.items():
            rows.show(getattr(self, name), int(context))
        return 0 if self.kept else context

    def _apply(self, fn: Any, recurse: bool = True) -> ByRow:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, rows in self.kept.items():
            rows.cast(getattr(self, name).dtype)
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.update({prefix + name: self.rows_of(name) for name in self.kept})

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Load the rows of a state, which may have more contexts than this model yet."""
        errors: list[str] = rest[-1]
        for name in self.by_row:
            now, saved = getattr(self, name), state.get(prefix + name)
            if now is None or saved is None or saved.shape[1:] != now.shape[1:]:
                continue
            if name not in self.kept:
                more = len(saved) - len(now)
                if more > 0:
                    zeros = now.data.new_zeros(more, now.shape[1])
                    replace_data(now, torch.cat([now.data, zeros]))
                    now.grad = None  # of the old shape
            elif len(saved) >= len(self.kept[name]):
                state = {**state, prefix + name: self.kept[name].fill(saved)}
            else:
                errors.append(
                    f"size mismatch for {prefix}{name}: it has {len(saved)} rows, and this model "
                    f"has {len(self.kept[name])} contexts."
                )
                state = {**state, prefix + name: now.detach()}
        super()._load_from_state_dict(state, prefix, *rest)


def keep_rows(model: nn.Module, where: str | Path, context: int) -> None:
    """Keep the rows of all contexts but one elsewhere; all of them, or none.

    Args:
        model: shows one context.
        where: "cpu", a directory, or "device", where they all are in the end.
        context: the one that is shown.
    """
    modules = [m for m in model.modules() if isinstance(m, ByRow) and m.contexts is not None]
    made: list[dict[str, Rows]] = []
    for module in modules:
        tables = {name: module.rows_of(name) for name in module.by_row}
        kept = {} if where == "device" else tables
        made.append({name: Rows(table, where, context) for name, table in kept.items()})
    for module, new in zip(modules, made, strict=True):
        for name in module.by_row:
            held, table = getattr(module, name), module.rows_of(name)
            here = table[context : context + 1] if new else table
            replace_data(held, here.to(held.device, copy=True))
            held.grad = None
        module.kept, module.per_sample = new, not new


def replace_data(tensor: Tensor, data: Tensor) -> None:
    """Give a parameter or buffer data of another shape."""
    # A loss that is still alive holds on to the old shape: only another dtype makes autograd forget
    # it.
    other = torch.float16 if data.dtype == torch.bfloat16 else torch.bfloat16
    tensor.data = data.new_empty(0, dtype=other)
    tensor.data = data


def all_rows(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer of a model by name, with the rows of all contexts.

    Whoever writes into them calls `fetch_rows` afterwards.
    """
    found: dict[str, Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
    for place, module in model.named_modules():
        if isinstance(module, ByRow):
            prefix = f"{place}." if place else ""
            found |= {prefix + name: module.rows_of(name) for name in module.kept}
    return found


def fetch_rows(model: nn.Module) -> None:
    """Put rows to work again that were written where they are kept."""
    for module in model.modules():
        if isinstance(module, ByRow):
            for name, rows in module.kept.items():
                rows.fetch(getattr(module, name))
