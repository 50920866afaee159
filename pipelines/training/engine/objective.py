"""What a denoiser learns: how much noise a picture gets, what is to be predicted, and how much each error counts.

Two processes: `Diffusion` (SD, SDXL: discrete timesteps; Ho et al. 2020) and `Flow` (FLUX.2, Wan: sigmas from 0 to 1;
Lipman et al. 2022, Esser et al. 2024). Losses are those of diffusers' training scripts, line by line, and tests compare
them. Numbers are fp32; everything is drawn from a key inside the compiled step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from diffusers import DDPMScheduler

from pipelines.families.trainable import Denoiser, Learner
from pipelines.models.catalog import Model, Shape
from pipelines.training.engine.flow import draw_evenly
from pipelines.training.settings import TrainingSettings

MODE_SCALE = 1.29  # of Esser et al. 2024, and diffusers' default


class Noised(NamedTuple):
    """A batch to be denoised: `timesteps` (B,) as the model takes them, `sigmas` (B,) from 0 to 1 for statistics.

    `weights` (B,) multiply each row's error.
    """

    noisy: jax.Array
    target: jax.Array
    timesteps: jax.Array
    sigmas: jax.Array
    weights: jax.Array


@dataclass(frozen=True, kw_only=True)
class Diffusion:
    """Discrete timesteps with the model's own schedule of `alphas_cumprod` (N,).

    `snr_gamma` weighs by min(SNR, gamma) (Hang et al. 2023), 0 weighs all alike; `noise_offset` adds one value for each
    channel (Guttenberg 2023).
    """

    alphas_cumprod: np.ndarray
    prediction_type: str
    snr_gamma: float = 0.0
    noise_offset: float = 0.0

    @classmethod
    def of_scheduler(cls, config: Mapping[str, Any], *, prediction_type: str | None, **options: float) -> "Diffusion":
        """Reads the schedule from a checkpoint's scheduler config, as DDPMScheduler does (also zero terminal SNR)."""
        scheduler: Any = DDPMScheduler.from_config(dict(config))
        return cls(
            alphas_cumprod=scheduler.alphas_cumprod.numpy(),
            prediction_type=prediction_type or scheduler.config.prediction_type,
            **options,
        )

    def add_noise(self, latents: jax.Array, key: jax.Array) -> Noised:
        """Draws timesteps and noise for every row."""
        time_key, noise_key, offset_key = jax.random.split(key, 3)
        count = len(self.alphas_cumprod)
        timesteps = jnp.floor(draw_evenly(time_key, len(latents)) * count).astype(jnp.int32)
        noise = jax.random.normal(noise_key, latents.shape)
        if self.noise_offset:
            shape = (*latents.shape[:2], *(1,) * (latents.ndim - 2))
            noise += self.noise_offset * jax.random.normal(offset_key, shape)
        return self.mix(latents, noise, timesteps)

    def mix(self, latents: jax.Array, noise: jax.Array, timesteps: jax.Array) -> Noised:
        """Returns what diffusers' `add_noise` and `get_velocity` give, with the weights of `compute_snr`."""
        alphas = jnp.asarray(self.alphas_cumprod, jnp.float32)[timesteps]
        alpha = alphas.reshape(-1, *(1,) * (latents.ndim - 1))
        noisy = jnp.sqrt(alpha) * latents + jnp.sqrt(1 - alpha) * noise
        targets = {
            "epsilon": lambda: noise,
            "v_prediction": lambda: jnp.sqrt(alpha) * noise - jnp.sqrt(1 - alpha) * latents,
            "sample": lambda: latents,
        }
        return Noised(noisy, targets[self.prediction_type](), timesteps, jnp.sqrt(1 - alphas), self._weigh(alphas))

    def _weigh(self, alphas: jax.Array) -> jax.Array:
        """Computes min-SNR weights; at zero SNR, where a target of noise says nothing, that of epsilon is 1.

        With v the error counts min(snr, gamma) / (snr + 1), which is finite everywhere.
        """
        if not self.snr_gamma:
            return jnp.ones_like(alphas)
        snr = alphas / (1 - alphas)
        least = jnp.minimum(snr, self.snr_gamma)
        if self.prediction_type == "v_prediction":
            return least / (snr + 1)
        if self.prediction_type == "sample":
            return least
        return jnp.where(snr > 0, least / jnp.maximum(snr, 1e-20), 1.0)


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Rectified flow: noisy = (1 - sigma) latents + sigma noise, target = noise - latents.

    `spread` is how sigmas are drawn from even numbers u: `uniform`, `logit_normal` (sigmoid of a normal number), `mode`
    (Esser et al. 2024, scale 1.29); each is then shifted: shift * s / (1 + (shift - 1) * s). `shifted` is `uniform`
    under the name that tells so. Sigmas lie in `low` to `high`, the part of one expert, with the spread's shape kept.
    `timesteps` of the model are sigma times `timestep_scale`.
    """

    spread: str = "uniform"
    shift: float = 1.0
    low: float = 0.0
    high: float = 1.0
    timestep_scale: float = 1.0

    def add_noise(self, latents: jax.Array, key: jax.Array) -> Noised:
        """Draws sigmas and noise for every row."""
        time_key, noise_key = jax.random.split(key)
        sigmas = self.spread_out(draw_evenly(time_key, len(latents)))
        return self.mix(latents, jax.random.normal(noise_key, latents.shape), sigmas)

    def spread_out(self, even: jax.Array) -> jax.Array:
        """Maps even numbers (B,) in [0, 1) to sigmas, by the inverse of the spread's distribution."""
        even = jnp.clip(even, 1e-6, 1 - 1e-6)
        low, high = (self._find_share(end) for end in (self.low, self.high))
        even = low + (high - low) * even
        return self._shift(_SPREADS[self.spread](even))

    def _shift(self, sigmas: jax.Array) -> jax.Array:
        return self.shift * sigmas / (1 + (self.shift - 1) * sigmas)

    def _find_share(self, sigma: float) -> float:
        """Returns the share of draws below a sigma, for cutting the range where an expert's begins or ends."""
        if sigma in (0.0, 1.0):
            return sigma
        numbers = np.linspace(1e-6, 1 - 1e-6, 20_001)
        with jax.ensure_compile_time_eval():  # a number also where the step is traced
            spread = np.asarray(self._shift(_SPREADS[self.spread](jnp.asarray(numbers))))
        return float(np.interp(sigma, spread, numbers))

    def mix(self, latents: jax.Array, noise: jax.Array, sigmas: jax.Array) -> Noised:
        """Returns the batch for these sigmas (B,), each error counting alike."""
        sigma = sigmas.reshape(-1, *(1,) * (latents.ndim - 1))
        noisy = (1 - sigma) * latents + sigma * noise
        return Noised(noisy, noise - latents, sigmas * self.timestep_scale, sigmas, jnp.ones_like(sigmas))


def _spread_mode(even: jax.Array) -> jax.Array:
    return even + MODE_SCALE * (jnp.cos(jnp.pi * even / 2) ** 2 - 1 + even)


_SPREADS = {
    "uniform": lambda even: even,
    "shifted": lambda even: even,
    "logit_normal": lambda even: jax.nn.sigmoid(jax.scipy.stats.norm.ppf(even)),
    "mode": _spread_mode,
}

Objective = Diffusion | Flow


def predict_as_asked(model: Model, settings: TrainingSettings) -> Model:
    """Returns the model with a scheduler that expects what learns to be predicted, where something was asked."""
    if settings.prediction_type is None:
        return model
    changes = {**model.scheduler_changes, "prediction_type": settings.prediction_type}
    return replace(model, scheduler_changes=changes)


def choose_objective(
    settings: TrainingSettings,
    learner: Learner,
    scheduler_config: Mapping[str, Any],
    *,
    model: Model,
    folder: Path,
    shape: Shape,
    denoiser: Denoiser,
) -> Objective:
    """Returns what is learnt for pictures of this size, with the family's defaults where nothing was asked."""
    if learner.process == "diffusion":
        return Diffusion.of_scheduler(
            scheduler_config,
            prediction_type=settings.prediction_type,
            snr_gamma=learner.snr_gamma if settings.snr_gamma is None else settings.snr_gamma,
            noise_offset=settings.noise_offset,
        )
    return Flow(
        spread=settings.sigmas or learner.spread,
        shift=settings.shift or learner.find_shift(model, folder, shape),
        low=denoiser.low,
        high=denoiser.high,
        timestep_scale=learner.timestep_scale,
    )


def sum_errors(prediction: jax.Array, noised: Noised, row_weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the weighted sum of the rows' mean squared errors, and each row's own (B,).

    Rows of weight 0 fill a short batch; the caller divides by the sum of `row_weights`.
    """
    difference = jnp.square(prediction.astype(jnp.float32) - noised.target)
    errors = difference.mean(axis=tuple(range(1, difference.ndim))) * noised.weights
    return (errors * row_weights).sum(), errors
