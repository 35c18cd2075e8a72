"""Rows to what a network sees: fitted once, kept as JSON, the same ever after."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from gateon.life.encode import fit_encoder, restore_encoder
from gateon.life.encode_features import FeatureEncoder
from gateon.life.encode_images import ImageEncoder
from gateon.life.read import read
from gateon.life.understand import understand

FRAME = {
    "heat": [1.0, 3.0, None, 5.0],
    "sky": ["blue", "grey", "blue", None],
    "label": ["a", "b", "a", "b"],
}


def fitted(source, **named):
    table = read(source)
    understanding = understand(table, **named)
    return table, understanding, fit_encoder(table, understanding)


def test_features_are_scaled_marked_and_one_hot():
    table, understanding, encoder = fitted(FRAME)
    values, words = encoder.encode(table, understanding.inputs)
    deviation = np.sqrt(8 / 3)  # of 1, 3, 5 about 3
    wanted = [
        # heat, missing, blue, grey, new, missing
        [-2 / deviation, 0, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 1, 1, 0, 0, 0],
        [2 / deviation, 0, 0, 0, 0, 1],
    ]
    np.testing.assert_allclose(values, wanted, rtol=1e-6)
    assert values.dtype == np.float32 and words == [] and encoder.width == 6


def test_features_are_fitted_on_the_rows_to_train_on():
    split = {"split": ["train", "train", "test", "test"], "label": ["a", "b", "a", "b"]}
    _, _, encoder = fitted({"heat": [1, 3, 100, 1000], "sky": ["p", "q", "r", "s"]} | split)
    assert encoder.numbers == {"heat": (2.0, 1.0)} and encoder.categories == {"sky": ["p", "q"]}


def test_later_features_may_lack_columns_and_bring_new_ones():
    _, _, encoder = fitted(FRAME)
    later = read({"heat": [3.0, 1e9], "wind": [1, 2]})
    values, words = encoder.encode(later, ["heat", "wind"])
    np.testing.assert_allclose(values, [[0, 0, 0, 0, 0, 1], [100, 0, 0, 0, 0, 1]])
    assert words == [
        "Missing and filled in with means: 'sky'.",
        "New since the first task and not used: 'wind'.",
        "1 cell of column 'heat' beyond 100 standard deviations from the mean: taken as 100.",
    ]


def test_a_column_that_never_varies_is_zero():
    table, understanding, encoder = fitted({"a": [5, 5], "b": [1, 2], "label": ["x", "y"]})
    assert encoder.encode(table, understanding.inputs)[0][:, 0].tolist() == [0, 0]


def test_numbers_in_words_and_numbers_are_the_same_features(tmp_path):
    (tmp_path / "a.csv").write_text("heat,label\n1,a\n 2.5 ,b\nNA,a\n")
    table, understanding, encoder = fitted(tmp_path / "a.csv")
    same = read({"heat": [1, 2.5, None]})
    assert np.array_equal(
        encoder.encode(table, understanding.inputs)[0], encoder.encode(same, ["heat"])[0]
    )


def shop(folder, size, mode="RGB", kind="png"):
    for label, colour in (("hat", 50), ("shoe", 200)):
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, colour if mode == "L" else (colour, 0, 0)).save(
            folder / label / f"1.{kind}"
        )
    return folder


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((5, 5), 28),
        ((28, 28), 28),
        ((32, 32), 32),
        ((50, 20), 52),
        ((20, 61), 64),
        ((400, 300), 96),
    ],
)
def test_the_size_is_that_of_the_images(tmp_path, size, wanted):
    _, _, encoder = fitted(shop(tmp_path, size))
    assert encoder == ImageEncoder(wanted, 3)


@pytest.mark.parametrize("kind", ["png", "bmp", "gif", "webp", "tiff"])
def test_pictures_of_every_kind_are_read(tmp_path, kind):
    table, understanding, encoder = fitted(shop(tmp_path, (40, 40), kind=kind))
    values, _ = encoder.encode(table, understanding.inputs)
    assert values.shape == (2, 3, 40, 40) and values.dtype == np.float32
    np.testing.assert_allclose(
        values.mean((2, 3)), [[50 / 255, 0, 0], [200 / 255, 0, 0]], atol=0.02
    )


def test_grey_stays_grey_and_colours_become_so(tmp_path):
    _, understanding, encoder = fitted(shop(tmp_path / "grey", (30, 30), "L"))
    assert encoder.channels == 1
    coloured = read(shop(tmp_path / "red", (30, 30)))
    values, _ = encoder.encode(coloured, understanding.inputs)
    assert values.shape == (2, 1, 32, 32)


def test_images_keep_their_proportions_and_stand_upright(tmp_path):
    folder = shop(tmp_path, (40, 40))
    wide = Image.new("RGB", (40, 20), "white")
    rotated = Image.Exif()
    rotated[0x0112] = 6  # the camera was held upright
    wide.save(folder / "hat" / "2.jpg", exif=rotated)
    table, understanding, encoder = fitted(folder)
    (row,) = (n for n, path in enumerate(table.words("image")) if path == "hat/2.jpg")
    (picture,), _ = encoder.encode(table, understanding.inputs, np.array([row]))
    assert picture[0, :, 20].min() > 0.9, "as high as the square"
    assert picture[0, 20, :8].max() == 0 and picture[0, 20, -8:].max() == 0, "black beside it"


def test_what_is_transparent_is_white(tmp_path):
    folder = shop(tmp_path, (40, 40))
    Image.new("RGBA", (40, 40), (9, 9, 9, 0)).save(folder / "hat" / "2.png")
    table, understanding, encoder = fitted(folder)
    assert encoder.encode(table, understanding.inputs)[0][1].min() == 1


def test_arrays_of_pixels_stay_what_they_are():
    pixels = np.random.default_rng(0).normal(size=(4, 3, 32, 32)).astype(np.float32)
    table, understanding, encoder = fitted((pixels, ["a", "b", "a", "b"]))
    assert np.array_equal(encoder.encode(table, understanding.inputs)[0], pixels)
    whole = (np.arange(4 * 30 * 30) % 256).reshape(4, 30, 30).astype(np.uint8)
    table, understanding, encoder = fitted((whole, ["a", "b", "a", "b"]))
    values, _ = encoder.encode(table, understanding.inputs)
    assert values.shape == (4, 1, 32, 32) and 0 <= values.min() < values.max() <= 1


def test_pictures_of_pillow_are_left_as_they_are():
    pictures = [Image.new("RGB", (9, 9), "red"), Image.new("RGB", (12, 9), "blue")]
    table, understanding, encoder = fitted((pictures, ["a", "b"]))
    values, _ = encoder.encode(table, understanding.inputs)
    assert values.shape == (2, 3, 28, 28) and values[0, 0].min() == 1
    assert pictures[0].size == (9, 9)


def test_texts_are_composed_and_one_or_two():
    table, understanding, encoder = fitted(
        {"text": ["cafe\u0301", " b\x07c "], "second": ["d", None], "label": ["x", "y"]}
    )
    assert encoder.encode(table, understanding.inputs) == ([("caf\u00e9", "d"), ("b c", "")], [])
    assert encoder.encode(read(["so"]), ["text"]) == ([("so", None)], [])


@pytest.mark.parametrize(
    "source",
    [FRAME, (["a b c", "d e f"], ["x", "y"]), (np.zeros((2, 3, 40, 40)), ["x", "y"])],
    ids=["features", "texts", "images"],
)
def test_an_encoder_comes_back_from_json(source):
    table, understanding, encoder = fitted(source)
    back = restore_encoder(json.loads(json.dumps(encoder.state())))
    assert back == encoder and type(back) is type(encoder)
    before, after = (each.encode(table, understanding.inputs)[0] for each in (encoder, back))
    assert np.array_equal(before, after)


def test_scales_come_back_from_json_to_the_last_bit():
    _, _, encoder = fitted({"a": [0.1, 0.2, 1 / 3], "label": ["x", "y", "x"]})
    back = FeatureEncoder.from_state(json.loads(json.dumps(encoder.state())))
    assert back.numbers == encoder.numbers
