"""The paper's tables and figures, made anew: each a job that is run at one of three scales and leaves record, table and figure."""

from .docs import write_results_page, write_targets
from .job import SCALES, Cell, Job, Row, Scale, cells, choose
from .jobs import JOBS
from .make import OUT, RESULTS, plan, read, reproduce

__all__ = [
    "JOBS",
    "OUT",
    "RESULTS",
    "SCALES",
    "Cell",
    "Job",
    "Row",
    "Scale",
    "cells",
    "choose",
    "plan",
    "read",
    "reproduce",
    "write_results_page",
    "write_targets",
]
