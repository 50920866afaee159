"""Albums of postcards: their latents, drawn and encoded once, and trained on many times."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from pipelines.demos.album import AlbumSize, keep_latents
from pipelines.demos.postcards import Scene, draw_scene, render
from pipelines.demos.stills.autoencoder import to_pixels
from pipelines.demos.stills.captions import is_empty

Encode = Callable[[np.ndarray], jax.Array]
"""Encodes pixels (B, 3, height, width) in [-1, 1] to latents."""
ENCODED_TOGETHER = 16


@dataclass(frozen=True, kw_only=True)
class Album:
    """Latents fp16 (N, 16, height / 16, width / 16) of pictures, with the scenes they show."""

    width: int
    height: int
    latents: np.ndarray
    scenes: tuple[Scene, ...]
    empty_scenes: np.ndarray  # indices
    crowded_scenes: np.ndarray  # indices of scenes with two subjects


def draw_album(size: AlbumSize, encode: Encode, *, folder: Path) -> Album:
    """Draws and encodes the postcards of one size; `folder` keeps the latents, so that a resumed run starts at once."""
    rng = np.random.default_rng((4, size.width, size.height))
    scenes = tuple(draw_scene(rng) for _ in range(size.count))
    latents = keep_latents(
        size,
        lambda index: render(scenes[index], size.width, size.height),
        lambda pictures: encode(to_pixels(pictures)),
        together=ENCODED_TOGETHER,
        folder=folder,
    )
    return Album(
        width=size.width,
        height=size.height,
        latents=latents,
        scenes=scenes,
        empty_scenes=np.flatnonzero([is_empty(scene) for scene in scenes]),
        crowded_scenes=np.flatnonzero([len(scene.subjects) == 2 for scene in scenes]),
    )
