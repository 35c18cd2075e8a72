import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from gateon.streams import draw, pixels

pytestmark = pytest.mark.numeric


def some_images(count=7, channels=1, side=28, seed=0):
    return np.random.default_rng(seed).integers(
        0, 256, (count, channels, side, side), dtype=np.uint8
    )


def test_plain_divides_by_255_and_reaches_exactly_0_and_1():
    images = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    x = pixels.plain(images)
    assert x.dtype == torch.float32 and x.shape == (1, 1, 16, 16)
    assert torch.equal(x, torch.from_numpy(images.astype(np.float32) / np.float32(255)))
    assert x.min() == 0 and x.max() == 1


def test_permute_takes_the_named_pixel_in_every_image_and_channel():
    images = some_images(5, channels=3, side=4)
    order = draw.permutation(16, 0, "test")
    moved = pixels.permute(images, order).flatten(2)
    plain = pixels.plain(images).flatten(2)
    for place, pixel in enumerate(order):
        assert torch.equal(moved[:, :, place], plain[:, :, pixel])


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_quarter_turns_are_exact_and_counter_clockwise(turns):
    images = some_images(channels=2)
    expected = pixels.plain(np.rot90(images, turns, axes=(2, 3)).copy())
    assert torch.equal(pixels.rotate(images, 90 * turns), expected)


@given(degrees=st.floats(-400, 400), side=st.integers(2, 31))
@settings(max_examples=40, deadline=None)
def test_rotation_agrees_with_grid_sample(degrees, side):
    # Noise is the hardest case: a place rounded to 1/256 pixel, across and down, is worth up to
    # 2/512 of the full range.
    images = some_images(3, side=side)
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    turn = torch.tensor([[cosine, -sine, 0], [sine, cosine, 0]], dtype=torch.float32).expand(
        3, 2, 3
    )
    grid = F.affine_grid(turn, [3, 1, side, side], align_corners=False)
    expected = F.grid_sample(pixels.plain(images), grid, align_corners=False)
    assert (pixels.rotate(images, degrees) - expected).abs().max() < 0.01


def test_rotated_values_are_whole_multiples_of_a_fixed_unit():
    # The reason why rotation is equal on every machine: all sums are whole numbers that float32
    # holds without rounding.
    units = pixels.rotate(some_images(), 33.3).double() * 255 * 2**16
    assert (units - units.round()).abs().max() < 0.5
    corners = pixels._corners(28, 28, 33.3)
    assert sum(weight for _, weight in corners).max() * 255 < 2**24
    assert all((weight == weight.round()).all() for _, weight in corners)


@pytest.mark.parametrize("threads", [1, 3])
def test_chunks_and_threads_change_nothing(threads):
    before = torch.get_num_threads()
    images = some_images(2 * pixels._CACHED_ROWS + 7, side=6)
    try:
        torch.set_num_threads(threads)
        whole = pixels.rotate(images, 20)
    finally:
        torch.set_num_threads(before)
    singly = torch.cat([pixels.rotate(images[row : row + 1], 20) for row in range(len(images))])
    assert torch.equal(whole, singly)


def test_no_images_give_no_images():
    empty = np.empty((0, 1, 28, 28), np.uint8)
    for made in (
        pixels.plain(empty),
        pixels.permute(empty, np.arange(784)),
        pixels.rotate(empty, 10),
    ):
        assert made.shape == (0, 1, 28, 28)


@given(count=st.integers(0, 50), seed=st.integers(0, 2**70), key=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_draws_are_permutations_and_fractions_that_depend_on_seed_and_key(count, seed, key):
    order = draw.permutation(count, seed, "a", key)
    assert sorted(order.tolist()) == list(range(count))
    fractions = draw.uniform(count, seed, "a", key)
    assert ((fractions >= 0) & (fractions < 1)).all()
    if count > 20:
        assert (order != draw.permutation(count, seed + 1, "a", key)).any()
        assert (order != draw.permutation(count, seed, "b", key)).any()
        assert (order != draw.permutation(count, seed, "a", key + 1)).any()


def test_draws_are_even():
    firsts = np.bincount([draw.permutation(5, 0, k)[0] for k in range(2000)], minlength=5)
    assert abs(firsts - 400).max() < 80  # four and a half standard deviations
    assert abs(draw.uniform(4000, 0, "even").mean() - 0.5) < 0.02
