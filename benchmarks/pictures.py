"""The pictures of docs/report.md: small runs on 5,000 digits, their pages, and a browser that looks at them.

    python benchmarks/pictures.py runs/pictures

Runs that are there already are not repeated. Needs chromium, and pip install playwright; the living
model is made of tables of numbers drawn here. What the runs find is no benchmark of any method.
"""

from __future__ import annotations

import csv
import random
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from gateon.cli import main
from gateon.pages.page import write_page

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SMALL = "--stream.data mnist-5k --training.batch 200 --quiet"
METHODS = "n-gateon,p-gateon,ewc,ewc-online,si,hat,xdg,rmn,lwf,replay,finetune,joint"
COMMANDS = {
    "ten": "run permuted-mnist --method n-gateon --stream.tasks 10 --network.hidden 300 300 "
    "--training.steps 60 --measuring.curves 10 --isolated --trace --trace-every 5",
    "inferred": "run rotated-mnist --method n-gateon --stream.tasks 6 --stream.repeats 2 "
    "--detector.contexts inferred --network.hidden 300 300 --training.steps 60",
    "compare": f"compare permuted-mnist --methods {METHODS} --seeds 3 --stream.tasks 6 "
    "--network.hidden 400 400 --training.steps 80",
    "hundred": "run permuted-mnist --method n-gateon --stream.tasks 100 --network.hidden 1000 1000 "
    "--training.steps 20 --trace",
}
MACHINES = (
    *("pumps", "turbines", "valves", "motors", "fans", "boilers", "chillers", "belts"),
    *("drills", "robots"),
)
STATES = ("normal", "worn", "hot", "leak", "loose", "jam")
# Picture -> page, theme, height of the window, section to begin with.
PICTURES = {
    "report-run": ("ten", "light", 1130, ""),
    "report-units": ("ten", "light", 1230, "raster"),
    "report-detector": ("inferred", "light", 730, "detector"),
    "report-compare": ("compare", "light", 1460, ""),
    "report-compare-dark": ("compare", "dark", 1460, ""),
    "report-model": ("plant", "dark", 1420, ""),
    "report-hundred": ("hundred", "light", 1180, ""),
}


def machines(folder: Path) -> None:
    """A living model of ten tasks: the states of machines, from twelve sensors each."""
    model = folder / "plant"
    if model.exists():
        return
    for number, name in enumerate(MACHINES):
        rows = 60 if name == "drills" else 1500
        file = _readings(
            folder / f"{name}.csv", number, rows, spread=1.4 if name == "valves" else 0.9
        )
        assert (
            main(["learn", str(model), str(file), "--task", name, "--label", "state", "--quiet"])
            == 0
        )


def _readings(file: Path, number: int, rows: int, spread: float) -> Path:
    draw, states = random.Random(number), STATES[: 3 + number % 4]
    away = [draw.gauss(0, 2) for _ in range(12)]
    centres = {state: [far + draw.gauss(0, 1) for far in away] for state in states}
    with open(file, "w", newline="") as opened:
        table = csv.writer(opened)
        table.writerow([*(f"sensor {n}" for n in range(12)), "state"])
        for row in range(rows):
            state = states[row % len(states)]
            table.writerow([*(round(draw.gauss(c, spread), 3) for c in centres[state]), state])
    return file


def picture(page: Page, height: int, section: str, path: Path) -> None:
    """What a window of this height shows, from a section on, in 256 colours, the commonest as they are."""
    page.set_viewport_size({"width": 1240, "height": height})
    page.wait_for_timeout(400)
    if section:
        page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
        page.evaluate(
            "id => scrollTo(0, document.getElementById(id).getBoundingClientRect().top + scrollY - 76)",
            section,
        )
        page.wait_for_timeout(200)
    page.screenshot(path=path)
    shown = Image.open(path).convert("RGB")
    often = sorted(shown.getcolors(shown.width * shown.height) or [], reverse=True)[:128]
    others = shown.quantize(128, Image.Quantize.MAXCOVERAGE, kmeans=2).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*(part for _, colour in often for part in colour), *others[: 3 * 128]])
    shown.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


def make(folder: Path) -> None:
    """Runs, pages and pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in COMMANDS.items():
        if not (folder / name / "report.html").exists():
            assert main([*words.split(), *SMALL.split(), "--out", str(folder / name)]) == 0
    machines(folder)
    IMAGES.mkdir(exist_ok=True)
    flags = ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for name, (run, theme, height, section) in PICTURES.items():
            report = write_page([folder / run], folder / run / "report.html")
            page = browser.new_page(color_scheme=theme, viewport={"width": 1240, "height": height})
            page.goto(report.resolve().as_uri())
            picture(page, height, section, IMAGES / f"{name}.png")
            page.close()
            size = (IMAGES / f"{name}.png").stat().st_size
            print(f"{name}: {size / 1000:.0f} kB, page {report.stat().st_size / 1000:.0f} kB")
        browser.close()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
