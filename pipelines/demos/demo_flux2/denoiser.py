"""Trains the transformer on the finished text encoder's embeddings, by rectified flow (flow.py).

Sampling with FLUX.2's own shift of about 6 spends most steps at high noise, and so does training.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pipelines.demos.album import AlbumSize
from pipelines.demos.demo_flux2.architecture import PATCH, TEXT_LENGTH
from pipelines.demos.demo_flux2.network import embed
from pipelines.demos.demo_flux2.tokenizer import tokenize
from pipelines.demos.learning import Course, Loss, Parameters
from pipelines.demos.network import Network
from pipelines.demos.stills.course import Stage
from pipelines.families.flux2.denoise import make_image_ids, make_text_ids, pack
from pipelines.training.engine.flow import add_noise

SIGMA_SHIFT = 3.0  # applied to uniform sigmas: half of them are above 3/4

# Loss weights of the latents' average and detail channels (stills/deepen.py).
COMPOSITION_FIRST = (3.0,) * 4 + (1 / 3,) * 12
AS_IN_PIXELS = (16 / 7,) * 4 + (4 / 7,) * 12

STAGES = (
    Stage(
        name="denoiser-256",
        sizes=(AlbumSize(width=256, height=256, count=14_336, batch_size=32),),
        course=Course(steps=4000, muon_learning_rate=0.015, adam_learning_rate=1e-3, ema_decay=0.998),
        channel_weights=COMPOSITION_FIRST,
    ),
    Stage(
        name="denoiser-all",
        sizes=(
            AlbumSize(width=256, height=256, count=14_336, batch_size=32, turns=5),
            AlbumSize(width=320, height=192, count=2048, batch_size=32, turns=2),
            AlbumSize(width=192, height=320, count=2048, batch_size=32, turns=2),
            AlbumSize(width=128, height=128, count=16_384, batch_size=64, turns=1),
        ),
        course=Course(steps=2400, muon_learning_rate=0.01, adam_learning_rate=7e-4, ema_decay=0.998),
        channel_weights=AS_IN_PIXELS,
    ),
)


def build_loss(network: Network, stage: Stage, *, tokenizer: Any) -> Loss:
    unread = np.stack(tokenize(tokenizer, [""]))
    weights = np.asarray(stage.channel_weights, np.float32)[:, None, None]
    return lambda parameters, batch, key: _compute_loss(
        network, unread, parameters, batch, key, channel_weights=weights
    )


def _compute_loss(
    network: Network,
    unread_2BL: np.ndarray,
    parameters: Parameters,
    batch: Mapping[str, jax.Array],
    key: jax.Array,
    *,
    channel_weights: np.ndarray,
) -> jax.Array:
    """Computes the mean squared error of noise - latents over evenly spread sigmas; a dropped caption is empty text."""
    latents = batch["latents"]
    _, channels, height, width = latents.shape
    noisy, target, sigmas = add_noise(latents, key, shift=SIGMA_SHIFT)
    tokens = jnp.stack([batch["input_ids"], batch["is_text"]])
    tokens = jnp.where(batch["is_kept"][None, :, None] > 0, tokens, unread_2BL)
    (output,) = network.call(
        "transformer",
        parameters,
        hidden_states=pack(fold_patches(noisy)),
        encoder_hidden_states=embed(network, parameters, tokens),
        timestep=sigmas,
        img_ids=jnp.asarray(make_image_ids(height // PATCH, width // PATCH)),
        txt_ids=jnp.asarray(make_text_ids(TEXT_LENGTH)),
        return_dict=False,
    )
    weights = jnp.broadcast_to(channel_weights, (1, channels, height, width))
    error = output - pack(fold_patches(target))
    return (pack(fold_patches(weights)) * jnp.square(error)).mean()


def fold_patches(latents_BCHW: jax.Array) -> jax.Array:
    """Patchifies 2x2 latents: (B, C, H, W) -> (B, 4 * C, H / 2, W / 2), as Flux2KleinPipeline does."""
    batch, channels, height, width = latents_BCHW.shape
    squares = latents_BCHW.reshape(batch, channels, height // PATCH, PATCH, width // PATCH, PATCH)
    return squares.transpose(0, 1, 3, 5, 2, 4).reshape(batch, -1, height // PATCH, width // PATCH)
