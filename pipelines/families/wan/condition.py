"""Encodes a first picture, and perhaps a last one, for the transformer: latents, and an image encoder's features.

Pictures are encoded on the devices by programs of fixed size; pictures/fitting.py brings them to that size.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from pipelines.families.wan.causal import encode_frames
from pipelines.families.wan.decode import read_statistics
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels.convolution import PictureAxes


def build_condition_program(vae: TracedModule, *, dtype: Any, frames: int, input_sharding: NamedSharding) -> Any:
    """Builds condition(weights, pictures (1 or 2, 3, height, width) in [-1, 1]) -> fp32.

    If `frames` is 1, the result is the picture's latents (1, C, 1, H, W). If more, it is (1, 4 + C, T, H, W): four
    channels that mark the given frames, then the latents of a video that is mid-grey behind its first frame, up to
    the last one if that is given too.
    """

    def condition(weights: Mapping[str, jax.Array], pictures_BCHW: jax.Array) -> jax.Array:
        has_last = len(pictures_BCHW) == 2
        first = pictures_BCHW[:1] if has_last else pictures_BCHW
        pixels = jnp.pad(first[:, :, None], ((0, 0), (0, 0), (0, frames - 1 - has_last), (0, 0), (0, 0)))
        if has_last:
            pixels = jnp.concatenate([pixels, pictures_BCHW[1:, :, None]], axis=2)
        pixels = jax.lax.with_sharding_constraint(pixels.astype(dtype), input_sharding)
        mean, deviation = read_statistics(vae)
        latents = encode_frames(vae, weights, pixels, pictures=PictureAxes.of_videos(input_sharding))
        latents = (latents.astype(jnp.float32) - mean) / deviation
        if frames == 1:
            return latents
        given = jnp.zeros_like(latents[:, :1]).at[:, :, 0].set(1.0)
        given = jnp.repeat(given, vae.module.config.scale_factor_temporal, axis=1)
        if has_last:  # the last of the frames that a latent frame stands for, as in diffusers
            given = given.at[:, -1, -1].set(1.0)
        return jnp.concatenate([given, latents], axis=1)

    return condition


def build_image_program(image_encoder: TracedModule, *, dtype: Any) -> Any:
    """Builds see(weights, pictures (B, 3, side, side) from the image processor) -> features (B, N, D) fp32.

    The features are the output of the last layer that load.py keeps, without the norm after it.
    """

    def see(weights: Mapping[str, jax.Array], pictures_BCHW: jax.Array) -> jax.Array:
        features, *_ = image_encoder.call(weights, pictures_BCHW.astype(dtype), return_dict=False)
        return features.astype(jnp.float32)

    return see
