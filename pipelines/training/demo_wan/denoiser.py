"""The transformer under the finished text encoder: rectified flow on clips (Wan Team 2025, section 4.2).

A clip is seen at `sigma` between 0 (itself) and 1 (noise): (1 - sigma) latents + sigma noise; what is learned is
noise - latents. Sampling shifts its steps towards the noise, where composition and motion are decided; so does
training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pipelines.training.demo_wan import architecture
from pipelines.training.demo_wan.album import Album, AlbumSize
from pipelines.training.demo_wan.captions import draw_caption, is_calm
from pipelines.training.demo_wan.network import embed, is_hidden
from pipelines.training.demo_wan.tokenizer import tokenize
from pipelines.training.network import Network
from pipelines.training.optimizer import Course
from pipelines.training.trainer import Batch, Parameters, Task, fill_mesh, train

SIGMA_SHIFT = architecture.SCHEDULER_CONFIG["flow_shift"]  # half of the sigmas above 3/4
TIMESTEPS = 1000
DROPPED_SHARE = 0.1  # captions replaced by an empty one, for classifier-free guidance


@dataclass(frozen=True, kw_only=True)
class Stage:
    name: str
    sizes: tuple[AlbumSize, ...]
    course: Course


STAGES = (
    Stage(
        name="denoiser",
        sizes=(
            AlbumSize(width=128, height=128, clips=8000, batch_size=16, turns=2),
            AlbumSize(width=160, height=96, clips=4000, batch_size=16, turns=1),
        ),
        course=Course(steps=9000, muon_learning_rate=0.015, adam_learning_rate=1e-3, ema_decay=0.998),
    ),
)


def train_stage(
    stage: Stage,
    network: Network,
    tokenizer: Any,
    albums: list[Album],
    initial: Mapping[str, np.ndarray],
    *,
    frozen: Mapping[str, np.ndarray],
    mesh: Mesh,
    folder: Path,
    stop_after_s: float | None = None,
) -> dict[str, np.ndarray]:
    """Returns the transformer's EMA parameters; the text encoder's are `frozen`. Resumes from `folder`."""
    rounds = [
        (album, size.batch_size) for album, size in zip(albums, stage.sizes, strict=True) for _ in range(size.turns)
    ]

    def draw(step: int) -> Batch:
        album, batch_size = rounds[step % len(rounds)]
        return draw_batch(album, tokenizer, batch_size=fill_mesh(batch_size, mesh), step=step)

    return train(
        Task(
            name=stage.name,
            loss=lambda parameters, batch, key: compute_loss(network, parameters, batch, key),
            draw_batch=draw,
            course=stage.course,
            is_hidden=is_hidden,
            frozen=frozen,
            seed=3,
        ),
        initial,
        mesh=mesh,
        folder=folder,
        stop_after_s=stop_after_s,
    )


def draw_batch(album: Album, tokenizer: Any, *, batch_size: int, step: int) -> Batch:
    """`latents` fp32 (B, C, T, h, w), and the tokens of a caption each."""
    rng = np.random.default_rng((5, step))
    chosen = rng.integers(len(album.clips), size=batch_size)
    calm = np.flatnonzero([is_calm(clip) for clip in album.clips])
    captions = []
    for row, choice in enumerate(chosen):
        caption, is_about_clip = draw_caption(album.clips[choice], rng)
        captions.append("" if rng.random() < DROPPED_SHARE else caption)
        if not is_about_clip:
            chosen[row] = rng.choice(calm)
    ids, is_text = tokenize(tokenizer, captions)
    return {"latents": album.latents[chosen].astype(np.float32), "input_ids": ids, "is_text": is_text}


def compute_loss(network: Network, parameters: Parameters, batch: Mapping[str, jax.Array], key: jax.Array) -> jax.Array:
    """Mean squared error of noise - latents; the batch covers all sigmas evenly."""
    latents = batch["latents"]
    time_key, noise_key = jax.random.split(key)
    rows = latents.shape[0]
    even = (jnp.arange(rows) + jax.random.uniform(time_key, (rows,))) / rows
    sigmas = (SIGMA_SHIFT * even / (1 + (SIGMA_SHIFT - 1) * even))[:, None, None, None, None]
    noise = jax.random.normal(noise_key, latents.shape, latents.dtype)
    (output,) = network.call(
        "transformer",
        parameters,
        (1 - sigmas) * latents + sigmas * noise,
        TIMESTEPS * sigmas[:, 0, 0, 0, 0],
        encoder_hidden_states=embed(network, parameters, batch["input_ids"], batch["is_text"]),
        return_dict=False,
    )
    return jnp.square(output - (noise - latents)).mean()
