"""Stage 2 adds a level to the autoencoder, so that a latent covers 16 pixels each way instead of 8.

The cost of a UNet's step is proportional to its grid; on 16x16 latents it learns to compose four times as fast as on
32x32. Trained from scratch, a deep autoencoder stays soft (26.9 dB after 25 minutes), so the shallow one of stage 1 is
the teacher. A lossless Haar transform turns four of its latents into one, with four channels of averages and twelve of
details. The deep encoder learns to output exactly these, and the deep decoder to decode them, separately. The outer
levels are copied from the teacher and frozen at first, so only the inner level is trained; at the end the whole decoder
is trained on pixels.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pipelines.demos.learning import Batch, Course, Parameters, Task, fill_mesh, train
from pipelines.demos.stills import architecture
from pipelines.demos.stills.autoencoder import (
    LATENT_NOISE,
    compute_pixel_loss,
    draw_pool,
    encode_mean,
    is_hidden,
    to_pixels,
)
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.training.stop import Stop

INNER_COURSE = Course(steps=750, muon_learning_rate=0.02, adam_learning_rate=2e-3, ema_decay=0.998)
WHOLE_COURSE = Course(steps=800, muon_learning_rate=0.01, adam_learning_rate=1e-3, ema_decay=0.998)
INNER_BATCH = 16
WHOLE_BATCH = 2
POOL = 1500  # pictures
OUTER = (
    "encoder.conv_in.",
    "encoder.down_blocks.",
    "decoder.up_blocks.",
    "decoder.conv_norm_out.",
    "decoder.conv_out.",
)


def fold_latents(latents_BCHW: jax.Array) -> jax.Array:
    """Turns the teacher's latents (B, 4, H, W) into deep ones (B, 16, H / 2, W / 2) by a Haar transform."""
    batch, channels, height, width = latents_BCHW.shape
    squares = latents_BCHW.reshape(batch, channels, height // 2, 2, width // 2, 2)
    a, b, c, d = (squares[:, :, :, row, :, column] for row in (0, 1) for column in (0, 1))
    # Half of Haar's average, which gives a deviation of about 0.9, and of about 0.6 for the details.
    return jnp.concatenate([(a + b + c + d) / 4, (a - b + c - d) / 2, (a + b - c - d) / 2, (a - b - c + d) / 2], axis=1)


def deepen(teacher: Mapping[str, np.ndarray], *, mesh: Mesh, folder: Path, stop: Stop) -> dict[str, np.ndarray]:
    """Returns the deep AutoencoderKL's parameters (torch names); resumes from `folder`."""
    shallow, _ = architecture.trace_and_initialise(architecture.build_shallow_vae, seed=0)
    deep, initial = architecture.trace_and_initialise(architecture.build_vae, seed=1)
    taught = {name: jnp.asarray(value) for name, value in teacher.items()}
    outer = _take_outer(taught, initial)
    pool = [picture for picture in draw_pool(POOL) if picture.shape[0] == 256]
    features = _look_inside(shallow, taught, pool)
    inner = train(
        Task(
            name="inner level",
            loss=lambda parameters, batch, key: _compute_inner_loss(deep, {**parameters, **outer}, batch, key),
            draw_batch=lambda step: _draw_features(features, fill_mesh(INNER_BATCH, mesh), step),
            course=INNER_COURSE,
            is_hidden=is_hidden,
        ),
        {name: value for name, value in initial.items() if name not in outer},
        mesh=mesh,
        folder=folder / "inner",
        stop=stop,
    )
    parameters = {**inner, **jax.device_get(outer)}
    encoder = {name: value for name, value in parameters.items() if name.startswith(("encoder.", "quant_conv."))}
    decoder = train(
        Task(
            name="decoder",
            loss=lambda parameters, batch, key: _compute_whole_loss(deep, parameters, batch, key),
            draw_batch=lambda step: _draw_pictures(pool, features["latents"], fill_mesh(WHOLE_BATCH, mesh), step),
            course=WHOLE_COURSE,
            is_hidden=is_hidden,
        ),
        {name: value for name, value in parameters.items() if name not in encoder},
        mesh=mesh,
        folder=folder / "decoder",
        stop=stop,
    )
    return {name: np.asarray(value) for name, value in _with_variance(encoder).items()} | decoder


def _take_outer(teacher: Mapping[str, jax.Array], initial: Mapping[str, np.ndarray]) -> Parameters:
    """Returns the teacher's outer levels under the deep module's names."""
    outer: dict[str, jax.Array] = {}
    for name, value in teacher.items():
        if not name.startswith(OUTER):
            continue
        parts = name.split(".")
        if name.startswith("decoder.up_blocks."):
            parts[2] = str(int(parts[2]) + 1)
        deep_name = ".".join(parts)
        # The first block after the new level has the new level's width as input.
        if deep_name.startswith("decoder.up_blocks.1.resnets.0."):
            continue
        assert initial[deep_name].shape == value.shape, deep_name
        outer[deep_name] = value
    return outer


def _look_inside(shallow: TracedModule, teacher: Parameters, pool: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the teacher's fp16 features of each picture: the inner level's `entrance` and `exit`, and `latents`."""

    @jax.jit
    def look(parameters: Parameters, pixels: jax.Array) -> dict[str, jax.Array]:
        latents = encode_mean(shallow, parameters, pixels)
        entrance = shallow.call(parameters, pixels, method=_encode_outer)
        leaving = shallow.call(parameters, latents, method=_decode_to_exit)
        found = {"entrance": entrance, "exit": leaving, "latents": fold_latents(latents)}
        return {name: value.astype(jnp.float16) for name, value in found.items()}

    parts = [
        jax.device_get(look(teacher, to_pixels(np.stack(pool[start : start + 10]))))
        for start in range(0, len(pool) - len(pool) % 10, 10)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _draw_features(features: Mapping[str, np.ndarray], count: int, step: int) -> Batch:
    chosen = np.random.default_rng((6, step)).integers(len(features["latents"]), size=count)
    return {name: value[chosen].astype(np.float32) for name, value in features.items()}


def _draw_pictures(pool: list[np.ndarray], latents: np.ndarray, count: int, step: int) -> Batch:
    chosen = np.random.default_rng((9, step)).integers(len(latents), size=count)
    return {
        "pixels": to_pixels(np.stack([pool[index] for index in chosen])),
        "latents": latents[chosen].astype(np.float32),
    }


def _compute_inner_loss(
    deep: TracedModule, parameters: Parameters, batch: Mapping[str, jax.Array], key: jax.Array
) -> jax.Array:
    """Computes squared errors of the latents and of the exit's features, the latter in each channel's deviations."""
    encoded = deep.call(parameters, batch["entrance"], method=_encode_inner)[:, : architecture.LATENT_CHANNELS]
    latents = _disturb(batch["latents"], key)
    leaving = deep.call(parameters, latents, method=_decode_inner)
    spread = batch["exit"].std(axis=(0, 2, 3), keepdims=True) + 1e-3
    return jnp.square(encoded - batch["latents"]).mean() + jnp.square((leaving - batch["exit"]) / spread).mean()


def _compute_whole_loss(
    deep: TracedModule, parameters: Parameters, batch: Mapping[str, jax.Array], key: jax.Array
) -> jax.Array:
    pixels = deep.call(parameters, _disturb(batch["latents"], key), method=_decode)
    return compute_pixel_loss(pixels - batch["pixels"])


def _disturb(latents: jax.Array, key: jax.Array) -> jax.Array:
    return latents + LATENT_NOISE * jax.random.normal(key, latents.shape, latents.dtype)


def _with_variance(encoder: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Sets the log-variance that diffusers samples with to the constant noise of the decoder's training."""
    weight, bias = (np.array(encoder[f"quant_conv.{end}"]) for end in ("weight", "bias"))
    weight[architecture.LATENT_CHANNELS :] = 0
    bias[architecture.LATENT_CHANNELS :] = 2 * np.log(LATENT_NOISE)
    return dict(encoder) | {"quant_conv.weight": weight, "quant_conv.bias": bias}


def _encode_outer(vae: Any, pixels: Any) -> Any:
    hidden = vae.encoder.conv_in(pixels)
    for block in vae.encoder.down_blocks:
        hidden = block(hidden)
    return hidden


def _encode_inner(vae: Any, hidden: Any) -> Any:
    encoder = vae.encoder
    hidden = encoder.down_blocks[-1](encoder.down_blocks[-2].downsamplers[0](hidden))
    hidden = encoder.conv_act(encoder.conv_norm_out(encoder.mid_block(hidden)))
    return vae.quant_conv(encoder.conv_out(hidden))


def _decode_to_exit(vae: Any, latents: Any) -> Any:
    hidden = vae.decoder.mid_block(vae.decoder.conv_in(vae.post_quant_conv(latents)))
    for block in vae.decoder.up_blocks[0].resnets:
        hidden = block(hidden, None)
    return hidden


def _decode_inner(vae: Any, latents: Any) -> Any:
    decoder = vae.decoder
    hidden = decoder.up_blocks[0](decoder.mid_block(decoder.conv_in(vae.post_quant_conv(latents))))
    for block in decoder.up_blocks[1].resnets:
        hidden = block(hidden, None)
    return hidden


def _decode(vae: Any, latents: Any) -> Any:
    return vae.decoder(vae.post_quant_conv(latents))
