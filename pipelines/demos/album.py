"""Albums: latents of drawn pictures or clips, encoded once, stored in a file, and trained on many times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jax.sharding import Mesh

from pipelines.demos.learning import Batch, fill_mesh

Album = TypeVar("Album")


@dataclass(frozen=True, kw_only=True)
class AlbumSize:
    """An album of `count` pictures or clips of one size, and the batch size of its training steps."""

    width: int
    height: int
    count: int
    batch_size: int
    turns: int = 1  # consecutive steps in each round


def keep_latents(
    size: AlbumSize,
    draw: Callable[[int], np.ndarray],
    encode: Callable[[np.ndarray], Any],
    *,
    together: int,
    folder: Path,
) -> np.ndarray:
    """Returns fp16 latents of all drawings, encoded `together` at a time and stored in `folder` for a resumed run."""
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
    """Returns a function from step to batch: albums take turns in rounds, by `draw_batch(album, rows, step)`."""
    rounds = [
        (album, fill_mesh(size.batch_size, mesh))
        for size, album in zip(sizes, albums, strict=True)
        for _ in range(size.turns)
    ]

    def draw(step: int) -> Batch:
        album, rows = rounds[step % len(rounds)]
        return draw_batch(album, rows, step)

    return draw
