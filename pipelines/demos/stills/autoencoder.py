"""Stage 1 trains a shallow autoencoder, first on crops and last on whole pictures; deepen.py builds on it.

A fixed latent noise replaces a learned variance: it makes the decoder robust to the small errors that the UNet will
make, and there is no KL term to balance. Afterwards mean and deviation of the latents are folded into the quant
convolutions, so that each channel has mean 0 and deviation 1 and the scaling factor is 1.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pipelines.demos.learning import Batch, Course, Parameters, Task, fill_mesh, train
from pipelines.demos.postcards import draw_scene, render
from pipelines.demos.stills.architecture import SHALLOW_CHANNELS, build_shallow_vae, trace_and_initialise
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.training.stop import Stop

COURSE = Course(steps=2200, muon_learning_rate=0.02, adam_learning_rate=2e-3, ema_decay=0.998)
WHOLE_FROM = 0.85  # share of the steps after which whole pictures replace crops
LATENT_NOISE = 0.06  # deviation, for latents of about 1
CROP = 64
CROPS = 10  # per step
POOL = 1500  # pictures drawn once, cropped anew each step


def train_autoencoder(*, mesh: Mesh, folder: Path, course: Course = COURSE, stop: Stop) -> Parameters:
    """Returns AutoencoderKL parameters (torch names), latents normalised; resumes from `folder`."""
    module, initial = trace_and_initialise(build_shallow_vae, seed=0)
    pool = draw_pool(POOL)
    trained = train(
        Task(
            name="autoencoder",
            loss=lambda parameters, batch, key: _compute_loss(module, parameters, batch, key),
            draw_batch=lambda step: _draw_batch(pool, step, course, mesh),
            course=course,
            is_hidden=is_hidden,
        ),
        initial,
        mesh=mesh,
        folder=folder,
        stop=stop,
    )
    whole = np.stack([picture for picture in pool if picture.shape[0] == 256][:200])
    return normalise_latents(module, {name: jnp.asarray(value) for name, value in trained.items()}, whole)


def is_hidden(name: str) -> bool:
    """Returns whether it belongs to a convolution other than the first, the last and those at the latents."""
    return not any(part in name for part in ("conv_in", "conv_out", "quant_conv"))


def encode_mean(module: TracedModule, parameters: Mapping[str, jax.Array], pixels_BCHW: jax.Array) -> jax.Array:
    """Encodes pixels in [-1, 1] to latents (B, C, H, W) without noise."""
    moments = module.call(parameters, pixels_BCHW, method=_encode)
    return moments[:, : moments.shape[1] // 2]


def to_pixels(pictures_BHWC: np.ndarray) -> np.ndarray:
    """Turns uint8 pictures into fp32 (B, 3, H, W) in [-1, 1]."""
    return np.ascontiguousarray(pictures_BHWC.transpose(0, 3, 1, 2)).astype(np.float32) / 127.5 - 1.0


def draw_pool(count: int) -> list[np.ndarray]:
    """Draws postcards at 256 px, every third one at 128 px."""
    rng = np.random.default_rng(1)
    sides = (256, 256, 128)
    return [render(draw_scene(rng), sides[index % 3], sides[index % 3]) for index in range(count)]


def _draw_batch(pool: list[np.ndarray], step: int, course: Course, mesh: Mesh) -> Batch:
    rng = np.random.default_rng((2, step))
    if step >= WHOLE_FROM * course.steps:
        side, count = ((256, 2), (128, 8))[step % 3 == 0]
        chosen = [picture for picture in pool if picture.shape[0] == side]
        pictures = [chosen[rng.integers(len(chosen))] for _ in range(fill_mesh(count, mesh))]
    else:
        pictures = []
        for _ in range(fill_mesh(CROPS, mesh)):
            picture = pool[rng.integers(len(pool))]
            top, left = rng.integers(0, picture.shape[0] - CROP + 1, size=2)
            pictures.append(picture[top : top + CROP, left : left + CROP])
    return {"pixels": to_pixels(np.stack(pictures))}


def _compute_loss(
    module: TracedModule,
    parameters: Parameters,
    batch: Mapping[str, jax.Array],
    key: jax.Array,
) -> jax.Array:
    """Computes the pixel loss plus a small penalty on the latents' size."""
    pixels = batch["pixels"]
    latents = encode_mean(module, parameters, pixels)
    noisy = latents + LATENT_NOISE * jax.random.normal(key, latents.shape, latents.dtype)
    error = module.call(parameters, noisy, method=_decode) - pixels
    return compute_pixel_loss(error) + 1e-3 * jnp.square(latents).mean()


def compute_pixel_loss(error: jax.Array) -> jax.Array:
    """Computes L1 + 2 MSE + half the L1 of the gradients, which stand for edges (windows, stars)."""
    edges = jnp.abs(jnp.diff(error, axis=2)).mean() + jnp.abs(jnp.diff(error, axis=3)).mean()
    return jnp.abs(error).mean() + 2.0 * jnp.square(error).mean() + 0.5 * edges


def normalise_latents(module: TracedModule, parameters: Parameters, pictures_BHWC: np.ndarray) -> Parameters:
    """Folds mean and deviation of the latents into quant_conv and post_quant_conv (both 1x1)."""
    encode = jax.jit(lambda parameters, pixels: encode_mean(module, parameters, pixels))
    latents = np.concatenate([encode(parameters, to_pixels(part)) for part in np.split(pictures_BHWC, 25)])
    mean, deviation = (jnp.asarray(value) for value in (latents.mean((0, 2, 3)), latents.std((0, 2, 3))))
    folded = dict(parameters)
    weight, bias = parameters["quant_conv.weight"], parameters["quant_conv.bias"]
    # The second half is the log-variance that diffusers samples with: the constant noise of the decoder's training.
    log_variance = jnp.full(SHALLOW_CHANNELS, 2 * jnp.log(LATENT_NOISE))
    folded["quant_conv.weight"] = jnp.concatenate(
        [weight[:SHALLOW_CHANNELS] / deviation[:, None, None, None], jnp.zeros_like(weight[SHALLOW_CHANNELS:])]
    )
    folded["quant_conv.bias"] = jnp.concatenate([(bias[:SHALLOW_CHANNELS] - mean) / deviation, log_variance])
    weight, bias = parameters["post_quant_conv.weight"], parameters["post_quant_conv.bias"]
    folded["post_quant_conv.weight"] = weight * deviation[None, :, None, None]
    folded["post_quant_conv.bias"] = bias + jnp.einsum("oihw,i->o", weight, mean)
    return folded


def measure_psnr(module: TracedModule, parameters: Mapping[str, jax.Array], pictures_BHWC: np.ndarray) -> float:
    """Returns the PSNR in dB of one encode and decode, averaged over pictures."""

    @jax.jit
    def reconstruct(parameters: Mapping[str, jax.Array], pixels: jax.Array) -> jax.Array:
        return module.call(parameters, encode_mean(module, parameters, pixels), method=_decode)

    ratios = []
    for picture in pictures_BHWC:
        pixels = to_pixels(picture[None])
        error = (np.clip(reconstruct(parameters, pixels), -1, 1) - pixels) / 2
        ratios.append(-10 * np.log10(np.square(error).mean()))
    return float(np.mean(ratios))


def _encode(vae: Any, pixels: Any) -> Any:
    return vae.quant_conv(vae.encoder(pixels))


def _decode(vae: Any, latents: Any) -> Any:
    return vae.decoder(vae.post_quant_conv(latents))
