"""How a picture fills a size of other proportions: cropped, with bars beside it, or stretched.

Importable without jax: the recipe names the way, and the page shows what would be cut off.
Not here: reading pictures (pictures.py).
"""

import math
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from PIL import Image, ImageOps

from pipelines.models.catalog import Shape

BARS = "black"  # as players show them beside a film
TOLD_SHARE = 0.01  # less outside is what rounding of sizes to 16 pixels costs


class Fit(StrEnum):
    """A way to fill a size."""

    CROP = "crop"  # the middle of the picture: what lies outside is cut off
    PAD = "pad"  # the whole picture, with black bars beside it
    STRETCH = "stretch"  # the whole picture, its proportions changed


def fit_picture(picture: Image.Image, shape: Shape, fit: Fit | None = None) -> np.ndarray:
    """Returns the picture at a shape's size as (1, 3, height, width) fp32 in [-1, 1]; cropped if `fit` is None."""
    size = (shape.width, shape.height)
    match fit or Fit.CROP:
        case Fit.CROP:
            fitted = ImageOps.fit(picture, size, Image.Resampling.LANCZOS)
        case Fit.PAD:
            fitted = ImageOps.pad(picture, size, Image.Resampling.LANCZOS, color=BARS)
        case Fit.STRETCH:
            fitted = picture.resize(size, Image.Resampling.LANCZOS)
    return (np.asarray(fitted, np.float32) / 127.5 - 1.0).transpose(2, 0, 1)[None]


def choose_nearest(shapes: Sequence[Shape], size: tuple[int, int], *, like: Shape) -> Shape:
    """Returns the shape of the nearest proportions; of several, the one most like `like` in frames and area.

    static/js/create/frame.js does the same in the page, when a picture is added there.
    """
    ratio = size[0] / size[1]

    def judge(shape: Shape) -> tuple[float, int, int]:
        distortion = abs(math.log(ratio * shape.height / shape.width))
        area = abs(shape.width * shape.height - like.width * like.height)
        return round(distortion, 3), abs(shape.frames - like.frames), area

    return min(shapes, key=judge)


def find_outside(size: tuple[int, int], shape: Shape) -> float:
    """Returns the share of a picture of this (width, height) that cropping to the shape cuts off, 0 to below 1."""
    ratio = size[0] / size[1] * shape.height / shape.width
    return 1 - min(ratio, 1 / ratio)
