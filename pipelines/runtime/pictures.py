"""Pictures that a recipe brings along, from files on this machine."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from pipelines.catalog import Shape
from pipelines.errors import RecipeError


def open_picture(file: Path) -> Image.Image:
    """The picture upright and in RGB; raises RecipeError when the file is none."""
    try:
        with Image.open(file) as opened:
            return ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        reason = str(error).replace(str(file), file.name)  # where it lies on a server is nobody's business
        raise RecipeError({"images": f"{file.name} cannot be read as a picture: {reason}"}) from error


def fit_picture(picture: Image.Image, shape: Shape) -> np.ndarray:
    """(1, 3, height, width) fp32 in [-1, 1]: the middle of the picture in the shape's proportions."""
    fitted = ImageOps.fit(picture, (shape.width, shape.height), Image.Resampling.LANCZOS)
    return (np.asarray(fitted, np.float32) / 127.5 - 1.0).transpose(2, 0, 1)[None]
