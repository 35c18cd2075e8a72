"""Images: upright, of one size, grey or coloured, as numbers from 0 to 1.

The size is that of the first task: the median of the longer sides, as a multiple of 4 from 28 to
96. Images keep their proportions and are padded with black to a square. They are grey if all of the
first task's are. Transparent pixels show white. Whole numbers are divided by 255; arrays of
fractions stay as they are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage.bounded import open_image
from .table import Table

__all__ = ["ImageEncoder"]

SMALLEST, LARGEST = 28, 96  # pixels a side
MOST_PIXELS = 1 << 26  # of one image before it is made smaller: 8192 x 8192
GREY = frozenset(("1", "L", "LA"))
MODES = GREY | {"P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"}
_LOOKED_AT = 256  # images that decide size and colour


@dataclass(frozen=True)
class ImageEncoder:
    """Images to (N, channels, size, size).

    Args:
        size: pixels a side.
        channels: 1 for grey, 3 for colours.
    """

    size: int
    channels: int

    @classmethod
    def fit(cls, table: Table, inputs: Sequence[str], rows: NDArray[np.int64]) -> "ImageEncoder":
        """Choose size and colours from up to 256 images, evenly taken from the rows.

        >>> digits = np.zeros((5, 30, 20), np.uint8)
        >>> ImageEncoder.fit(Table({"x": digits}, "example"), ["x"], np.arange(5))
        ImageEncoder(size=32, channels=1)
        """
        step = math.ceil(len(rows) / _LOOKED_AT)
        looks = [_look(table, inputs[0], row) for row in rows[::step]]
        side = float(np.median([longer for longer, _ in looks]))
        size = min(max(4 * math.ceil(side / 4), SMALLEST), LARGEST)
        return cls(size, 1 if all(grey for _, grey in looks) else 3)

    def encode(
        self, table: Table, inputs: Sequence[str], rows: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float32], list[str]]:
        """The images of some rows."""
        chosen = np.arange(table.rows) if rows is None else rows
        values = np.zeros((len(chosen), self.channels, self.size, self.size), np.float32)
        for place, row in enumerate(chosen):
            values[place] = self._encoded(table, inputs[0], row)
        return values, []

    def _encoded(self, table: Table, name: str, row: int) -> NDArray[np.float32]:
        cell = table.columns[name][row]
        if isinstance(cell, np.ndarray):
            return self._from_pixels(cell, table, name, row)
        where = _where(table, name, row)
        try:
            with _opened(table, name, row) as image:
                image.draft(
                    None, (2 * self.size, 2 * self.size)
                )  # JPEG: decode no more than needed
                return self._from_picture(image)
        except ValueError:
            raise
        except Exception as error:  # a broken image may raise anything at all
            raise ValueError(f"{where} is a broken image ({error}): replace it.") from error

    def _from_picture(self, image: Any) -> NDArray[np.float32]:
        from PIL import Image, ImageOps

        upright = ImageOps.exif_transpose(image)
        if upright.mode in ("LA", "PA", "RGBA") or "transparency" in upright.info:
            clear = upright.convert("RGBA")
            white = Image.new("RGBA", clear.size, "white")
            upright = Image.alpha_composite(white, clear)
        plain = upright.convert("L" if self.channels == 1 else "RGB")
        fitted = ImageOps.pad(plain, (self.size, self.size), Image.Resampling.BILINEAR)
        pixels = np.asarray(fitted, np.float32) / np.float32(255)
        return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)

    def _from_pixels(
        self, pixels: NDArray[Any], table: Table, name: str, row: int
    ) -> NDArray[np.float32]:
        values = pixels if pixels.ndim == 3 else pixels[None]
        if values.dtype.kind in "iu":
            if values.min() < 0 or values.max() > 255:
                raise ValueError(
                    f"{_where(table, name, row)} has pixels from {values.min()} to {values.max()}: "
                    "give whole numbers from 0 to 255, or fractions."
                )
            values = values.astype(np.float32) / 255
        values = values.astype(np.float32)
        if not np.isfinite(values).all():
            raise ValueError(
                f"{_where(table, name, row)} has a NaN or an infinity: replace or remove it."
            )
        if len(values) != self.channels:
            grey = values.mean(axis=0, keepdims=True)
            values = grey if self.channels == 1 else np.repeat(grey, 3, axis=0)
        if values.shape[1:] == (self.size, self.size):
            return values
        return np.stack([self._resized(channel) for channel in values])

    def _resized(self, channel: NDArray[np.float32]) -> NDArray[np.float32]:
        from PIL import Image, ImageOps

        image = Image.fromarray(np.ascontiguousarray(channel))
        fitted = ImageOps.pad(image, (self.size, self.size), Image.Resampling.BILINEAR)
        return np.asarray(fitted, np.float32)

    def state(self) -> dict[str, Any]:
        """What is kept, as JSON."""
        return {"kind": "images", "size": self.size, "channels": self.channels}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "ImageEncoder":
        """The encoder of this state."""
        return cls(int(state["size"]), int(state["channels"]))


def _look(table: Table, name: str, row: int) -> tuple[int, bool]:
    """The longer side of an image, and whether it is grey."""
    cell = table.columns[name][row]
    if isinstance(cell, np.ndarray):
        return max(cell.shape[-2:]), cell.ndim == 2 or len(cell) == 1
    with _opened(table, name, row) as image:
        return max(image.size), image.mode in GREY


def _opened(table: Table, name: str, row: int) -> Any:
    """A picture whose size and kind of pixels are such that it can be decoded."""
    cell, where = table.columns[name][row], _where(table, name, row)
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        raise ValueError(f"{where} has no image: give one, or leave the row out.")
    if not isinstance(cell, str):
        image = cell.copy()  # the user's own stays as it is
    else:
        image = _opened_file((table.folder or Path()) / cell)
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise ValueError(_too_large(where))
    if image.mode not in MODES:
        raise ValueError(
            f"{where} has pixels of kind {image.mode}: convert it to 8 bits a channel."
        )
    return image


def _opened_file(path: Path) -> Any:
    from PIL.Image import DecompressionBombError

    try:
        return open_image(path)
    except ValueError as error:
        if isinstance(error.__cause__, DecompressionBombError):
            raise ValueError(_too_large(str(path))) from error
        raise


def _too_large(where: str) -> str:
    return f"{where} has more than {MOST_PIXELS:,} pixels: make it smaller."


def _where(table: Table, name: str, row: int) -> str:
    cell = table.columns[name][row]
    if isinstance(cell, str) and cell.strip():
        return str((table.folder or Path()) / cell)
    return f"Row {row + 1} of column {name!r} of {table.origin}"
