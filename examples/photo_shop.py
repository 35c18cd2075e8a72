"""A shop's photos: one folder a season, and a model that sorts all of them.

    python examples/photo_shop.py

The photos are drawn on the spot. A minute on a laptop.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw

import gateon

SEASONS = {"summer": ("cap", "sandal", "shorts"), "winter": ("beanie", "boot", "scarf")}
PHOTOS = 60  # of each article


def drawn(article: str, chance: random.Random) -> Image.Image:
    """A photo of an article, a little different each time."""
    light = chance.randint(190, 255)
    photo = Image.new("RGB", (40, 40), (light, light, light))
    pen = ImageDraw.Draw(photo)
    x, y, size = chance.randint(4, 10), chance.randint(4, 10), chance.randint(20, 26)
    colour = tuple(chance.randint(0, 150) for _ in range(3))
    box = (x, y, x + size, y + size)
    if article == "cap":
        pen.pieslice(box, 180, 360, fill=colour)
        pen.rectangle((x, y + size // 2, x + size + 6, y + size // 2 + 3), fill=colour)
    elif article == "sandal":
        pen.rectangle((x, y + size - 4, x + size, y + size), fill=colour)
        pen.line((x + 4, y + size, x + size // 2, y + 6, x + size - 4, y + size), colour, 3)
    elif article == "shorts":
        pen.rectangle((x, y, x + size, y + size // 2), fill=colour)
        pen.rectangle((x, y, x + size // 3, y + size), fill=colour)
        pen.rectangle((x + size - size // 3, y, x + size, y + size), fill=colour)
    elif article == "beanie":
        pen.ellipse(box, fill=colour)
        pen.ellipse((x + size // 2 - 3, y - 4, x + size // 2 + 3, y + 2), fill=colour)
    elif article == "boot":
        pen.rectangle((x, y, x + size // 2, y + size), fill=colour)
        pen.rectangle((x, y + size - 8, x + size, y + size), fill=colour)
    else:
        pen.arc(box, 0, 360, fill=colour, width=5)
        pen.rectangle((x + 2, y + size // 2, x + 7, y + size + 8), fill=colour)
    return photo


def write_season(season: str, folder: Path, seed: int) -> Path:
    """A folder with a folder for each article."""
    chance = random.Random(f"{season} {seed}")
    for article in SEASONS[season]:
        (folder / article).mkdir(parents=True)
        for n in range(PHOTOS):
            drawn(article, chance).save(folder / article / f"{n}.png")
    return folder


def main() -> None:
    """Learn summer, then winter; then sort photos of both."""
    place = Path(tempfile.mkdtemp())
    model = gateon.LivingModel()
    for season in SEASONS:
        lesson = model.learn(write_season(season, place / season, seed=0), task=season)[0]
        model.save(place / "sorter")
        print(f"{season}: {lesson.rows} photos, {lesson.labels} articles, {lesson.accuracy:.0%}")
    for season, articles in SEASONS.items():
        answers = model.predict(write_season(season, place / f"new {season}", seed=1))
        truth = [article for article in sorted(articles) for _ in range(PHOTOS)]
        found = sum(a == b for a, b in zip(answers.labels, truth, strict=True)) / len(truth)
        told = sum(task == season for task in answers.tasks) / len(truth)
        print(f"new photos of {season}: season recognised {told:.0%}, article right {found:.0%}")


if __name__ == "__main__":
    main()
