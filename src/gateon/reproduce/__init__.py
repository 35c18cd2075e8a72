"""The paper's tables and figures, made anew from data.

`tables/` says what they are, one file each: rows, columns, scales, the paper's numbers, claims and
targets. `reader` checks it, `places` makes specifications of it, `make` runs what is missing,
`collect` writes the record, `show` and `docs` write pages of records, `checks` decides claims.
May import every room but integrations, life and cli. Names are imported when they are first used:
the catalogue works without torch.
"""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .catalogue import names, titles
    from .changes import changed, options_of
    from .collect import read
    from .docs import pages, write_pages, write_targets
    from .make import OUT, RESULTS, plan, reproduce
    from .places import Cell, cells
    from .reader import load, read_table
    from .table import SCALES, Row, Scale, Table, choose

__all__ = [
    "OUT",
    "RESULTS",
    "SCALES",
    "Cell",
    "Row",
    "Scale",
    "Table",
    "cells",
    "changed",
    "choose",
    "load",
    "names",
    "options_of",
    "pages",
    "plan",
    "read",
    "read_table",
    "reproduce",
    "titles",
    "write_pages",
    "write_targets",
]

NAMES = {
    "catalogue": ("names", "titles"),
    "changes": ("changed", "options_of"),
    "collect": ("read",),
    "docs": ("pages", "write_pages", "write_targets"),
    "make": ("OUT", "RESULTS", "plan", "reproduce"),
    "places": ("Cell", "cells"),
    "reader": ("load", "read_table"),
    "table": ("SCALES", "Row", "Scale", "Table", "choose"),
}
__getattr__ = lazily(__name__, NAMES)
