"""Trains the UNet on the finished text encoders' embeddings: composition first, then details and all shapes.

It uses v-prediction (Salimans and Ho 2022) on a linear schedule whose last step is nearly pure noise, so that sampling
may start from noise with trailing timesteps.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from diffusers import DDPMScheduler

from pipelines.demos.album import AlbumSize
from pipelines.demos.demo_sdxl import architecture
from pipelines.demos.demo_sdxl.network import embed
from pipelines.demos.learning import Course, Loss, Parameters
from pipelines.demos.network import Network
from pipelines.demos.stills.course import Stage
from pipelines.training.engine.flow import draw_evenly

# Loss weights of the four average and twelve detail channels (stills/deepen.py). Composition is in the averages: at
# first they count nine times as much, then four times, which is their share in the pixels, for a while twice.
COMPOSITION_FIRST = (3.0,) * 4 + (1 / 3,) * 12
AS_IN_PIXELS = (16 / 7,) * 4 + (4 / 7,) * 12
DETAILS_MORE = (1.6,) * 4 + (0.8,) * 12

EVERY_SHAPE = (
    AlbumSize(width=256, height=256, count=14_336, batch_size=32, turns=4),
    AlbumSize(width=320, height=192, count=2048, batch_size=32, turns=2),
    AlbumSize(width=192, height=320, count=2048, batch_size=32, turns=2),
    AlbumSize(width=128, height=128, count=16_384, batch_size=32, turns=1),
)
STAGES = (
    Stage(
        name="denoiser-256",
        sizes=(AlbumSize(width=256, height=256, count=14_336, batch_size=32),),
        course=Course(steps=2800, muon_learning_rate=0.015, adam_learning_rate=1e-3, ema_decay=0.998),
        channel_weights=COMPOSITION_FIRST,
    ),
    Stage(
        name="denoiser-all",
        sizes=EVERY_SHAPE,
        course=Course(steps=3200, muon_learning_rate=0.012, adam_learning_rate=8e-4, ema_decay=0.998),
        channel_weights=AS_IN_PIXELS,
    ),
    Stage(
        name="denoiser-details",
        sizes=EVERY_SHAPE,
        course=Course(steps=5500, muon_learning_rate=0.015, adam_learning_rate=1e-3, ema_decay=0.998),
        channel_weights=DETAILS_MORE,
        crowded_share=0.35,
    ),
    # The last stage learns which of two colours belongs to which subject, and the other sizes: right attributes rise
    # from 96.7 % to 98.4 %.
    Stage(
        name="denoiser-crowds",
        sizes=EVERY_SHAPE,
        course=Course(steps=5600, muon_learning_rate=0.014, adam_learning_rate=9e-4, ema_decay=0.997),
        channel_weights=AS_IN_PIXELS,
        crowded_share=0.45,
    ),
)


def build_loss(network: Network, stage: Stage) -> Loss:
    alphas_cumprod = np.asarray(DDPMScheduler(**_ddpm_config()).alphas_cumprod)
    weights = np.asarray(stage.channel_weights, np.float32)[:, None, None]
    return lambda parameters, batch, key: _compute_loss(
        network, alphas_cumprod, parameters, batch, key, channel_weights=weights
    )


def _compute_loss(
    network: Network,
    alphas_cumprod: np.ndarray,
    parameters: Parameters,
    batch: Mapping[str, jax.Array],
    key: jax.Array,
    *,
    channel_weights: np.ndarray,
) -> jax.Array:
    """Computes the mean squared error of v = sqrt(a) noise - sqrt(1 - a) latents over evenly spread timesteps.

    The embeddings of a dropped caption are zeros, as in SDXL for an empty negative prompt.
    """
    latents = batch["latents"]
    time_key, noise_key = jax.random.split(key)
    timesteps = jnp.floor(draw_evenly(time_key, len(latents)) * len(alphas_cumprod)).astype(jnp.int32)
    noise = jax.random.normal(noise_key, latents.shape, latents.dtype)
    alpha = jnp.asarray(alphas_cumprod)[timesteps][:, None, None, None]
    noisy = jnp.sqrt(alpha) * latents + jnp.sqrt(1 - alpha) * noise
    target = jnp.sqrt(alpha) * noise - jnp.sqrt(1 - alpha) * latents

    prompt_embeds, pooled = embed(network, parameters, batch["input_ids"])
    kept, size = batch["is_kept"], batch["size"]
    (predicted,) = network.call(
        "unet",
        parameters,
        noisy,
        timesteps,
        encoder_hidden_states=prompt_embeds * kept[:, None, None],
        # original size, crop from the top left corner, target size
        added_cond_kwargs={
            "text_embeds": pooled * kept[:, None],
            "time_ids": jnp.concatenate([size, jnp.zeros_like(size), size], axis=1),
        },
        return_dict=False,
    )
    return (channel_weights * jnp.square(predicted - target)).mean()


def _ddpm_config() -> dict[str, Any]:
    names = ("num_train_timesteps", "beta_schedule", "beta_start", "beta_end")
    return {name: architecture.SCHEDULER_CONFIG[name] for name in names}
