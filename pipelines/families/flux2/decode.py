"""Latents to pixels: denormalise, unpatchify, then run the autoencoder's decoder; pixels leave the devices as uint8.

FLUX.2's latents are normalised by the running statistics of a batch norm over the 4 * C channels of 2 x 2 patches.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from pipelines.families.flux2.parts import PATCH
from pipelines.runtime.bridge.autoencoder import prepare_pictures
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels.convolution import PictureAxes


def build_decode_program(vae: TracedModule, *, dtype: Any, sharding: NamedSharding) -> Any:
    """Builds decode(weights, latents (B, 4 * C, H, W)) -> uint8 (B, height, width, 3).

    `sharding` splits the picture over as many devices as divide it; the autoencoder's weights are replicated.
    """

    def decode(weights: Mapping[str, jax.Array], latents_BCHW: jax.Array) -> jax.Array:
        mean, deviation = read_statistics(weights, epsilon=vae.module.config.batch_norm_eps)
        latents_BCHW = jax.lax.with_sharding_constraint(latents_BCHW, sharding)
        latents = unpatchify(latents_BCHW * deviation + mean)
        call, prepared = prepare_pictures(vae, weights, PictureAxes.of_pictures(sharding))
        pixels = call(prepared, latents.astype(dtype), method=_decode).astype(jnp.float32)
        pixels = jnp.clip(pixels / 2 + 0.5, 0, 1) * 255
        return pixels.round().astype(jnp.uint8).transpose(0, 2, 3, 1)

    return decode


def read_statistics(weights: Mapping[str, jax.Array], *, epsilon: float) -> tuple[jax.Array, jax.Array]:
    """Returns mean and standard deviation of the patches' channels, each (1, 4 * C, 1, 1) fp32."""
    mean, variance = (
        weights[f"bn.running_{name}"].astype(jnp.float32)[None, :, None, None] for name in ("mean", "var")
    )
    return mean, jnp.sqrt(variance + epsilon)


def unpatchify(latents_BCHW: jax.Array) -> jax.Array:
    """Turns channels into 2 x 2 patches: (B, 4 * C, H, W) -> (B, C, 2 * H, 2 * W)."""
    batch, channels, height, width = latents_BCHW.shape
    patches = latents_BCHW.reshape(batch, channels // PATCH**2, PATCH, PATCH, height, width)
    return patches.transpose(0, 1, 4, 2, 5, 3).reshape(batch, -1, height * PATCH, width * PATCH)


def _decode(vae: Any, latents: Any) -> Any:
    return vae.decode(latents, return_dict=False)[0]
