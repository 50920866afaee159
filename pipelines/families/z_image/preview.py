"""Small previews by one linear map from latents to colours (runtime/sampling/preview.py).

Until a map is known, the first three channels stand for red, green and blue.
"""

from typing import Any

import jax
import numpy as np

from pipelines.runtime.sampling.preview import LatentsToRgb

_UNLEARNT_GAIN = 0.3


def draw_preview(matrix: Any, bias: Any, latents_BCHW: jax.Array) -> jax.Array:
    """Returns uint8 (B, H, W, 3); the map is an input, so a newly learnt one needs no compilation."""
    return LatentsToRgb(matrix=matrix, bias=bias).draw(latents_BCHW)


def guess_map(channels: int) -> LatentsToRgb:
    """Maps the first three channels to RGB."""
    return LatentsToRgb(matrix=np.eye(channels, 3, dtype=np.float32) * _UNLEARNT_GAIN, bias=np.zeros(3, np.float32))
