"""Encodes a first picture for the transformer: the autoencoder's latents, and an image encoder's features.

The picture is encoded on the devices by programs of fixed size; runtime/sampling/pictures.py brings it to that size.
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
    """Builds condition(weights, picture (1, 3, height, width) in [-1, 1]) -> fp32.

    If `frames` is 1, the result is the picture's latents (1, C, 1, H, W). If more, it is (1, 4 + C, T, H, W): four
    channels that mark the given frames, then the latents of a video that continues in mid-grey.
    """

    def condition(weights: Mapping[str, jax.Array], picture_BCHW: jax.Array) -> jax.Array:
        pixels = jnp.pad(picture_BCHW[:, :, None], ((0, 0), (0, 0), (0, frames - 1), (0, 0), (0, 0)))
        pixels = jax.lax.with_sharding_constraint(pixels.astype(dtype), input_sharding)
        mean, deviation = read_statistics(vae)
        latents = encode_frames(vae, weights, pixels, pictures=PictureAxes.of_videos(input_sharding))
        latents = (latents.astype(jnp.float32) - mean) / deviation
        if frames == 1:
            return latents
        given = jnp.zeros_like(latents[:, :1]).at[:, :, 0].set(1.0)
        return jnp.concatenate([jnp.repeat(given, vae.module.config.scale_factor_temporal, axis=1), latents], axis=1)

    return condition


def build_image_program(image_encoder: TracedModule, *, dtype: Any) -> Any:
    """Builds see(weights, picture (1, 3, side, side) from the image processor) -> features (1, N, D) fp32.

    The features are the output of the last layer that load.py keeps, without the norm after it.
    """

    def see(weights: Mapping[str, jax.Array], picture_BCHW: jax.Array) -> jax.Array:
        features, *_ = image_encoder.call(weights, picture_BCHW.astype(dtype), return_dict=False)
        return features.astype(jnp.float32)

    return see
