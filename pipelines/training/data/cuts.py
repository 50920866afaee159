"""How a picture of any size becomes one of a bucket's: scaled to cover it, then cut.

Arithmetic only: a cut also says what SDXL is told of a picture (its original size, where it was cut, what it became).
Not here: which bucket a picture goes to (buckets.py), pixels (pixels.py).
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Filter = Literal["lanczos", "bilinear"]


class Bucket(NamedTuple):
    """A size that pictures are trained at."""

    width: int
    height: int
    frames: int = 1


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A picture of `original_*` scaled to `scaled_*`, of which the bucket's size is taken from (left, top) on.

    A clip is read at `fps`, from its start.
    """

    bucket: Bucket
    original_width: int
    original_height: int
    scaled_width: int
    scaled_height: int
    left: int
    top: int
    filter: Filter = "lanczos"
    fps: float = 0.0

    @property
    def upscaling(self) -> float:
        """Returns the factor by which the picture is enlarged; below 1 it is made smaller."""
        return max(self.scaled_width / self.original_width, self.scaled_height / self.original_height)

    def move(self, crop: int | None, *, content: str) -> "Cut":
        """Returns the cut at the picture's place number `crop`, drawn by its content; the middle for None.

        Every place is equally likely, as with torchvision's RandomCrop.
        """
        if crop is None:
            return self
        draws = hashlib.sha256(f"{content} {crop}".encode()).digest()
        spare_x, spare_y = self.scaled_width - self.bucket.width, self.scaled_height - self.bucket.height
        left = int.from_bytes(draws[:8]) % (spare_x + 1)
        return replace(self, left=left, top=int.from_bytes(draws[8:16]) % (spare_y + 1))

    def list_time_ids(self, *, flip: bool = False) -> tuple[int, int, int, int, int, int]:
        """Lists what SDXL is told: original height and width, top and left of the cut, height and width now.

        In a flipped picture the cut is as far from the left as it was from the right.
        """
        left = self.scaled_width - self.bucket.width - self.left if flip else self.left
        return self.original_height, self.original_width, self.top, left, self.bucket.height, self.bucket.width


def cover(width: int, height: int, bucket: Bucket, *, fps: float = 0.0) -> Cut:
    """Scales a picture until it just covers the bucket and cuts its middle."""
    scale = max(bucket.width / width, bucket.height / height)
    scaled_width = max(round(width * scale), bucket.width)
    scaled_height = max(round(height * scale), bucket.height)
    return Cut(
        bucket=bucket,
        original_width=width,
        original_height=height,
        scaled_width=scaled_width,
        scaled_height=scaled_height,
        left=(scaled_width - bucket.width) // 2,
        top=(scaled_height - bucket.height) // 2,
        fps=fps,
    )


def cut_square(width: int, height: int, resolution: int, *, frames: int = 1, fps: float = 0.0) -> Cut:
    """Cuts as diffusers' training scripts do, by torchvision's Resize(resolution, BILINEAR) and CenterCrop.

    The shorter side becomes `resolution`, the longer is rounded down; the middle's offset is rounded half to even.
    `move` is then RandomCrop.
    """
    shorter, longer = sorted((width, height))
    long = int(resolution * longer / shorter)
    scaled_width, scaled_height = (resolution, long) if width <= height else (long, resolution)
    return Cut(
        bucket=Bucket(resolution, resolution, frames),
        original_width=width,
        original_height=height,
        scaled_width=scaled_width,
        scaled_height=scaled_height,
        left=round((scaled_width - resolution) / 2),
        top=round((scaled_height - resolution) / 2),
        filter="bilinear",
        fps=fps,
    )
