"""A stage of a denoiser's training: the postcards and captions of each step.

Captions are drawn anew each step; some are dropped to train classifier-free guidance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jax.sharding import Mesh

from pipelines.demos.album import AlbumSize, take_turns
from pipelines.demos.learning import Batch, Course, IsHidden, Loss, Task, train
from pipelines.demos.postcards import describe
from pipelines.demos.reading import Tokenize
from pipelines.demos.stills.album import Album, Encode, draw_album
from pipelines.demos.stills.captions import draw_caption
from pipelines.training.stop import Stop

DROPPED_SHARE = 0.08  # share of captions that are dropped


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A training stage; `channel_weights` are the latent channels' weights in the loss.

    A further `crowded_share` of each batch shows two subjects, because it takes longest to learn which of two colours
    belongs to which.
    """

    name: str
    sizes: tuple[AlbumSize, ...]
    course: Course
    channel_weights: tuple[float, ...]
    crowded_share: float = 0.2


def train_stage(
    stage: Stage,
    initial: Mapping[str, np.ndarray],
    *,
    frozen: Mapping[str, np.ndarray],
    encode: Encode,
    albums: Path,
    tokenize: Tokenize,
    loss: Loss,
    is_hidden: IsHidden,
    mesh: Mesh,
    folder: Path,
    stop: Stop,
) -> dict[str, np.ndarray]:
    """Returns the EMA parameters; resumes from `folder`. Batches have `latents`, `is_kept`, `size` and the tokens."""
    drawn = [draw_album(size, encode, folder=albums) for size in stage.sizes]
    draw = take_turns(
        stage.sizes,
        drawn,
        lambda album, rows, step: draw_batch(
            album, tokenize, batch_size=rows, step=step, crowded_share=stage.crowded_share
        ),
        mesh=mesh,
    )
    return train(
        Task(
            name=stage.name,
            loss=loss,
            draw_batch=draw,
            course=stage.course,
            is_hidden=is_hidden,
            frozen=frozen,
            seed=3,
        ),
        initial,
        mesh=mesh,
        folder=folder,
        stop=stop,
    )


def draw_batch(album: Album, tokenize: Tokenize, *, batch_size: int, step: int, crowded_share: float = 0.0) -> Batch:
    """Draws `latents` fp32 (B, C, h, w), `is_kept` (B,) 0 for dropped captions, `size` (B, 2) height and width."""
    rng = np.random.default_rng((5, step))
    chosen = np.where(
        rng.random(batch_size) < crowded_share,
        rng.choice(album.crowded_scenes, size=batch_size),
        rng.integers(len(album.scenes), size=batch_size),
    )
    captions = []
    for row, choice in enumerate(chosen):
        caption, is_about_scene = draw_caption(lambda scene=album.scenes[choice]: describe(scene, rng), rng)
        captions.append(caption)
        if not is_about_scene:
            chosen[row] = rng.choice(album.empty_scenes)
    return {
        "latents": album.latents[chosen].astype(np.float32),
        "is_kept": (rng.random(batch_size) >= DROPPED_SHARE).astype(np.float32),
        "size": np.tile(np.asarray([album.height, album.width], np.float32), (batch_size, 1)),
        **tokenize(captions),
    }
