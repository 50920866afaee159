"""Latents to frames: the causal decoder, leaving the devices as uint8."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from pipelines.families.wan.causal import decode_frames
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels.convolution import PictureAxes


def build_decode_program(vae: TracedModule, *, dtype: Any, input_sharding: NamedSharding) -> Any:
    """Builds decode(weights, latents (B, C, T, H, W)) -> uint8 (B, F, height, width, 3)."""

    def decode(weights: Mapping[str, jax.Array], latents_BCTHW: jax.Array) -> jax.Array:
        mean, deviation = read_statistics(vae)
        latents = (latents_BCTHW * deviation + mean).astype(dtype)
        latents = jax.lax.with_sharding_constraint(latents, input_sharding)
        return decode_frames(vae, weights, latents, finish=_to_bytes, pictures=PictureAxes.of_videos(input_sharding))

    return decode


def read_statistics(vae: TracedModule) -> tuple[jax.Array, jax.Array]:
    """Returns mean and deviation of the autoencoder's latents, (C, 1, 1, 1) each; the transformer's are normalised."""
    config = vae.module.config
    mean, deviation = (jnp.asarray(value)[:, None, None, None] for value in (config.latents_mean, config.latents_std))
    return mean, deviation


def _to_bytes(pixels_BCFHW: jax.Array) -> jax.Array:
    """Turns values in [-1, 1] into uint8 (B, F, height, width, 3)."""
    pixels = (pixels_BCFHW.astype(jnp.float32) / 2 + 0.5) * 255
    return pixels.round().astype(jnp.uint8).transpose(0, 2, 3, 4, 1)
