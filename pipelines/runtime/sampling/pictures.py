"""Pictures that a recipe brings along, from files on this machine."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from pipelines.catalog import Shape
from pipelines.errors import RecipeError
from pipelines.messages import say

SIDEWAYS = (5, 6, 7, 8)  # values of the EXIF orientation that swap width and height


def open_picture(file: Path) -> Image.Image:
    """The picture upright and in RGB; raises RecipeError when the file is none."""
    with _told_as_no_picture(file), Image.open(file) as opened:
        return ImageOps.exif_transpose(opened).convert("RGB")


def measure_picture(file: Path) -> tuple[int, int]:
    """Width and height of the upright picture, from the file's header alone; raises RecipeError."""
    with _told_as_no_picture(file), Image.open(file) as opened:
        is_sideways = opened.getexif().get(ExifTags.Base.Orientation) in SIDEWAYS
        return (opened.height, opened.width) if is_sideways else (opened.width, opened.height)


@contextlib.contextmanager
def _told_as_no_picture(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        reason = str(error).replace(str(file), file.name)  # where it lies on a server is nobody's business
        raise RecipeError(
            {"images": say("{file} cannot be read as a picture: {reason}", file=file.name, reason=reason)}
        ) from error


def fit_picture(picture: Image.Image, shape: Shape) -> np.ndarray:
    """(1, 3, height, width) fp32 in [-1, 1]: the middle of the picture in the shape's proportions."""
    fitted = ImageOps.fit(picture, (shape.width, shape.height), Image.Resampling.LANCZOS)
    return (np.asarray(fitted, np.float32) / 127.5 - 1.0).transpose(2, 0, 1)[None]
