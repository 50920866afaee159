"""The video autoencoder one latent frame after another: the first, then `lax.scan` with the causal caches as carry.

diffusers walks over latent frames in Python and keeps what each causal convolution saw last in a list, `feat_cache`.
An entry is None at first, then one frame, then two; temporal upsamplers say "Rep" in between. Unrolled, 81 frames of
720p need 98 GB; as a scan, the memory of one latent frame. The list becomes a carry of constant shape without changing
a number: a frame that is not there yet counts as zeros, which is what causal padding puts there, and "Rep" is two such
frames.
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
"""Place in `feat_cache` -> what that convolution saw last (B, C, 1 or 2 frames, H, W)."""

CHUNK_FRAMES = 4  # what the encoder takes at a time after the first frame, whatever its config
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
    """Frames (B, F, ...) in which `finish` left each chunk of pixels (B, 3, frames, height, width) in [-1, 1].

    `pictures` is how latents and frames lie on the mesh. `unroll` is for training on short clips: on CPU the gradient
    is 2.5x faster without the loop (9 frames of 64x64).
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
    """Latents (B, C, T, H, W), the most likely ones, of pixels in [-1, 1]; 4n + 1 frames."""

    call, weights = prepare_pictures(vae, weights, pictures, also=(SplitCausalConv3d,))

    def run(pixels: jax.Array, caches: Caches, *, is_first: bool) -> tuple[jax.Array, Caches]:
        return call(weights, pixels, caches, is_first=is_first, method=_encode_chunk)

    batch, channels, frames, height, width = pixels_BCFHW.shape
    rest = pixels_BCFHW[:, :, 1:].reshape(batch, channels, frames // CHUNK_FRAMES, CHUNK_FRAMES, height, width)
    return _walk(run, pixels_BCFHW[:, :, :1], jnp.moveaxis(rest, 2, 0), axis=2, unroll=unroll)


def _walk(
    run: Callable[..., tuple[jax.Array, Caches]], first: jax.Array, rest: jax.Array, *, axis: int, unroll: bool
) -> jax.Array:
    """All chunks' results side by side along `axis`; `rest` (chunks, ...) may be empty."""
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
    """Zeros before the frames that are there, up to the shape that the cache keeps from now on."""
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
    """The list as diffusers keeps it; after the first chunk what has no entry is "Rep", or is never looked at."""
    count = sum(1 for _ in coder.modules())  # at least as many as there are convolutions
    return [caches.get(str(index), None if is_first else "Rep") for index in range(count)]


def _close(feat_cache: list[Any], *, is_first: bool) -> dict[str, Any]:
    """On TPU in bf16, which is what convolutions make of them there anyway.

    Nothing finite is beyond `_BF16_MAX`: XLA cuts off a chunk's last frames in a third of the time when it also has
    something to compute.
    """
    entries = {str(index): entry for index, entry in enumerate(feat_cache) if not isinstance(entry, str | None)}
    axes = find_picture_axes()
    if axes is None or not axes.takes_kernels:
        return entries
    rounded = {name: entry.to(torch.bfloat16) for name, entry in entries.items()}
    return rounded if is_first else {name: entry.clamp(-_BF16_MAX, _BF16_MAX) for name, entry in rounded.items()}
