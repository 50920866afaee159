"""Postcards as latents: drawn and encoded once, learned from many times."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from pipelines.training.postcards import Scene, draw_scene, render
from pipelines.training.stills.autoencoder import to_pixels
from pipelines.training.stills.captions import is_empty

Encode = Callable[[np.ndarray], jax.Array]
"""Pixels (B, 3, height, width) in [-1, 1] to latents."""


@dataclass(frozen=True, kw_only=True)
class Album:
    """Pictures as latents, with the scenes they show; latents fp16 (N, 16, height / 16, width / 16)."""

    width: int
    height: int
    latents: np.ndarray
    scenes: tuple[Scene, ...]
    empty_scenes: np.ndarray  # indices
    crowded_scenes: np.ndarray  # indices of those with two subjects


@dataclass(frozen=True, kw_only=True)
class AlbumSize:
    """How many pictures of which size, and how many of them a step learns from."""

    width: int
    height: int
    pictures: int
    batch_size: int
    turns: int = 1  # steps in a row of each round


def draw_album(size: AlbumSize, encode: Encode, *, folder: Path) -> Album:
    """Draws the postcards of one size and encodes them; kept in `folder`, so that a resumed run starts at once."""
    rng = np.random.default_rng((4, size.width, size.height))
    scenes = tuple(draw_scene(rng) for _ in range(size.pictures))
    file = folder / f"album-{size.width}x{size.height}-{size.pictures}.npy"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        parts = [
            np.asarray(encode(to_pixels(np.stack(pictures))), np.float16)
            for pictures in (
                [render(scene, size.width, size.height) for scene in scenes[start : start + 16]]
                for start in range(0, len(scenes), 16)
            )
        ]
        partial = file.with_suffix(".partial.npy")
        np.save(partial, np.concatenate(parts))
        partial.rename(file)
    return Album(
        width=size.width,
        height=size.height,
        latents=np.load(file),
        scenes=scenes,
        empty_scenes=np.flatnonzero([is_empty(scene) for scene in scenes]),
        crowded_scenes=np.flatnonzero([len(scene.subjects) == 2 for scene in scenes]),
    )
