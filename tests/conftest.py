"""What the tests of every folder share."""

from __future__ import annotations

import functools
import gc
import signal
from dataclasses import replace

import pytest

from gateon.streams.data import sources

# A background job is started with Ctrl-C ignored, and under nohup with hang-ups ignored: tests that
# send them, and the programs they start, need both as a terminal has them.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was imported stays: collecting garbage, which runs that measure memory do, need not look through it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def digits_read_once():
    """The 5,000 digits are read for every stream: here once. tests/streams/test_sources.py asks for the reading itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "mnist_5k", functools.cache(sources.mnist_5k))
        yield


@pytest.fixture(scope="module")
def few_digits(digits_read_once):
    """Every tenth of the 5,000 digits, for runs that are to end and not to learn."""
    all_of_them = sources.mnist_5k()
    few = {
        name: getattr(all_of_them, name)[::10]
        for name in ("train_x", "train_y", "test_x", "test_y")
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "mnist_5k", lambda note=None: replace(all_of_them, **few))
        yield
