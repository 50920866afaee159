"""Drawn pictures or clips as latents: made once, kept in a file, learned from many times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jax.sharding import Mesh

from pipelines.training.trainer import Batch, fill_mesh

Album = TypeVar("Album")


@dataclass(frozen=True, kw_only=True)
class AlbumSize:
    """`count` pictures or clips of one size, and how many of them a step learns from."""

    width: int
    height: int
    count: int
    batch_size: int
    turns: int = 1  # steps in a row of each round


def keep_latents(
    size: AlbumSize,
    draw: Callable[[int], np.ndarray],
    encode: Callable[[np.ndarray], Any],
    *,
    together: int,
    folder: Path,
) -> np.ndarray:
    """fp16 latents of `encode(draw(index), ...)`, `together` at a time; kept in `folder` for a resumed run."""
    file = folder / f"album-{size.width}x{size.height}-{size.count}.npy"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        parts = [
            np.asarray(encode(np.stack([draw(index) for index in range(start, min(start + together, size.count))])))
            for start in range(0, size.count, together)
        ]
        partial = file.with_suffix(".partial.npy")
        np.save(partial, np.concatenate(parts).astype(np.float16))
        partial.rename(file)
    return np.load(file)


def take_turns(
    sizes: Sequence[AlbumSize],
    albums: Sequence[Album],
    draw_batch: Callable[[Album, int, int], Batch],
    *,
    mesh: Mesh,
) -> Callable[[int], Batch]:
    """Step to batch: the albums' turns in a round, each with its rows; `draw_batch(album, rows, step)`."""
    rounds = [
        (album, fill_mesh(size.batch_size, mesh))
        for size, album in zip(sizes, albums, strict=True)
        for _ in range(size.turns)
    ]

    def draw(step: int) -> Batch:
        album, rows = rounds[step % len(rounds)]
        return draw_batch(album, rows, step)

    return draw
