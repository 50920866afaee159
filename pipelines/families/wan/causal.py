"""Runs the video autoencoder frame by frame: the first latent frame, then `lax.scan` with the causal caches as carry.

diffusers loops over latent frames in Python and keeps each causal convolution's last inputs in a list, `feat_cache`.
An entry is None at first, then one frame, then two; temporal upsamplers put "Rep" in between. Unrolled, 81 frames of
720p need 98 GB; a scan needs the memory of one latent frame. The list becomes a carry of constant shape without
changing a number: missing frames are zeros, as causal padding would put there, and "Rep" is two such frames.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch
from diffusers.models.autoencoders.autoencoder_kl_wan import patchify, unpatchify

from pipelines.families.wan.convolutions import SplitCausalConv3d
from pipelines.runtime.bridge.autoencoder import prepare_pictures
from pipelines.runtime.bridge.environment import find_picture_axes
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels.convolution import PictureAxes

Caches = dict[str, jax.Array]
"""Index in `feat_cache` -> last inputs of that convolution (B, C, 1 or 2 frames, H, W)."""

CHUNK_FRAMES = 4  # the encoder's chunk size after the first frame, whatever its config
_BF16_MAX = float(torch.finfo(torch.bfloat16).max)


def decode_frames(
    vae: TracedModule,
    weights: Mapping[str, jax.Array],
    latents_BCTHW: jax.Array,
    *,
    finish: Callable[[jax.Array], jax.Array],
    pictures: PictureAxes | None = None,
    unroll: bool = False,
) -> jax.Array:
    """Decodes to frames (B, F, ...); `finish` maps each chunk of pixels (B, 3, frames, height, width) in [-1, 1].

    `pictures` is the sharding of latents and frames. `unroll` is for training on short clips: on CPU the gradient is
    2.5x faster without the loop (9 frames of 64x64).
    """

    call, weights = prepare_pictures(vae, weights, pictures, also=(SplitCausalConv3d,))

    def run(latents: jax.Array, caches: Caches, *, is_first: bool) -> tuple[jax.Array, Caches]:
        pixels, caches = call(weights, latents, caches, is_first=is_first, method=_decode_chunk)
        return finish(pixels), caches

    rest = jnp.moveaxis(latents_BCTHW[:, :, 1:, None], 2, 0)
    return _walk(run, latents_BCTHW[:, :, :1], rest, axis=1, unroll=unroll)


def encode_frames(
    vae: TracedModule,
    weights: Mapping[str, jax.Array],
    pixels_BCFHW: jax.Array,
    *,
    pictures: PictureAxes | None = None,
    unroll: bool = False,
) -> jax.Array:
    """Encodes pixels in [-1, 1] of 4n + 1 frames to the mode of their latents (B, C, T, H, W)."""

    call, weights = prepare_pictures(vae, weights, pictures, also=(SplitCausalConv3d,))

    def run(pixels: jax.Array, caches: Caches, *, is_first: bool) -> tuple[jax.Array, Caches]:
        return call(weights, pixels, caches, is_first=is_first, method=_encode_chunk)

    batch, channels, frames, height, width = pixels_BCFHW.shape
    rest = pixels_BCFHW[:, :, 1:].reshape(batch, channels, frames // CHUNK_FRAMES, CHUNK_FRAMES, height, width)
    return _walk(run, pixels_BCFHW[:, :, :1], jnp.moveaxis(rest, 2, 0), axis=2, unroll=unroll)


def _walk(
    run: Callable[..., tuple[jax.Array, Caches]], first: jax.Array, rest: jax.Array, *, axis: int, unroll: bool
) -> jax.Array:
    """Runs all chunks and concatenates their results along `axis`; `rest` (chunks, ...) may be empty."""
    out, caches = run(first, {}, is_first=True)
    if not len(rest):
        return out
    _, settled = jax.eval_shape(lambda chunk: run(chunk, caches, is_first=False), rest[0])

    def step(caches: Caches, chunk: jax.Array) -> tuple[Caches, jax.Array]:
        result, caches = run(chunk, caches, is_first=False)
        return caches, result

    start = {name: _fill(caches.get(name), settled[name]) for name in settled}
    _, results = jax.lax.scan(step, start, rest, unroll=unroll)
    results = jnp.moveaxis(results, 0, axis)
    merged = results.reshape(*results.shape[:axis], -1, *results.shape[axis + 2 :])
    return jnp.concatenate([out, merged], axis=axis)


def _fill(cache: jax.Array | None, settled: Any) -> jax.Array:
    """Pads a cache with zeros in front of its frames, to the shape that it has from now on."""
    if cache is None:
        return jnp.zeros(settled.shape, settled.dtype)
    missing = settled.shape[2] - cache.shape[2]
    return jnp.pad(cache, ((0, 0), (0, 0), (missing, 0), (0, 0), (0, 0)))


def _decode_chunk(vae: Any, latents: Any, caches: dict[str, Any], *, is_first: bool) -> tuple[Any, dict[str, Any]]:
    feat_cache = _open(caches, vae.decoder, is_first=is_first)
    pixels = vae.decoder(vae.post_quant_conv(latents), feat_cache=feat_cache, feat_idx=[0], first_chunk=is_first)
    if vae.config.patch_size is not None:
        pixels = unpatchify(pixels, patch_size=vae.config.patch_size)
    return pixels.clamp(-1.0, 1.0), _close(feat_cache, is_first=is_first)


def _encode_chunk(vae: Any, pixels: Any, caches: dict[str, Any], *, is_first: bool) -> tuple[Any, dict[str, Any]]:
    if vae.config.patch_size is not None:
        pixels = patchify(pixels, patch_size=vae.config.patch_size)
    feat_cache = _open(caches, vae.encoder, is_first=is_first)
    moments = vae.quant_conv(vae.encoder(pixels, feat_cache=feat_cache, feat_idx=[0]))
    return moments.chunk(2, dim=1)[0], _close(feat_cache, is_first=is_first)


def _open(caches: dict[str, Any], coder: Any, *, is_first: bool) -> list[Any]:
    """Rebuilds diffusers' list; after the first chunk a missing entry is "Rep", or is never read."""
    count = sum(1 for _ in coder.modules())  # at least as many as there are convolutions
    return [caches.get(str(index), None if is_first else "Rep") for index in range(count)]


def _close(feat_cache: list[Any], *, is_first: bool) -> dict[str, Any]:
    """Turns diffusers' list into a dict; on TPU in bf16, to which convolutions there round anyway.

    The clamp to `_BF16_MAX` changes no finite value: XLA slices off a chunk's last frames in a third of the time if it
    also has something to compute.
    """
    entries = {str(index): entry for index, entry in enumerate(feat_cache) if not isinstance(entry, str | None)}
    axes = find_picture_axes()
    if axes is None or not axes.takes_kernels:
        return entries
    rounded = {name: entry.to(torch.bfloat16) for name, entry in entries.items()}
    return rounded if is_first else {name: entry.clamp(-_BF16_MAX, _BF16_MAX) for name, entry in rounded.items()}
