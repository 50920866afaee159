"""A picture as JPEG or WebP, for programs that ask for one, with its recipe in the EXIF user comment.

The file that is kept is the PNG (metadata.py), which loses nothing.
"""

import io
from typing import Literal

from PIL import Image

from pipelines.files.video import make_exif
from pipelines.recipes.recipe import Recipe

StillKind = Literal["jpeg", "webp"]
QUALITY = 90  # of 100, when nobody asks for another
FULL_COLOUR_QUALITY = 90  # from here on a JPEG keeps colours at full resolution


def encode_still(picture: Image.Image, recipe: Recipe, *, kind: StillKind, quality: int = QUALITY) -> bytes:
    """Encodes an RGB picture with a quality of 0 to 100."""
    content = io.BytesIO()
    options = {"subsampling": 0} if kind == "jpeg" and quality >= FULL_COLOUR_QUALITY else {}
    picture.save(content, kind.upper(), quality=quality, exif=make_exif(recipe), **options)
    return content.getvalue()
