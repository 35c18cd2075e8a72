"""The library transformers: imported when it is needed, and kept quiet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["transformers", "without_reports"]


def transformers() -> Any:
    """The library; ImportError with the line that installs it."""
    try:
        import transformers as library
    except ImportError as error:
        raise ImportError(
            "Language models need transformers: pip install 'gateon[text]'."
        ) from error
    return library


@contextmanager
def without_reports() -> Iterator[None]:
    """Silence it: it reports parts that are left out on purpose, and draws progress bars."""
    logging = transformers().utils.logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
