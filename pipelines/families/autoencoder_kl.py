"""Programs of diffusers' AutoencoderKL, which several families have: latents to pixels, and a picture to its latents.

Latents are scaled, shifted and normalised as the autoencoder's config says.
"""

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
        if config.shift_factor is not None:
            latents = latents + config.shift_factor
        if config.latents_mean is not None and config.latents_std is not None:
            mean, deviation = (jnp.asarray(v)[None, :, None, None] for v in (config.latents_mean, config.latents_std))
            latents = latents * deviation + mean
        latents = jax.lax.with_sharding_constraint(latents, sharding)
        call, prepared = prepare_pictures(vae, weights, PictureAxes.of_pictures(sharding))
        pixels = call(prepared, latents.astype(dtype), method=_decode).astype(jnp.float32)
        pixels = jnp.clip(pixels / 2 + 0.5, 0, 1) * 255
        return pixels.round().astype(jnp.uint8).transpose(0, 2, 3, 1)

    return decode


def build_condition_program(vae: TracedModule, *, dtype: Any, sharding: NamedSharding) -> Any:
    """Builds condition(weights, picture (1, 3, height, width) in [-1, 1]) -> mean and deviation of its latents.

    Both are (1, C, H, W) fp32 and scaled like the denoiser's latents. Image to image draws the latents that it starts
    from with the recipe's noise, as in diffusers, so the program returns their distribution and does not depend on the
    seed. `sharding` splits the picture over the devices that divide it.
    """
    config = vae.module.config

    def condition(weights: Mapping[str, jax.Array], picture_BCHW: jax.Array) -> tuple[jax.Array, jax.Array]:
        pixels = jax.lax.with_sharding_constraint(picture_BCHW.astype(dtype), sharding)
        call, prepared = prepare_pictures(vae, weights, PictureAxes.of_pictures(sharding))
        mean, deviation = (value.astype(jnp.float32) for value in call(prepared, pixels, method=_encode))
        scale = config.scaling_factor
        if config.shift_factor is not None:
            mean = mean - config.shift_factor
        if config.latents_mean is not None and config.latents_std is not None:
            own_mean, own_deviation = (
                jnp.asarray(v)[None, :, None, None] for v in (config.latents_mean, config.latents_std)
            )
            mean, scale = mean - own_mean, scale / own_deviation
        return mean * scale, deviation * scale

    return condition


def _decode(vae: Any, latents: Any) -> Any:
    return vae.decode(latents, return_dict=False)[0]


def _encode(vae: Any, pixels: Any) -> tuple[Any, Any]:
    distribution = vae.encode(pixels, return_dict=False)[0]
    return distribution.mean, distribution.std
