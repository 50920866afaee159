"""The picture to come, small, by one linear map from latents to colours (runtime/preview.py).

A checkpoint may bring its map as `preview.json`. For others it is learnt from the first picture that is decoded here,
and kept in the cache folder; until then the first three channels stand for red, green and blue.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from pipelines.flux2.parts import PATCH
from pipelines.runtime.preview import LatentsToRgb, fit_map, read_map, write_map

_UNLEARNT_GAIN = 0.3


def draw_preview(matrix: Any, bias: Any, latents_BCHW: jax.Array) -> jax.Array:
    """uint8 (B, 2 * H, 2 * W, 3); the map is an input, so that learning one compiles nothing."""
    return LatentsToRgb(matrix=matrix, bias=bias, cells=PATCH).draw(latents_BCHW)


class PreviewMap:
    """The map of one model: found with it, learnt before, or still to learn."""

    def __init__(self, model_folder: Path, learnt_folder: Path, *, channels: int) -> None:
        self._learnt_folder = learnt_folder
        found = read_map(model_folder) or read_map(learnt_folder)
        self.is_learnt = found is not None
        self.map = found or _guess_map(channels)

    def learn(self, latents_BCHW: np.ndarray, pixels_BHWC: np.ndarray) -> None:
        """From latents and the uint8 pictures they were decoded to."""
        self.map = fit_map(latents_BCHW, pixels_BHWC, cells=PATCH)
        self.is_learnt = True
        self._learnt_folder.mkdir(parents=True, exist_ok=True)
        write_map(self.map, self._learnt_folder)


def _guess_map(channels: int) -> LatentsToRgb:
    """Channel 4 * c + p of a token is channel c of the latent at place p of its patch."""
    places = PATCH**2
    matrix = np.zeros((channels, places, 3), np.float32)
    for colour in range(3):
        for place in range(places):
            matrix[colour * places + place, place, colour] = _UNLEARNT_GAIN
    return LatentsToRgb(matrix=matrix.reshape(channels, -1), bias=np.zeros(3 * places, np.float32), cells=PATCH)
