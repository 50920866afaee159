"""Stages 4 and 5: the UNet together with the text encoders; composition first, then details and every shape.

v-prediction (Salimans and Ho 2022) on a linear schedule whose last step is nearly pure noise, so that sampling may
start from noise with trailing timesteps. Captions are drawn anew each step; some are dropped to train classifier-free
guidance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from diffusers import DDPMScheduler
from jax.sharding import Mesh
from transformers import CLIPTokenizer

from pipelines.training.demo_sdxl import architecture
from pipelines.training.demo_sdxl.album import Album, AlbumSize
from pipelines.training.demo_sdxl.captions import draw_caption, tokenize
from pipelines.training.demo_sdxl.network import Network, embed, is_hidden, part_of
from pipelines.training.optimizer import Course
from pipelines.training.trainer import Batch, Parameters, Task, fill_mesh, train

# Of the four channels of averages and the twelve of details (deepen.py). Composition is in the averages; first they
# count nine times as much, then four times, which is their share in the pixels.
COMPOSITION_FIRST = (3.0,) * 4 + (1 / 3,) * 12
AS_IN_PIXELS = (16 / 7,) * 4 + (4 / 7,) * 12
DROPPED_SHARE = 0.08  # embeddings set to zero, as SDXL does for an empty negative prompt


@dataclass(frozen=True, kw_only=True)
class Stage:
    name: str
    sizes: tuple[AlbumSize, ...]
    course: Course
    channel_weights: tuple[float, ...]


STAGES = (
    Stage(
        name="denoiser-256",
        sizes=(AlbumSize(width=256, height=256, pictures=6144, batch_size=32),),
        course=Course(steps=2800, muon_learning_rate=0.015, adam_learning_rate=1e-3, ema_decay=0.998),
        channel_weights=COMPOSITION_FIRST,
    ),
    Stage(
        name="denoiser-all",
        sizes=(
            AlbumSize(width=256, height=256, pictures=6144, batch_size=32, turns=5),
            AlbumSize(width=320, height=192, pictures=2048, batch_size=32, turns=2),
            AlbumSize(width=192, height=320, pictures=2048, batch_size=32, turns=2),
            AlbumSize(width=128, height=128, pictures=16_384, batch_size=32, turns=1),
        ),
        course=Course(steps=1800, muon_learning_rate=0.01, adam_learning_rate=7e-4, ema_decay=0.997),
        channel_weights=AS_IN_PIXELS,
    ),
)


def train_stage(
    stage: Stage,
    network: Network,
    tokenizer: CLIPTokenizer,
    albums: list[Album],
    initial: Mapping[str, np.ndarray],
    *,
    mesh: Mesh,
    folder: Path,
    stop_after_s: float | None = None,
) -> dict[str, np.ndarray]:
    """Returns the EMA parameters; resumes from `folder`."""
    rounds = [album for album, size in zip(albums, stage.sizes, strict=True) for _ in range(size.turns)]
    batch_sizes = [size.batch_size for size in stage.sizes for _ in range(size.turns)]
    alphas_cumprod = np.asarray(DDPMScheduler(**_ddpm_config()).alphas_cumprod)

    def draw_batch(step: int) -> Batch:
        turn = step % len(rounds)
        return _draw_batch(rounds[turn], tokenizer, fill_mesh(batch_sizes[turn], mesh), step)

    return train(
        Task(
            name=stage.name,
            loss=lambda parameters, batch, key: _compute_loss(
                network, alphas_cumprod, parameters, batch, key, channel_weights=stage.channel_weights
            ),
            draw_batch=draw_batch,
            course=stage.course,
            is_hidden=is_hidden,
            seed=3,
        ),
        initial,
        mesh=mesh,
        folder=folder,
        stop_after_s=stop_after_s,
    )


def _draw_batch(album: Album, tokenizer: CLIPTokenizer, batch_size: int, step: int) -> Batch:
    rng = np.random.default_rng((5, step))
    chosen = rng.integers(len(album.scenes), size=batch_size)
    captions = []
    for row, choice in enumerate(chosen):
        caption, is_about_scene = draw_caption(album.scenes[choice], rng)
        captions.append(caption)
        if not is_about_scene:
            chosen[row] = rng.choice(album.empty_scenes)
    size = [album.height, album.width, 0, 0, album.height, album.width]
    return {
        "latents": album.latents[chosen].astype(np.float32),
        "input_ids": tokenize(tokenizer, captions),
        "is_kept": (rng.random(batch_size) >= DROPPED_SHARE).astype(np.float32),
        "time_ids": np.tile(np.asarray(size, np.float32), (batch_size, 1)),
    }


def _compute_loss(
    network: Network,
    alphas_cumprod: np.ndarray,
    parameters: Parameters,
    batch: Mapping[str, jax.Array],
    key: jax.Array,
    *,
    channel_weights: tuple[float, ...],
) -> jax.Array:
    """Mean squared error of v = sqrt(a) noise - sqrt(1 - a) latents; the batch covers all timesteps evenly."""
    latents = batch["latents"]
    time_key, noise_key = jax.random.split(key)
    rows = latents.shape[0]
    positions = (jnp.arange(rows) + jax.random.uniform(time_key, (rows,))) / rows
    timesteps = jnp.floor(positions * len(alphas_cumprod)).astype(jnp.int32)
    noise = jax.random.normal(noise_key, latents.shape, latents.dtype)
    alpha = jnp.asarray(alphas_cumprod)[timesteps][:, None, None, None]
    noisy = jnp.sqrt(alpha) * latents + jnp.sqrt(1 - alpha) * noise
    target = jnp.sqrt(alpha) * noise - jnp.sqrt(1 - alpha) * latents

    prompt_embeds, pooled = embed(network, parameters, batch["input_ids"])
    kept = batch["is_kept"]
    (predicted,) = network.modules["unet"].call(
        part_of(network, parameters, "unet"),
        noisy,
        timesteps,
        encoder_hidden_states=prompt_embeds * kept[:, None, None],
        added_cond_kwargs={"text_embeds": pooled * kept[:, None], "time_ids": batch["time_ids"]},
        return_dict=False,
    )
    weights = jnp.asarray(channel_weights, jnp.float32)[:, None, None]
    return (weights * jnp.square(predicted - target)).mean()


def _ddpm_config() -> dict[str, Any]:
    names = ("num_train_timesteps", "beta_schedule", "beta_start", "beta_end")
    return {name: architecture.SCHEDULER_CONFIG[name] for name in names}
