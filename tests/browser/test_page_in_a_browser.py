"""The page of a report in a real browser: `make browser` runs this for sure, `make test` where there is one."""

from __future__ import annotations

import os
import shutil
import time

import pytest

from gateon.report.page import write_page
from test_page import HOSTILE, left

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WANTED = os.environ.get("GATEON_BROWSER") == "1"
try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None
MISSING = [
    what for what, there in (("chromium", BROWSER), ("playwright", sync_playwright)) if not there
]
pytestmark = pytest.mark.skipif(
    bool(MISSING) and not WANTED, reason=f"{' and '.join(MISSING)} not here: see make browser"
)
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Opens a page; fails the test if it logs an error or asks for anything from outside."""
    pages, wrong = [], []

    def open_page(path, **options):
        page = chromium.new_page(**options)
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda asked: None if asked.url == path.as_uri() else wrong.append(asked.url)
        )
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert not wrong


def comparison(folder, methods, tasks, seeds=2):
    """Directories as a comparison leaves them; the first method forgets least."""
    for n, method in enumerate(methods):
        for seed in range(seeds):
            rows = [
                [0.95 - 0.01 * n - (0.0002 * n + 0.001 * seed) * (k - j) for j in range(k + 1)]
                for k in range(tasks)
            ]
            room = [
                {site: {"frozen": k / (2 * tasks), "room": 1 - k / (3 * tasks)} for site in "14"}
                for k in range(tasks)
            ]
            left(folder / f"{method}-{seed}", rows, method=method, seed=seed, availability=room)
    return write_page([folder], folder / "report.html")


def test_every_section_is_there_and_the_table_sorts(tmp_path, opened):
    page = opened(comparison(tmp_path, ["n-gateon", "ewc", "finetune"], 6))
    assert [
        page.locator(f"#{name}").count() for name in ("methods", "retained", "room", "settings")
    ] == 4 * [1]
    first = page.locator("#methods tbody tr td:first-child")
    assert first.all_inner_texts() == ["n-gateon", "ewc", "finetune"]
    heads = page.locator("#methods th").all_inner_texts()
    page.locator("#methods th").nth(heads.index("final")).click()
    page.locator("#methods th").nth(heads.index("final")).click()
    assert first.all_inner_texts() == ["finetune", "ewc", "n-gateon"], "ascending"


def test_lines_toggle_runs_change_and_themes_switch(tmp_path, opened):
    page = opened(comparison(tmp_path, ["n-gateon", "ewc"], 4))
    line = page.locator('#methods g[data-name="ewc"]')
    page.locator("#methods .legend button", has_text="ewc").click()
    assert not line.is_visible()
    page.locator("#methods .legend button", has_text="ewc").click()
    assert line.is_visible()
    page.locator("select").select_option(index=3)
    assert page.locator("#settings p").first.inner_text().startswith("ewc-")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("header button").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_the_matrix_tells_its_numbers(tmp_path, opened):
    page = opened(comparison(tmp_path, ["n-gateon"], 5, seeds=1))
    box = page.locator("#retained canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + box["height"] - 10)
    assert page.locator("#tip").inner_text() == "after task 5, tested on 5: 95.00"


def test_hostile_names_appear_as_text(tmp_path, opened):
    left(tmp_path / "a", [[0.9], [0.8, 0.9]], method=HOSTILE)
    left(tmp_path / "b", [[0.9], [0.8, 0.9]])
    page = opened(write_page([tmp_path], tmp_path / "report.html"))
    assert page.locator("#methods td", has_text="</script><script>alert(1)").count() == 1
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_nothing_is_wider_than_the_window(width, tmp_path, opened):
    path = comparison(tmp_path, ["n-gateon", "ewc"], 10)
    page = opened(path, viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_hundred_tasks_and_twenty_methods_stay_usable(tmp_path, opened):
    path = comparison(tmp_path, [f"method-{n}" for n in range(20)], 100, seeds=1)
    assert path.stat().st_size < 5e6
    start = time.monotonic()
    page = opened(path)
    page.locator("#settings").wait_for()
    assert time.monotonic() - start < 3
    took = page.evaluate(
        "() => { const start = performance.now(); document.querySelectorAll('#methods th')[2].click();"
        " document.body.offsetHeight; return performance.now() - start; }"
    )
    assert took < 200
