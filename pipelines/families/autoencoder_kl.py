"""Programs of diffusers' AutoencoderKL, which several families have: latents to pixels, and a picture to its latents.

Latents are scaled, shifted and normalised as the autoencoder's config says.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from diffusers import AutoencoderKL
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.models.catalog import Shape
from pipelines.runtime.bridge.autoencoder import prepare_pictures, split_halvings
from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta
from pipelines.runtime.devices.sharding import split_pictures
from pipelines.runtime.kernels.convolution import PictureAxes
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.weights.components import abstract_input, abstract_weights, read_json


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


def build_autoencoder(folder: Path) -> TracedModule:
    """Builds a checkpoint's autoencoder from its config, without weights."""
    with parameters_on_meta():
        vae: Any = AutoencoderKL.from_config(read_json(folder / "vae" / "config.json"))
    split_halvings(vae)
    return TracedModule(vae)


def describe_latents_program(vae: TracedModule, weights: Mapping[str, Any], mesh: Mesh, shape: Shape) -> Program:
    """Describes a training's program for one picture's latents, see `trainable.Learner.build_latents_program`."""
    scale = 2 ** (len(vae.module.config.block_out_channels) - 1)
    sides = split_pictures(mesh, None, height=shape.height // scale, width=shape.width // scale)
    condition = build_condition_program(
        vae,
        dtype=next(iter(weights.values())).dtype,
        sharding=NamedSharding(mesh, PartitionSpec(None, None, *sides)),
    )
    replicated = NamedSharding(mesh, PartitionSpec())
    return Program(
        key=("latents", shape),
        function=lambda weights, pixels: dict(zip(("mean", "deviation"), condition(weights, pixels), strict=True)),
        arguments=(abstract_weights(weights), abstract_input(mesh, (1, 3, shape.height, shape.width), jnp.float32)),
        out_shardings={"mean": replicated, "deviation": replicated},
    )


def _decode(vae: Any, latents: Any) -> Any:
    return vae.decode(latents, return_dict=False)[0]


def _encode(vae: Any, pixels: Any) -> tuple[Any, Any]:
    distribution = vae.encode(pixels, return_dict=False)[0]
    return distribution.mean, distribution.std
