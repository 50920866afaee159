"""Compares two outputs' pixels: whether they are identical, or by how much they differ."""

from dataclasses import dataclass
from math import log10
from pathlib import Path

import numpy as np
from PIL import Image

from pipelines.files.video import read_mp4
from studio.library.records import Output

WHITE = 255.0


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """The result; `psnr_db` is the peak signal-to-noise ratio: None when sizes differ or pixels are identical."""

    same_size: bool
    identical: bool
    psnr_db: float | None


def compare(outputs_dir: Path, one: Output, other: Output) -> Likeness:
    """Compares the pixels of two outputs, frame by frame; videos are decoded from their files."""
    if (one.kind, one.width, one.height, one.frames) != (other.kind, other.width, other.height, other.frames):
        return Likeness(same_size=False, identical=False, psnr_db=None)
    error = _mean_squared_error(_read_frames(outputs_dir, one), _read_frames(outputs_dir, other))
    if error == 0.0:
        return Likeness(same_size=True, identical=True, psnr_db=None)
    return Likeness(same_size=True, identical=False, psnr_db=round(10 * log10(WHITE**2 / error), 2))


def _mean_squared_error(one_FHWC: np.ndarray, other_FHWC: np.ndarray) -> float:
    """Averages over all frames, one frame at a time, because a video as floats would be four times as large."""
    errors = [
        np.mean(np.square(one_HWC.astype(np.float32) - other_HWC.astype(np.float32)), dtype=np.float64)
        for one_HWC, other_HWC in zip(one_FHWC, other_FHWC, strict=True)
    ]
    return float(np.mean(errors))


def _read_frames(outputs_dir: Path, output: Output) -> np.ndarray:
    file = outputs_dir / output.file
    if output.kind == "video":
        return read_mp4(file, width=output.width, height=output.height)
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB"))[None]
