"""Previews of a few frames by one linear map from latents to colours (runtime/sampling/preview.py).

Until a map is known, the first three channels stand for red, green and blue.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pipelines.runtime.sampling.preview import LatentsToRgb

MAX_FRAMES = 5
CELLS = 2  # a learnt map draws 2 x 2 pixels per latent, which covers 8 x 8 or 16 x 16 pixels of the output
_UNLEARNT_GAIN = 0.3


def choose_frames(frames: int) -> list[int]:
    """Returns at most five latent frames, evenly spaced, including the first and the last."""
    return sorted({round(place) for place in np.linspace(0, frames - 1, min(frames, MAX_FRAMES))})


def build_preview_program(*, frames: int, cells: int) -> Callable[..., jax.Array]:
    """Builds preview(matrix, bias, latents (B, C, T, H, W)) -> uint8 (B, F', H * cells, W * cells, 3)."""
    chosen = np.asarray(choose_frames(frames))

    def preview(matrix: Any, bias: Any, latents_BCTHW: jax.Array) -> jax.Array:
        batch, channels, _, height, width = latents_BCTHW.shape
        pictures = jnp.moveaxis(latents_BCTHW[:, :, chosen], 2, 1).reshape(-1, channels, height, width)
        drawn = LatentsToRgb(matrix=matrix, bias=bias, cells=cells).draw(pictures)
        return drawn.reshape(batch, len(chosen), *drawn.shape[1:])

    return preview


def guess_map(channels: int) -> LatentsToRgb:
    matrix = np.tile(_UNLEARNT_GAIN * np.eye(channels, 3), CELLS * CELLS)
    return LatentsToRgb(matrix=matrix, bias=np.zeros(matrix.shape[1]), cells=CELLS)


def pair_frames(latents_CTHW: np.ndarray, frames_FHWC: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns latent frames (T, C, H, W) with, for each, the last of the video frames that it encodes."""
    latent_frames = latents_CTHW.shape[1]
    step = (len(frames_FHWC) - 1) // max(latent_frames - 1, 1)
    return latents_CTHW.transpose(1, 0, 2, 3), frames_FHWC[:: max(step, 1)][:latent_frames]
