"""The video autoencoder: single frames first, then clips that are long enough for its causal chunks to repeat.

Clips alone stall (13 dB after as long): colours and edges are learned from frames, at a fraction of the cost; the
temporal convolutions then only have to learn what changes. Five frames are too few: the decoder's third chunk is the
first that has all its caches, and every later one is like it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pipelines.runtime.torch_bridge import TracedModule
from pipelines.training.demo_wan.architecture import build_vae
from pipelines.training.motions import FRAMES, draw_clip, render_clip
from pipelines.training.optimizer import Course
from pipelines.training.stills.architecture import trace_and_initialise
from pipelines.training.trainer import Batch, Parameters, Task, fill_mesh, train
from pipelines.wan.causal import decode_frames, encode_frames

LATENT_NOISE = 0.05  # deviation, against latents of about 1: the decoder learns to live with the transformer's errors
POOL = 400  # clips drawn once, cut anew each step
SIDE = 128  # pixels of a clip


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
        course=Course(steps=2500, muon_learning_rate=0.02, adam_learning_rate=2e-3, ema_decay=0.998),
        frames=1,
        side=64,
        batch_size=12,
    ),
    Stage(
        name="clips",
        course=Course(steps=2500, muon_learning_rate=0.01, adam_learning_rate=1e-3, ema_decay=0.998),
        frames=9,
        side=64,
        batch_size=3,
    ),
    Stage(  # its middle attends to the whole picture
        name="whole",
        course=Course(steps=600, muon_learning_rate=0.005, adam_learning_rate=5e-4, ema_decay=0.99),
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
    stop_after_s: float | None = None,
) -> dict[str, np.ndarray]:
    """Returns AutoencoderKLWan parameters (torch names); `initial` None starts from nothing. Resumes from `folder`."""
    module, untrained = trace_and_initialise(build_vae, seed=0)
    rng = np.random.default_rng(1)
    pool = [render_clip(draw_clip(rng), SIDE, SIDE) for _ in range(POOL)]
    return train(
        Task(
            name=f"autoencoder, {stage.name}",
            loss=lambda parameters, batch, key: _compute_loss(module, parameters, batch, key),
            draw_batch=lambda step: _draw_batch(pool, stage, fill_mesh(stage.batch_size, mesh), step),
            course=stage.course,
            is_hidden=is_hidden,
        ),
        untrained if initial is None else initial,
        mesh=mesh,
        folder=folder,
        stop_after_s=stop_after_s,
    )


def is_hidden(name: str) -> bool:
    """All convolutions but the first, the last and those at the latents."""
    return not any(part in name for part in ("conv_in", "conv_out", "quant_conv"))


def to_pixels(clips_BFHWC: np.ndarray) -> np.ndarray:
    """uint8 clips to fp32 (B, 3, F, H, W) in [-1, 1]."""
    return np.ascontiguousarray(clips_BFHWC.transpose(0, 4, 1, 2, 3)).astype(np.float32) / 127.5 - 1.0


def measure_statistics(latents_BCTHW: np.ndarray) -> tuple[list[float], list[float]]:
    """Mean and deviation of each channel."""
    return latents_BCTHW.mean((0, 2, 3, 4)).tolist(), latents_BCTHW.std((0, 2, 3, 4)).tolist()


def measure_psnr(module: TracedModule, parameters: Parameters, clips_BFHWC: np.ndarray) -> float:
    """Mean over clips of the peak signal-to-noise ratio in dB of one encode and decode."""

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


def _compute_loss(
    module: TracedModule, parameters: Parameters, batch: Mapping[str, jax.Array], key: jax.Array
) -> jax.Array:
    """L1 + 2 MSE + half the L1 of the edges, and a pull of the latents to mean 0 and deviation 1."""
    pixels = batch["pixels"]
    latents = encode_frames(module, parameters, pixels)
    noisy = latents + LATENT_NOISE * jax.random.normal(key, latents.shape, latents.dtype)
    error = _decode(module, parameters, noisy) - pixels
    edges = jnp.abs(jnp.diff(error, axis=3)).mean() + jnp.abs(jnp.diff(error, axis=4)).mean()
    mean, variance = latents.mean((0, 2, 3, 4)), latents.var((0, 2, 3, 4))
    spread = jnp.square(mean).mean() + jnp.square(jnp.log(variance + 1e-4)).mean()
    return jnp.abs(error).mean() + 2.0 * jnp.square(error).mean() + 0.5 * edges + 1e-2 * spread


def _decode(module: TracedModule, parameters: Parameters, latents: jax.Array) -> jax.Array:
    """Pixels (B, 3, F, H, W) in [-1, 1]."""
    frames = decode_frames(module, parameters, latents, finish=lambda pixels: pixels.transpose(0, 2, 1, 3, 4))
    return frames.transpose(0, 2, 1, 3, 4)
