"""Albums of clips: their latents, drawn and encoded once, and trained on many times."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from pipelines.demos.album import AlbumSize, keep_latents
from pipelines.demos.demo_wan.autoencoder import to_pixels
from pipelines.demos.demo_wan.captions import is_calm
from pipelines.demos.motions import Clip, draw_clip, render_clip

Encode = Callable[[np.ndarray], jax.Array]
"""Encodes pixels (B, 3, F, height, width) in [-1, 1] to normalised latents."""
ENCODED_TOGETHER = 4


@dataclass(frozen=True, kw_only=True)
class ClipAlbumSize(AlbumSize):
    """An album's size; `faint_share` of its clips show a motion that changes few pixels or none."""

    faint_share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Album:
    """Latents fp16 (N, 8, T, height / 8, width / 8), and the clips they come from."""

    latents: np.ndarray
    clips: tuple[Clip, ...]
    calm_clips: np.ndarray  # indices of clips without a subject and without motion


def draw_album(size: ClipAlbumSize, encode: Encode, *, folder: Path) -> Album:
    """Draws and encodes the clips of one size; `folder` keeps the latents, so that a resumed run starts at once."""
    percent = round(100 * size.faint_share)
    rng = np.random.default_rng((4, size.width, size.height, *([percent] if percent else [])))
    clips = tuple(draw_clip(rng, faint_share=size.faint_share) for _ in range(size.count))
    latents = keep_latents(
        size,
        lambda index: render_clip(clips[index], size.width, size.height),
        lambda frames: encode(to_pixels(frames)),
        together=ENCODED_TOGETHER,
        folder=folder / f"faint-{percent}" if percent else folder,
    )
    return Album(latents=latents, clips=clips, calm_clips=np.flatnonzero([is_calm(clip) for clip in clips]))
