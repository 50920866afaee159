"""Noise is mixed in as the schedulers take it out."""

import jax
import jax.numpy as jnp
import numpy as np

from pipelines.training.flow import add_noise, draw_evenly


def test_a_batch_covers_the_whole_range() -> None:
    drawn = np.asarray(draw_evenly(jax.random.key(0), 8))
    assert (np.floor(drawn * 8) == np.arange(8)).all()


def test_noise_and_latents_add_up() -> None:
    latents = jax.random.normal(jax.random.key(1), (64, 2, 3, 4))
    noisy, target, sigmas = add_noise(latents, jax.random.key(2), shift=3.0)
    at = sigmas[:, None, None, None]
    np.testing.assert_allclose(noisy, latents + at * target, atol=1e-5)
    assert abs(float(jnp.median(sigmas)) - 0.75) < 0.02
