"""The pixels that a model learns: a picture or clip, upright, in sRGB on white, scaled and cut to its bucket's size.

What a file holds becomes RGB as everywhere else (pipelines/pictures/reading.py).
Not here: where it is cut (cuts.py), latents.
"""

import io

import numpy as np
from PIL import Image, ImageOps

from pipelines.pictures.reading import read_picture
from pipelines.training.data.clips import read_clip
from pipelines.training.data.cuts import Cut
from pipelines.training.data.examples import Example

_FILTERS = {"lanczos": Image.Resampling.LANCZOS, "bilinear": Image.Resampling.BILINEAR}


def read_pixels(example: Example, cut: Cut, *, flip: bool = False) -> np.ndarray:
    """Reads uint8 (frames, height, width, 3) of a bucket's size; raises LumeshError or OSError."""
    if example.fps:
        pictures = read_clip(example, frames=cut.bucket.frames, fps=cut.fps)
    else:
        pictures = [read_picture(io.BytesIO(example.reader.read())).image]
    return np.stack([np.asarray(_cut(picture, cut, flip=flip)) for picture in pictures])


def _cut(picture: Image.Image, cut: Cut, *, flip: bool) -> Image.Image:
    """Scales, then cuts, then flips. Pillow's filters widen when they make smaller, so nothing aliases."""
    if picture.size != (cut.scaled_width, cut.scaled_height):
        picture = picture.resize((cut.scaled_width, cut.scaled_height), _FILTERS[cut.filter])
    box = (cut.left, cut.top, cut.left + cut.bucket.width, cut.top + cut.bucket.height)
    picture = picture.crop(box)
    return ImageOps.mirror(picture) if flip else picture
