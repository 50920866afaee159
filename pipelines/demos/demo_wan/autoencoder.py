"""Trains the video autoencoder: first on single frames, then on clips long enough for its causal chunks to repeat.

Training on clips alone stalls (13 dB after the same time): colours and edges are learned from frames, at a fraction of
the cost. Frames train the last temporal slice of each kernel, the one for the present; the other slices start at zero
and temporal convolutions copy their input, so that clips are at first reconstructed as stills and only the changes
remain to be learned. Five frames are too few: the decoder's third chunk is the first with all its caches, and every
later one is like it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from diffusers import AutoencoderKLWan
from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d
from jax.sharding import Mesh

from pipelines.demos.demo_wan.architecture import build_vae
from pipelines.demos.learning import Batch, Course, Parameters, Task, fill_mesh, train
from pipelines.demos.motions import FRAMES, draw_clip, render_clip
from pipelines.demos.stills.architecture import trace_and_initialise
from pipelines.families.wan.causal import decode_frames, encode_frames
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.training.stop import Stop

LATENT_NOISE = 0.05  # deviation, for latents of about 1: makes the decoder robust to the transformer's errors
POOL = 400  # clips drawn once, cropped anew each step
SIDE = 128  # pixels of a clip
TEMPORAL_RANK = 5  # dimensions of a kernel over frames


@dataclass(frozen=True, kw_only=True)
class Stage:
    name: str
    course: Course
    frames: int
    side: int  # of the crops, in pixels
    batch_size: int


STAGES = (
    Stage(
        name="frames",
        course=Course(steps=3500, muon_learning_rate=0.02, adam_learning_rate=2e-3, ema_decay=0.998),
        frames=1,
        side=64,
        batch_size=12,
    ),
    Stage(
        name="clips",
        course=Course(steps=1200, muon_learning_rate=0.004, adam_learning_rate=6e-4, ema_decay=0.995),
        frames=9,
        side=64,
        batch_size=2,
    ),
    Stage(  # its middle block attends to the whole picture
        name="whole",
        course=Course(steps=70, muon_learning_rate=0.002, adam_learning_rate=3e-4, ema_decay=0.95, warmup_steps=10),
        frames=FRAMES,
        side=SIDE,
        batch_size=1,
    ),
)


def train_stage(
    stage: Stage,
    initial: Mapping[str, np.ndarray] | None,
    *,
    mesh: Mesh,
    folder: Path,
    stop: Stop,
) -> dict[str, np.ndarray]:
    """Returns AutoencoderKLWan parameters (torch names); with `initial` None from scratch. Resumes from `folder`."""
    is_still = stage.frames == 1
    module, untrained = trace_and_initialise(_build_still_vae if is_still else build_vae, seed=0)
    compute_loss = _compute_still_loss if is_still else _compute_loss
    rng = np.random.default_rng(1)
    pool = [render_clip(draw_clip(rng), SIDE, SIDE) for _ in range(POOL)]
    return train(
        Task(
            name=f"autoencoder, {stage.name}",
            loss=lambda parameters, batch, key: compute_loss(module, parameters, batch, key),
            draw_batch=lambda step: _draw_batch(pool, stage, fill_mesh(stage.batch_size, mesh), step),
            course=stage.course,
            is_hidden=is_hidden,
        ),
        _forget_the_past(untrained) if initial is None else initial,
        mesh=mesh,
        folder=folder,
        stop=stop,
    )


def is_hidden(name: str) -> bool:
    """Returns whether it belongs to a convolution other than the first, the last and those at the latents."""
    return not any(part in name for part in ("conv_in", "conv_out", "quant_conv"))


def to_pixels(clips_BFHWC: np.ndarray) -> np.ndarray:
    """Turns uint8 clips into fp32 (B, 3, F, H, W) in [-1, 1]."""
    return np.ascontiguousarray(clips_BFHWC.transpose(0, 4, 1, 2, 3)).astype(np.float32) / 127.5 - 1.0


def measure_statistics(latents_BCTHW: np.ndarray) -> tuple[list[float], list[float]]:
    """Returns mean and deviation of each channel."""
    return latents_BCTHW.mean((0, 2, 3, 4)).tolist(), latents_BCTHW.std((0, 2, 3, 4)).tolist()


def measure_psnr(module: TracedModule, parameters: Parameters, clips_BFHWC: np.ndarray) -> float:
    """Returns the PSNR in dB of one encode and decode, averaged over clips."""

    @jax.jit
    def reconstruct(parameters: Parameters, pixels: jax.Array) -> jax.Array:
        return _decode(module, parameters, encode_frames(module, parameters, pixels))

    ratios = []
    for clip in clips_BFHWC:
        pixels = to_pixels(clip[None])
        error = (np.asarray(reconstruct(parameters, jnp.asarray(pixels))) - pixels) / 2
        ratios.append(-10 * np.log10(np.square(error).mean()))
    return float(np.mean(ratios))


def _draw_batch(pool: list[np.ndarray], stage: Stage, count: int, step: int) -> Batch:
    rng = np.random.default_rng((2, step))
    cuts = []
    for _ in range(count):
        clip = pool[rng.integers(len(pool))]
        first = rng.integers(0, FRAMES - stage.frames + 1)
        top, left = rng.integers(0, SIDE - stage.side + 1, size=2)
        cuts.append(clip[first : first + stage.frames, top : top + stage.side, left : left + stage.side])
    return {"pixels": to_pixels(np.stack(cuts))}


def _build_still_vae() -> AutoencoderKLWan:
    """Builds an autoencoder for single frames, whose causal convolutions have one temporal slice and no past."""
    vae = build_vae()
    for module in vae.modules():
        if isinstance(module, WanCausalConv3d):
            module._padding = (*module._padding[:4], 0, 0)  # noqa: SLF001 - diffusers has no other place for it
    return vae


def _forget_the_past(initial: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Zeroes temporal kernels (O, I, T, H, W) except for the present; temporal convolutions copy, upsamplers twice."""
    values = dict(initial)
    for name, value in initial.items():
        if value.ndim == TEMPORAL_RANK and value.shape[2] > 1:
            values[name] = np.zeros_like(value)
            values[name][:, :, -1] = value[:, :, -1]
            if "time_conv" in name:
                copies = value.shape[0] // value.shape[1]
                values[name][:, :, -1, 0, 0] = np.tile(np.eye(value.shape[1], dtype=value.dtype), (copies, 1))
    return values


def _compute_still_loss(
    module: TracedModule, parameters: Parameters, batch: Mapping[str, jax.Array], key: jax.Array
) -> jax.Array:
    """Computes the loss with the present's kernel slices only: zeros before the first frame would cost as much time."""
    present = {name: value[:, :, -1:] if value.ndim == TEMPORAL_RANK else value for name, value in parameters.items()}
    return _compute_loss(module, present, batch, key)


def _compute_loss(
    module: TracedModule, parameters: Parameters, batch: Mapping[str, jax.Array], key: jax.Array
) -> jax.Array:
    """Computes L1 + 2 MSE + half the L1 of the edges, plus a penalty that keeps latents at mean 0 and deviation 1."""
    pixels = batch["pixels"]
    latents = encode_frames(module, parameters, pixels, unroll=True)
    noisy = latents + LATENT_NOISE * jax.random.normal(key, latents.shape, latents.dtype)
    error = _decode(module, parameters, noisy, unroll=True) - pixels
    edges = jnp.abs(jnp.diff(error, axis=3)).mean() + jnp.abs(jnp.diff(error, axis=4)).mean()
    mean, variance = latents.mean((0, 2, 3, 4)), latents.var((0, 2, 3, 4))
    spread = jnp.square(mean).mean() + jnp.square(jnp.log(variance + 1e-4)).mean()
    return jnp.abs(error).mean() + 2.0 * jnp.square(error).mean() + 0.5 * edges + 1e-2 * spread


def _decode(module: TracedModule, parameters: Parameters, latents: jax.Array, *, unroll: bool = False) -> jax.Array:
    """Decodes to pixels (B, 3, F, H, W) in [-1, 1]."""
    frames = decode_frames(
        module, parameters, latents, finish=lambda pixels: pixels.transpose(0, 2, 1, 3, 4), unroll=unroll
    )
    return frames.transpose(0, 2, 1, 3, 4)
