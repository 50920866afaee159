"""A few frames of the video to come, by one linear map from latents to colours (runtime/preview.py).

A checkpoint may bring its map as `preview.json`. For others it is learnt from the first video that is decoded here, and
kept in the cache folder; until then the first three channels stand for red, green and blue.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pipelines.runtime.preview import LatentsToRgb, fit_map, read_map, write_map

MAX_FRAMES = 5
CELLS = 2  # a learnt map draws 2 x 2 pixels for the 8 x 8 or 16 x 16 that a latent stands for
_UNLEARNT_GAIN = 0.3


def choose_frames(frames: int) -> list[int]:
    """At most five latent frames, evenly spaced, first and last among them."""
    return sorted({round(place) for place in np.linspace(0, frames - 1, min(frames, MAX_FRAMES))})


def build_preview_program(*, frames: int, cells: int) -> Callable[..., jax.Array]:
    """preview(matrix, bias, latents (B, C, T, H, W)) -> uint8 (B, F', H * cells, W * cells, 3)."""
    chosen = np.asarray(choose_frames(frames))

    def preview(matrix: Any, bias: Any, latents_BCTHW: jax.Array) -> jax.Array:
        batch, channels, _, height, width = latents_BCTHW.shape
        pictures = jnp.moveaxis(latents_BCTHW[:, :, chosen], 2, 1).reshape(-1, channels, height, width)
        drawn = LatentsToRgb(matrix=matrix, bias=bias, cells=cells).draw(pictures)
        return drawn.reshape(batch, len(chosen), *drawn.shape[1:])

    return preview


class PreviewMap:
    """The map of one model: found with it, learnt before, or still to learn."""

    def __init__(self, model_folder: Path | None, learnt_folder: Path, *, channels: int) -> None:
        self._learnt_folder = learnt_folder
        found = (read_map(model_folder) if model_folder else None) or read_map(learnt_folder)
        self.is_learnt = found is not None
        unlearnt = np.tile(_UNLEARNT_GAIN * np.eye(channels, 3), CELLS * CELLS)
        self.map = found or LatentsToRgb(matrix=unlearnt, bias=np.zeros(unlearnt.shape[1]), cells=CELLS)

    def learn(self, latents_CTHW: np.ndarray, frames_FHWC: np.ndarray) -> None:
        """From a video's latents and its uint8 frames: the last of the frames that a latent frame stands for."""
        latent_frames = latents_CTHW.shape[1]
        step = (len(frames_FHWC) - 1) // max(latent_frames - 1, 1)
        frames = frames_FHWC[:: max(step, 1)][:latent_frames]
        self.map = fit_map(latents_CTHW.transpose(1, 0, 2, 3), frames, cells=self.map.cells)
        self.is_learnt = True
        self._learnt_folder.mkdir(parents=True, exist_ok=True)
        write_map(self.map, self._learnt_folder)
