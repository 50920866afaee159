"""How a picture of other proportions fills a size, and how much of it is cut off."""

import numpy as np
import pytest
from PIL import Image, ImageOps

from pipelines.models.catalog import Shape
from pipelines.pictures.fitting import Fit, choose_nearest, find_outside, fit_picture

SHAPE = Shape(width=64, height=32)


def draw() -> Image.Image:
    """A square with a red and a blue half, one above the other."""
    picture = Image.new("RGB", (64, 64), "red")
    picture.paste("blue", (0, 32, 64, 64))
    return picture


def fit(way: Fit | None) -> np.ndarray:
    found = fit_picture(draw(), SHAPE, way)
    assert (found.shape, found.dtype) == ((1, 3, 32, 64), np.float32)
    return ((found[0].transpose(1, 2, 0) + 1) * 127.5).round().astype(int)


@pytest.mark.parametrize("way", [None, Fit.CROP])
def test_cropping_takes_the_middle_as_before_there_was_a_choice(way: Fit | None) -> None:
    expected = np.asarray(ImageOps.fit(draw(), (64, 32), Image.Resampling.LANCZOS))
    assert np.array_equal(fit(way), expected)
    assert [list(expected[row, 0]) for row in (0, -1)] == [[255, 0, 0], [0, 0, 255]]


def test_padding_keeps_all_of_it_between_black_bars() -> None:
    pixels = fit(Fit.PAD)
    assert list(pixels[2, 2]) == list(pixels[-3, -3]) == [0, 0, 0]
    assert (list(pixels[2, 32]), list(pixels[-3, 32])) == ([255, 0, 0], [0, 0, 255])


def test_stretching_fills_the_size_with_all_of_it() -> None:
    pixels = fit(Fit.STRETCH)
    assert (list(pixels[2, 2]), list(pixels[-3, -3])) == ([255, 0, 0], [0, 0, 255])


def test_what_lies_outside_is_a_share_of_the_picture() -> None:
    """The two photos of the field: of 1080x1920, 832x480 shows 32 %; of 3024x4032 it shows 43 %."""
    wide = Shape(width=832, height=480)
    assert find_outside((1080, 1920), wide) == pytest.approx(0.675, abs=0.001)
    assert find_outside((3024, 4032), wide) == pytest.approx(0.567, abs=0.001)
    assert find_outside((1664, 960), wide) == 0


def test_the_nearest_size_has_the_pictures_proportions_and_else_stays_as_it_was() -> None:
    shapes = [Shape.parse(text) for text in ("1280x720x81", "832x480x33", "720x1280x81", "480x832x33", "480x832x81")]
    chosen = choose_nearest(shapes, (1080, 1920), like=shapes[0])
    assert str(chosen) == "720x1280x81"
    assert str(choose_nearest(shapes[1:2] + shapes[3:], (1080, 1900), like=shapes[1])) == "480x832x33"
    assert choose_nearest(shapes, (1920, 1080), like=shapes[0]) == shapes[0]
