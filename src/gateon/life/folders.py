"""Folders: images as CLASS/FILE, or one table for each part (train.csv, test.csv)."""

from hashlib import sha256
from pathlib import Path

import numpy as np

from ..storage.bounded import IMAGE_SUFFIXES, visible
from ..storage.files import is_regular
from .parts import PARTS, part_of
from .table import Table, joined, made_table
from .table_files import file_format, hash_of, read_file

__all__ = ["read_folder"]

LAYOUTS = {  # of the folders above a file, outermost first
    0: (),  # to be answered; there is nothing to learn
    1: ("label",),
    2: ("task", "label"),
    3: ("task", "split", "label"),
}


def read_folder(folder: Path, largest: int | None = None) -> Table:
    """Read a folder of images or of tables.

    Images lie as CLASS/FILE, SPLIT/CLASS/FILE, TASK/CLASS/FILE or TASK/SPLIT/CLASS/FILE; folders
    are taken for splits if all of their names are (train, validation, test and the like). Images to
    be answered may lie in no folder of a class. Tables
    are train.csv, test.csv and so on, in any format. Hidden files are not looked at.
    """
    tables: dict[str, Path] = {
        part: file
        for file in visible(folder)
        if file_format(file) and (part := part_of(file.name.partition(".")[0])) and file.is_file()
    }
    if tables:
        return _read_parts(folder, tables, largest)
    files = sorted(_files_below(folder), key=lambda file: file.relative_to(folder).as_posix())
    images = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    if not images:
        advice = "put images into it as CLASS/FILE, or tables called train.csv and test.csv"
        if single := [file for file in visible(folder) if file_format(file)]:
            advice = f"give one of its tables, such as {single[0]}"
        raise ValueError(f"{folder} holds no images and no train or test table: {advice}.")
    for file in images:
        if not is_regular(file):
            raise ValueError(f"{file} is not a regular file: remove it.")
    return _images_table(folder, images, others=len(files) - len(images))


def _files_below(folder: Path) -> list[Path]:
    return [
        file
        for entry in visible(folder)
        for file in (_files_below(entry) if entry.is_dir() else [entry])
    ]


def _read_parts(folder: Path, tables: dict[str, Path], largest: int | None) -> Table:
    read: dict[str, Table] = {
        part: read_file(tables[part], largest) for part in PARTS if part in tables
    }
    return joined(read, "split", str(folder))


def _images_table(folder: Path, images: list[Path], others: int) -> Table:
    places = [file.relative_to(folder).parts[:-1] for file in images]
    depths = {len(place): file for place, file in zip(places, images, strict=True)}
    if len(depths) > 1 or not set(depths) <= set(LAYOUTS):
        odd = depths[min(depths)] if len(depths) > 1 else depths[max(depths)]
        raise ValueError(
            f"{odd} is not where it should be: put every image of {folder} at CLASS/FILE, or every "
            "one at TASK/CLASS/FILE."
        )
    (depth,) = depths
    layout = LAYOUTS[depth]
    if depth == 2 and all(part_of(place[0]) for place in places):
        layout = ("split", "label")
    if depth == 3 and not all(part_of(place[1]) for place in places):
        raise ValueError(
            f"{images[0]} lies three folders deep: use TASK/SPLIT/CLASS/FILE, where SPLIT is "
            "train, validation or test."
        )
    digest, columns = sha256(), {}
    for file in images:
        digest.update(f"{file.relative_to(folder).as_posix()} {hash_of(file)}\n".encode())
    cells = {"image": [file.relative_to(folder).as_posix() for file in images]}
    cells |= {name: [place[k] for place in places] for k, name in enumerate(layout)}
    for name, values in cells.items():
        columns[name] = np.array(values, object)
    notes = (f"{others} files are no images and are not looked at.",) if others else ()
    return made_table(columns, str(folder), digest.hexdigest(), folder, notes)
