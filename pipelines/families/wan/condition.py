"""A first picture as the transformer takes it: the autoencoder's latents of it, and what an image encoder sees in it.

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
    """condition(weights, picture (1, 3, height, width) in [-1, 1]) -> fp32.

    With `frames` 1 the picture's latents (1, C, 1, H, W). With more, those of a video that goes on in mid-grey, below
    four channels that say which frames are given: (1, 4 + C, T, H, W).
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
    """see(weights, picture (1, 3, side, side) as the image processor gives it) -> features (1, N, D) fp32.

    Those of its last layer, without the norm behind; load.py says which layer that is.
    """

    def see(weights: Mapping[str, jax.Array], picture_BCHW: jax.Array) -> jax.Array:
        features, *_ = image_encoder.call(weights, picture_BCHW.astype(dtype), return_dict=False)
        return features.astype(jnp.float32)

    return see
