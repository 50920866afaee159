"""Small previews by one linear map from latents to colours (runtime/sampling/preview.py).

Until a map is known, the first three channels stand for red, green and blue.
"""

from typing import Any

import jax
import numpy as np

from pipelines.families.flux2.parts import PATCH
from pipelines.runtime.sampling.preview import LatentsToRgb

_UNLEARNT_GAIN = 0.3


def build_preview_program(cells: int) -> Any:
    """Builds preview(matrix, bias, latents (B, C, H, W)) -> uint8 (B, H * cells, W * cells, 3).

    The map is an input, so a newly learnt one needs no compilation.
    """

    def draw(matrix: Any, bias: Any, latents_BCHW: jax.Array) -> jax.Array:
        return LatentsToRgb(matrix=matrix, bias=bias, cells=cells).draw(latents_BCHW)

    return draw


def guess_map(channels: int) -> LatentsToRgb:
    """Maps the first three channels to RGB; channel 4 * c + p of a token is channel c at position p of its patch."""
    places = PATCH**2
    matrix = np.zeros((channels, places, 3), np.float32)
    for colour in range(3):
        for place in range(places):
            matrix[colour * places + place, place, colour] = _UNLEARNT_GAIN
    return LatentsToRgb(matrix=matrix.reshape(channels, -1), bias=np.zeros(3 * places, np.float32), cells=PATCH)
