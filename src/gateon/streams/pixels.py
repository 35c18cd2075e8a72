"""Whole batches of 8-bit images to float32 in [0, 1]: as they are, with pixels permuted, or rotated.

All of it is exact, so that a task is the same bit for bit on every machine. Division is correctly
rounded everywhere; a rotation is bilinear with weights that are whole multiples of 2^-16, so that
every sum stays below 2^24, where float32 does not round at all and the order of adding does not
matter. (`grid_sample`, which it agrees with to a hundredth, does not give equal bits across
machines, and rounding its output would not help: of millions of pixels some lie at an edge.)
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["permute", "plain", "rotate"]

Images = NDArray[np.uint8]
Floats = NDArray[np.float32]
_CACHED_ROWS = 250  # a chunk's 8-bit and float copies stay in a core's cache


def plain(images: Images) -> Tensor:
    """The images (N, C, H, W) as they are.

    >>> plain(np.array([[[[0, 51, 255]]]], np.uint8))
    tensor([[[[0.0000, 0.2000, 1.0000]]]])
    """

    def write(source: Images, target: Floats) -> None:
        np.divide(source, 255, out=target, dtype=np.float32)

    return _by_chunks(images, write)


def permute(images: Images, order: NDArray[np.int64]) -> Tensor:
    """Pixel j of every image becomes what pixel order[j] was, in every channel alike.

    >>> permute(np.array([[[[0, 51, 255]]]], np.uint8), np.array([2, 0, 1]))
    tensor([[[[1.0000, 0.0000, 0.2000]]]])
    """

    def write(source: Images, target: Floats) -> None:
        np.divide(source.take(order, axis=1), 255, out=target, dtype=np.float32)

    return _by_chunks(images, write)


def rotate(images: Images, degrees: float) -> Tensor:
    """The images turned counter-clockwise about their centre, bilinear, with black outside.

    >>> rotate(np.array([[[[255, 0], [51, 0]]]], np.uint8), 90)
    tensor([[[[0.0000, 0.0000],
              [1.0000, 0.2000]]]])
    """
    corners = _corners(images.shape[2], images.shape[3], degrees)

    def write(source: Images, target: Floats) -> None:
        values = source.astype(np.float32)
        corner = np.empty_like(values)
        target[:] = 0
        for pixel, weight in corners:
            # nothing to clip, but only so is `out` written directly
            values.take(pixel, axis=1, out=corner, mode="clip")
            corner *= weight
            target += corner
        target /= np.float32(255 * 2**16)

    return _by_chunks(images, write)


def _corners(height: int, width: int, degrees: float) -> list[tuple[NDArray[np.int64], Floats]]:
    """The four pixels each turned pixel is mixed from, and their weights in units of 2^-16.

    Cosine and sine are rounded to 2^-20 at once, which hides the last bit in which mathematics
    libraries differ; from there on all is whole numbers, with places in units of 1/256 pixel.
    """
    cosine, sine = (round(f(math.radians(degrees)) * 2**20) for f in (math.cos, math.sin))
    y, x = np.meshgrid(
        2 * np.arange(height) - height + 1, 2 * np.arange(width) - width + 1, indexing="ij"
    )
    across = (cosine * x - sine * y + ((width - 1) << 20) + 2**12) >> 13
    down = (sine * x + cosine * y + ((height - 1) << 20) + 2**12) >> 13
    corners = []
    for right in (0, 1):
        for below in (0, 1):
            column, row = (across >> 8) + right, (down >> 8) + below
            inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
            weight = np.where(right, across & 255, 256 - (across & 255)) * np.where(
                below, down & 255, 256 - (down & 255)
            )
            pixel = np.where(inside, row * width + column, 0)
            corners.append((pixel.ravel(), np.where(inside, weight, 0).ravel().astype(np.float32)))
    return corners


def _by_chunks(images: Images, write: Callable[[Images, Floats], None]) -> Tensor:
    """Write every chunk of images, one row a channel, to its place in one new float32 tensor."""
    count, channels, height, width = images.shape
    source = images.reshape(count * channels, height * width)
    # From numpy, which asks the system for huge pages: most of the time would go into page faults
    # otherwise.
    target = np.empty(source.shape, np.float32)
    chunks = [slice(start, start + _CACHED_ROWS) for start in range(0, len(source), _CACHED_ROWS)]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(lambda chunk: write(source[chunk], target[chunk]), chunks))
    return torch.from_numpy(target).view(images.shape)
