"""Noise is mixed in as the schedulers take it out."""

import jax
import jax.numpy as jnp
import numpy as np

from pipelines.training.engine.flow import BELOW_ONE, add_noise, draw_evenly


def test_noise_and_latents_add_up() -> None:
    latents = jax.random.normal(jax.random.key(1), (64, 2, 3, 4))
    noisy, target, sigmas = add_noise(latents, jax.random.key(2), shift=3.0)
    at = sigmas[:, None, None, None]
    np.testing.assert_allclose(noisy, latents + at * target, atol=1e-5)
    assert abs(float(jnp.median(sigmas)) - 0.75) < 0.02


def test_a_batch_covers_the_whole_range_and_so_do_its_first_rows_over_time() -> None:
    drawn = np.asarray([draw_evenly(jax.random.key(step), 8) for step in range(200)])
    np.testing.assert_array_equal(np.sort((drawn * 8).astype(int), axis=1), [[*range(8)]] * 200)  # each part once
    np.testing.assert_allclose(drawn[:, :4].mean(), 0.5, atol=0.03)  # the rest may fill a short batch


def test_no_number_of_many_rows_rounds_up_to_one() -> None:
    drawn = draw_evenly(jax.random.key(124), 1 << 18)  # a key with which the last row would be 1
    assert float(drawn.max()) == BELOW_ONE
    assert np.floor(np.float32(1000) * BELOW_ONE) == 999
