"""Noise, targets and weights are those of diffusers' training scripts, whose lines are run here by torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers import DDPMScheduler, FlowMatchEulerDiscreteScheduler
from diffusers.training_utils import compute_density_for_timestep_sampling, compute_snr
from torch.nn import functional

from pipelines.training.engine.flow import draw_evenly
from pipelines.training.engine.objective import Diffusion, Flow, sum_errors

SDXL = {
    "num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
}  # fmt: skip
TIMESTEPS = torch.tensor([0, 3, 250, 500, 998, 999])


def _draw() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(6, 4, 8, 8, generator=generator) for _ in range(3))


def _compute_as_script(
    scheduler: DDPMScheduler, latents: torch.Tensor, noise: torch.Tensor, prediction: torch.Tensor, gamma: float | None
) -> float:
    """The loss of examples/text_to_image/train_text_to_image.py."""
    if scheduler.config.prediction_type == "epsilon":
        target = noise
    else:
        target = scheduler.get_velocity(latents, noise, TIMESTEPS)
    if gamma is None:
        return functional.mse_loss(prediction, target, reduction="mean").item()
    snr = compute_snr(scheduler, TIMESTEPS)
    weights = torch.stack([snr, gamma * torch.ones_like(TIMESTEPS)], dim=1).min(dim=1)[0]
    weights = weights / (snr if scheduler.config.prediction_type == "epsilon" else snr + 1)
    loss = functional.mse_loss(prediction, target, reduction="none")
    return (loss.mean(dim=[1, 2, 3]) * weights).mean().item()


@pytest.mark.parametrize("gamma", [None, 5.0])
@pytest.mark.parametrize("kind", ["epsilon", "v_prediction"])
def test_a_diffusion_loss_is_that_of_diffusers_script(kind: str, gamma: float | None) -> None:
    scheduler = DDPMScheduler(**SDXL, prediction_type=kind)
    latents, noise, prediction = _draw()
    expected = _compute_as_script(scheduler, latents, noise, prediction, gamma)

    objective = Diffusion.of_scheduler(scheduler.config, prediction_type=None, snr_gamma=gamma or 0.0)
    noised = objective.mix(jnp.asarray(latents), jnp.asarray(noise), jnp.asarray(TIMESTEPS.numpy()))
    summed, _ = sum_errors(jnp.asarray(prediction), noised, jnp.ones(6))

    np.testing.assert_allclose(noised.noisy, scheduler.add_noise(latents, noise, TIMESTEPS), atol=1e-6)
    assert float(summed) / 6 == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("kind", "at_zero"), [("epsilon", 1.0), ("v_prediction", 0.0), ("sample", 0.0)])
def test_weights_are_min_snr_and_finite_at_zero_terminal_snr(kind: str, at_zero: float) -> None:
    config = DDPMScheduler(**SDXL, rescale_betas_zero_snr=True).config
    objective = Diffusion.of_scheduler(config, prediction_type=kind, snr_gamma=5.0)
    assert float(objective.alphas_cumprod[-1]) == pytest.approx(0, abs=1e-9)

    noised = objective.mix(jnp.ones((3, 4, 2, 2)), jnp.ones((3, 4, 2, 2)), jnp.asarray([0, 700, 999]))

    first, middle = (float(snr) for snr in compute_snr(DDPMScheduler.from_config(config), torch.tensor([0, 700])))
    divisor = {"epsilon": lambda snr: snr, "v_prediction": lambda snr: snr + 1, "sample": lambda _snr: 1.0}[kind]
    expected = [min(first, 5.0) / divisor(first), min(middle, 5.0) / divisor(middle), at_zero]
    np.testing.assert_allclose(noised.weights, expected, rtol=1e-4, atol=1e-7)


def test_a_noise_offset_moves_whole_channels() -> None:
    objective = Diffusion.of_scheduler(SDXL, prediction_type="epsilon", noise_offset=0.5)
    latents = jnp.zeros((64, 4, 8, 8))

    target = objective.add_noise(latents, jax.random.key(0)).target
    plain = Diffusion.of_scheduler(SDXL, prediction_type="epsilon").add_noise(latents, jax.random.key(0)).target

    moved = np.asarray(target - plain)
    np.testing.assert_allclose(moved, moved[:, :, :1, :1] * np.ones_like(moved), atol=1e-6)
    assert moved[:, :, 0, 0].std() == pytest.approx(0.5, rel=0.1)


def test_flow_mixes_as_diffusers_scheduler_and_predicts_noise_minus_latents() -> None:
    latents, noise, _ = _draw()
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    timesteps = scheduler.timesteps[torch.tensor([0, 10, 300, 500, 900, 999])]
    sigmas = timesteps / 1000

    noised = Flow().mix(jnp.asarray(latents), jnp.asarray(noise), jnp.asarray(sigmas))

    np.testing.assert_allclose(noised.noisy, scheduler.scale_noise(latents, timesteps, noise), atol=1e-5)
    np.testing.assert_allclose(noised.target, noise - latents, atol=1e-6)


@pytest.mark.parametrize("spread", ["logit_normal", "mode", "uniform"])
def test_sigmas_are_spread_as_diffusers_spreads_them(spread: str) -> None:
    scheme = {"uniform": "none"}.get(spread, spread)
    generator = torch.Generator().manual_seed(0)
    places = compute_density_for_timestep_sampling(scheme, 200_000, 0.0, 1.0, 1.29, generator=generator)
    expected = np.sort(1 - places.numpy())  # diffusers' places count from the noise down

    sigmas = Flow(spread=spread).spread_out(draw_evenly(jax.random.key(0), 20_000))

    quantiles = np.linspace(0.02, 0.98, 25)
    np.testing.assert_allclose(np.quantile(sigmas, quantiles), np.quantile(expected, quantiles), atol=5e-3)


def test_a_shift_is_that_of_diffusers_scheduler() -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    even = jnp.asarray(np.linspace(1, 1000, 1000) / 1000)[:-1]

    np.testing.assert_allclose(Flow(shift=3.0).spread_out(even), scheduler.sigmas.numpy()[::-1][: len(even)], atol=1e-3)


def test_an_expert_learns_only_its_own_sigmas_with_the_shape_kept() -> None:
    even = draw_evenly(jax.random.key(0), 20_000)
    whole = np.sort(np.asarray(Flow(spread="logit_normal", shift=3.0).spread_out(even)))

    high = np.sort(np.asarray(Flow(spread="logit_normal", shift=3.0, low=0.875).spread_out(even)))
    low = np.sort(np.asarray(Flow(spread="logit_normal", shift=3.0, high=0.875).spread_out(even)))

    assert high.min() >= 0.874
    assert low.max() <= 0.876
    own = whole[whole >= 0.875]
    np.testing.assert_allclose(np.quantile(high, [0.2, 0.5, 0.8]), np.quantile(own, [0.2, 0.5, 0.8]), atol=3e-3)
    traced = jax.jit(Flow(spread="logit_normal", shift=3.0, low=0.875).spread_out)(even)
    np.testing.assert_allclose(np.sort(np.asarray(traced)), high, atol=1e-5)


def test_rows_of_weight_zero_count_nothing() -> None:
    noised = Flow().mix(jnp.ones((3, 2, 2, 2)), jnp.zeros((3, 2, 2, 2)), jnp.asarray([0.1, 0.5, 0.9]))
    prediction = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2, 2, 2)))

    summed, errors = sum_errors(prediction, noised, jnp.asarray([1.0, 0.0, 1.0]))

    assert float(summed) == pytest.approx(float(errors[0] + errors[2]))
