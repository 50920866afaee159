"""Clips as latents: drawn and encoded once, learned from many times."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from pipelines.training.demo_wan.autoencoder import to_pixels
from pipelines.training.motions import Clip, draw_clip, render_clip

Encode = Callable[[np.ndarray], jax.Array]
"""Pixels (B, 3, F, height, width) in [-1, 1] to normalised latents."""
ENCODED_TOGETHER = 4


@dataclass(frozen=True, kw_only=True)
class AlbumSize:
    """How many clips of which size, and how many of them a step learns from; `turns` steps in a row of each round."""

    width: int
    height: int
    clips: int
    batch_size: int
    turns: int = 1


@dataclass(frozen=True, kw_only=True)
class Album:
    """Latents fp16 (N, 8, T, height / 8, width / 8), and what the clips show."""

    latents: np.ndarray
    clips: tuple[Clip, ...]


def draw_album(size: AlbumSize, encode: Encode, *, folder: Path) -> Album:
    """Draws the clips of one size and encodes them; kept in `folder`, so that a resumed run starts at once."""
    rng = np.random.default_rng((4, size.width, size.height))
    clips = tuple(draw_clip(rng) for _ in range(size.clips))
    file = folder / f"clips-{size.width}x{size.height}-{size.clips}.npy"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        parts = [
            np.asarray(encode(to_pixels(np.stack(frames))), np.float16)
            for frames in (
                [render_clip(clip, size.width, size.height) for clip in clips[start : start + ENCODED_TOGETHER]]
                for start in range(0, len(clips), ENCODED_TOGETHER)
            )
        ]
        partial = file.with_suffix(".partial.npy")
        np.save(partial, np.concatenate(parts))
        partial.rename(file)
    return Album(latents=np.load(file), clips=clips)
