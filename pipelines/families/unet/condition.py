"""Encodes a picture to start from (image to image) into the autoencoder's posterior: mean and deviation of its latents.

Latents are drawn from this distribution with the recipe's noise, as in diffusers, so the program returns the
distribution and does not depend on the seed. The picture is encoded once per batch, spread over the mesh.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from pipelines.runtime.bridge.autoencoder import prepare_pictures
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels.convolution import PictureAxes


def build_condition_program(vae: TracedModule, *, dtype: Any, sharding: NamedSharding) -> Any:
    """Builds condition(weights, picture (1, 3, height, width) in [-1, 1]) -> mean and deviation.

    Both are (1, C, H, W) fp32 and scaled like the denoiser's latents. `sharding` splits the picture over the
    devices that divide it.
    """
    config = vae.module.config

    def condition(weights: Mapping[str, jax.Array], picture_BCHW: jax.Array) -> tuple[jax.Array, jax.Array]:
        pixels = jax.lax.with_sharding_constraint(picture_BCHW.astype(dtype), sharding)
        call, prepared = prepare_pictures(vae, weights, PictureAxes.of_pictures(sharding))
        mean, deviation = (value.astype(jnp.float32) for value in call(prepared, pixels, method=_encode))
        scale = config.scaling_factor
        if config.latents_mean is not None and config.latents_std is not None:
            own_mean, own_deviation = (
                jnp.asarray(v)[None, :, None, None] for v in (config.latents_mean, config.latents_std)
            )
            mean, scale = mean - own_mean, scale / own_deviation
        return mean * scale, deviation * scale

    return condition


def _encode(vae: Any, pixels: Any) -> tuple[Any, Any]:
    distribution = vae.encode(pixels, return_dict=False)[0]
    return distribution.mean, distribution.std
