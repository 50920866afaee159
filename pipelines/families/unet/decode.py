"""Latents to pixels: the autoencoder's decoder, leaving the devices as uint8."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from pipelines.runtime.bridge.autoencoder import prepare_pictures
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels.convolution import PictureAxes


def build_decode_program(vae: TracedModule, *, dtype: Any, sharding: NamedSharding) -> Any:
    """Builds decode(weights, latents (B, C, H, W)) -> uint8 (B, height, width, 3).

    `sharding` splits the picture over as many devices as divide it; the autoencoder's weights are replicated.
    """
    config = vae.module.config

    def decode(weights: Mapping[str, jax.Array], latents_BCHW: jax.Array) -> jax.Array:
        latents = latents_BCHW / config.scaling_factor
        if config.latents_mean is not None and config.latents_std is not None:
            mean, deviation = (jnp.asarray(v)[None, :, None, None] for v in (config.latents_mean, config.latents_std))
            latents = latents * deviation + mean
        latents = jax.lax.with_sharding_constraint(latents, sharding)
        call, prepared = prepare_pictures(vae, weights, PictureAxes.of_pictures(sharding))
        pixels = call(prepared, latents.astype(dtype), method=_decode).astype(jnp.float32)
        pixels = jnp.clip(pixels / 2 + 0.5, 0, 1) * 255
        return pixels.round().astype(jnp.uint8).transpose(0, 2, 3, 1)

    return decode


def _decode(vae: Any, latents: Any) -> Any:
    return vae.decode(latents, return_dict=False)[0]
