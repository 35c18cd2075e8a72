"""Every kind of page in a real browser: `make browser` runs this for sure, `make test` where there is one."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from gateon.pages.kinds import facts
from gateon.pages.page import write_page
from gateon.pages.watch import Watched, server_of
from page_records import (
    HOSTILE,
    TASKS,
    falling,
    inside,
    left,
    living,
    reproduced,
    unfinished,
)

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


def is_own(url, path):
    """Whether a request is for the page itself, or for the server it came from."""
    if isinstance(path, Path):
        return url == path.as_uri() or url.startswith("data:")
    return url.startswith(path)


@pytest.fixture
def opened(chromium):
    """Opens a page; fails the test if it logs an error or asks for anything from outside."""
    pages, wrong = [], []

    def open_page(path, **options):
        page = chromium.new_page(**options)
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda asked: None if is_own(asked.url, path) else wrong.append(asked.url)
        )
        page.goto(path.as_uri() if isinstance(path, Path) else path)
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


def run_of(folder, tasks=5):
    """A run with everything a page can show."""
    room = [
        {"1": {"frozen": k / (2 * tasks), "room": 1 - k / (2 * tasks)}} for k in range(1, tasks + 1)
    ]
    left(
        folder,
        falling(tasks),
        method="n-gateon",
        availability=room,
        density=[{"1": 0.5}] * tasks,
        isolated=[0.9] * tasks,
        samples=[100] * tasks,
        switches=[[k, 2, k] for k in range(1, tasks)],
        asked={"detector": {"contexts": "inferred"}},
    )
    inside(folder, tasks)
    return write_page([folder], folder / "report.html")


def sections(page):
    return page.locator("main section[id]").evaluate_all("all => all.map(one => one.id)")


def test_every_section_of_a_comparison_is_there_and_the_table_sorts(tmp_path, opened):
    page = opened(comparison(tmp_path, ["n-gateon", "ewc", "finetune"], 6))
    assert sections(page) == ["methods", "retained", "forgetting", "room", "cost", "settings"]
    assert page.locator("header .card").first.inner_text().startswith("✓\nn-gateon")
    first = page.locator("#methods tbody tr td:first-child")
    assert first.all_inner_texts() == ["n-gateon", "ewc", "finetune"]
    head = page.locator("#methods th", has_text="at the end")
    head.click()
    assert first.all_inner_texts() == ["n-gateon", "ewc", "finetune"], "the best on top"
    head.press("Enter")
    assert first.all_inner_texts() == ["finetune", "ewc", "n-gateon"], "ascending"


def test_every_section_of_a_run_is_there(tmp_path, opened):
    page = opened(run_of(tmp_path))
    assert sections(page) == [
        *("retained", "forgetting", "room", "raster", "gates", "detector", "cost", "settings"),
    ]
    assert page.locator("header .card").count() >= 6
    page.locator('nav a[href="#raster"]').click()
    assert page.url.endswith("#raster")


def test_every_section_of_a_living_model_is_there(tmp_path, opened):
    tasks = [
        replace(task, then=0.95, now=now, untold=now)
        for task, now in zip(TASKS.values(), (0.95, 0.8), strict=True)
    ]
    page = opened(write_page([living(tmp_path, tasks)], tmp_path / "report.html"))
    assert sections(page) == ["tasks", "risks", "lessons", "room", "gates", "history", "settings"]
    assert page.locator("#risks li").inner_text().startswith("travel: forgotten")
    assert (
        page.locator("#tasks tbody tr", has_text="travel").locator(".chip").inner_text()
        == "forgotten"
    )
    page.locator("#tasks th", has_text="now").click()
    assert page.locator("#tasks tbody tr").first.inner_text().startswith("banking")
    page.locator("#history summary", has_text="Versions").click()
    assert page.locator("#history .versions li").first.inner_text().startswith("version 2 learned")


def test_every_section_of_a_table_is_there(tmp_path, opened):
    (reproduced(tmp_path) / "figure.svg").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='40'><rect width='9' height='9'/></svg>"
    )
    page = opened(write_page([tmp_path], tmp_path / "report.html"))
    assert sections(page) == ["table", "figure", "differences", "made"]
    assert "90.00 ± 1.00 +1.0" in page.locator("#table tbody tr", has_text="EWC").inner_text()
    page.locator('[data-choice="table measure"] button', has_text="forgetting").click()
    assert "2.00 ± 1.00" in page.locator("#table tbody tr", has_text="EWC").inner_text()
    assert page.locator("#figure img").evaluate("one => one.naturalWidth") == 40


def test_lines_toggle_runs_change_and_themes_switch(tmp_path, opened):
    page = opened(comparison(tmp_path, ["n-gateon", "ewc"], 4))
    line = page.locator('#methods g[data-name="ewc"]')
    page.locator("#methods .legend button", has_text="ewc").click()
    assert not line.is_visible()
    page.locator("#methods .legend button", has_text="ewc").click()
    assert line.is_visible()
    page.locator('[data-choice="measure"] button', has_text="forgetting").click()
    rows = page.locator("#methods .dots .row").evaluate_all(
        "all => all.map(one => one.dataset.row)"
    )
    assert rows == ["n-gateon", "ewc"] and page.locator("#methods .dots .single").count() == 4
    page.locator('[data-choice="run"]').select_option(index=3)
    assert page.locator("#settings p").first.inner_text().startswith("ewc-")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("nav .theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_the_theme_is_that_of_the_system(scheme, dark, tmp_path, opened):
    page = opened(run_of(tmp_path), color_scheme=scheme)
    shown = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", shown)[:3])) < 200) == dark


def test_the_matrix_tells_its_numbers(tmp_path, opened):
    page = opened(comparison(tmp_path, ["n-gateon"], 5, seeds=1))
    canvas = page.locator("#retained canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + box["height"] - 10)
    told = page.locator("#tip").inner_text()
    assert told == "after task 5, task 4\naccuracy on task 5, task 4\n95.00 %"
    page.locator('[data-choice="matrix"] button', has_text="change").click()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + box["height"] - 10)
    assert page.locator("#tip").inner_text().endswith("+0.00 points since it was learned")


def test_a_unit_of_the_raster_tells_its_life(tmp_path, opened):
    page = opened(run_of(tmp_path))
    canvas = page.locator("#raster canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + 34)
    told = page.locator("#tip").inner_text().split("\n")
    assert (
        told[0] == "unit 0, step 99"
        and told[1] == "task 5, task 4"
        and told[2] == "availability 0.02"
    )
    page.mouse.click(box["x"] + 300, box["y"] + box["height"] - 30)
    assert page.locator("#raster h3").first.inner_text() == "Unit 39 of layer 1"
    page.locator('[data-choice="raster quantity"] button', has_text="gain").click()
    assert page.locator("#raster h3").first.inner_text() == "Unit 39 of layer 1", "it stays"
    assert "σ(v)" in page.locator("#raster figcaption").first.inner_text()


def test_tasks_are_ordered_by_similarity(tmp_path, opened):
    path = run_of(tmp_path)
    order = facts([tmp_path])["runs"][0]["gates"]["order"]
    assert order != sorted(order)
    page = opened(path)
    page.locator('[data-choice="gates order"] button', has_text="similar").click()
    canvas = page.locator("#gates canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 45, box["y"] + 40)
    first = order[0]
    assert page.locator("#tip").inner_text().startswith(f"context {first + 1}, task {first}")


def test_hostile_names_appear_as_text(tmp_path, opened):
    left(tmp_path / "a", falling(2), method=HOSTILE, tasks=[HOSTILE, "b"])
    left(tmp_path / "b", falling(2))
    page = opened(write_page([tmp_path], tmp_path / "report.html"))
    assert page.locator("#methods td", has_text="</script><script>alert(1)").count() == 1
    task = replace(TASKS["banking"], name=HOSTILE, then=0.9, now=0.9)
    model = living(tmp_path / "m", [task])
    other = opened(write_page([model], model / "report.html"))
    assert other.locator("#tasks td", has_text="</script>").count() == 1
    assert page.locator("img").count() == other.locator("img").count() == 0


@pytest.mark.parametrize("width", [360, 800, 1400])
@pytest.mark.parametrize("kind", ["comparison", "run", "model", "table"])
def test_nothing_is_wider_than_the_window(kind, width, tmp_path, opened):
    made = {
        "comparison": lambda: comparison(tmp_path, ["n-gateon", "ewc"], 10),
        "run": lambda: run_of(tmp_path, 10),
        "model": lambda: write_page([living(tmp_path)], tmp_path / "report.html"),
        "table": lambda: write_page([reproduced(tmp_path)], tmp_path / "report.html"),
    }
    page = opened(made[kind](), viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_hundred_tasks_and_twenty_methods_stay_usable(tmp_path, opened):
    path = comparison(tmp_path, [f"method-{n}" for n in range(20)], 100, seeds=1)
    assert path.stat().st_size < 5e6
    start = time.monotonic()
    page = opened(path)
    page.locator("#settings").wait_for()
    assert time.monotonic() - start < 3
    clicks = ("#methods th:nth-child(3)", '[data-choice="matrix"] button:nth-child(2)')
    clicks += ("#methods .legend button", '[data-choice="measure"] button:nth-child(2)')
    for place in clicks:
        took = page.evaluate(
            "place => { const start = performance.now(); document.querySelector(place).click();"
            " document.body.offsetHeight; return performance.now() - start; }",
            place,
        )
        assert took < 200, place


# Chooses runs one after another; of each, the longest time in which the page answers nothing, in ms.
CHOOSING = """async () => {
  const found = [], beat = new MessageChannel();
  let longest = 0, last = performance.now(), over = false;
  beat.port1.onmessage = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
    if (!over) beat.port2.postMessage(0);
  };
  beat.port2.postMessage(0);
  const pause = () => new Promise(then => setTimeout(then, 20));
  const choice = document.querySelector('[data-choice="run"]');
  for (const n of [1, 2, 3, 1, 2]) {
    await pause();
    longest = 0;
    choice.selectedIndex = n;
    choice.dispatchEvent(new Event("change"));
    do await pause(); while (!document.querySelector("#settings"));
    found.push(longest);
  }
  over = true;
  return found;
}"""


def test_another_of_many_large_runs_is_chosen_while_the_page_answers(tmp_path, opened):
    comparison(tmp_path, [f"method-{n}" for n in range(20)], 100, seeds=3)
    for n in (1, 2):
        inside(tmp_path / f"method-{n}-0", 100, steps=5)
        inside(tmp_path / f"method-{n}-1", 100, steps=5)
    page = opened(write_page([tmp_path], tmp_path / "report.html"))
    before = sections(page)
    assert statistics.median(page.evaluate(CHOOSING)) < 200
    page.locator('[data-choice="run"]').select_option(index=0)
    page.locator("#settings").wait_for()
    assert sections(page) == before, "all sections follow"
    links = page.locator("nav div a").evaluate_all("all => all.map(one => one.dataset.to)")
    assert links == before


def test_of_runs_chosen_in_haste_the_last_one_is_shown(tmp_path, opened):
    page = opened(comparison(tmp_path, ["n-gateon", "ewc"], 4))
    at_once = page.evaluate(
        """() => { const choice = document.querySelector('[data-choice="run"]');
        for (const n of [1, 3]) { choice.selectedIndex = n; choice.dispatchEvent(new Event("change")); }
        return document.querySelectorAll("#retained, #settings").length; }"""
    )
    assert at_once == 0, "the click is answered first"
    page.locator("#settings").wait_for()
    assert page.locator("#settings p").first.inner_text().startswith("ewc-")
    assert len(sections(page)) == len(set(sections(page)))


def test_what_is_printed_is_light_and_open(tmp_path, opened):
    page = opened(run_of(tmp_path), color_scheme="dark")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("details:not([open])").count() == 0 and not page.locator("nav").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.locator("details[open]").count() == 0 and len(page.pdf()) > 20_000


def test_a_served_page_follows_a_run_and_keeps_what_the_reader_chose(tmp_path, opened):
    unfinished(tmp_path / "a-0", falling(3), tasks=9)
    server = server_of(Watched([tmp_path]))
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        page = opened(f"http://127.0.0.1:{server.server_address[1]}/")
        assert "3 of 9 tasks learned" in page.locator(".going").inner_text()
        page.locator('[data-choice="matrix"] button', has_text="change").click()
        page.evaluate("scrollTo(0, 300)")
        left(tmp_path / "a-0", falling(9))
        page.locator(".going").wait_for(state="detached", timeout=8000)
        chosen = page.locator('[data-choice="matrix"] button[aria-pressed="true"]').inner_text()
        assert chosen == "change since learned" and page.evaluate("scrollY") == 300
        assert page.locator("#forgetting tbody tr").count() == 9
        assert page.locator(".live").inner_text() == "live"
    finally:
        server.shutdown()
        server.server_close()
