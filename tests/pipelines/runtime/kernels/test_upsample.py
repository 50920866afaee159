"""Twice the rows and columns, and what comes back of both ways, by kernels, interpreted: to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.kernels.upsample import double_pixels
from pipelines.runtime.kernels.upsample_gradient import add_up_pixels, spread_pixels

of_all_sizes = pytest.mark.parametrize(
    ("height", "width", "channels"),
    [(4, 16, 128), (3, 7, 5), (2, 1, 130), (48, 65, 3)],
    ids=["whole tiles", "odd", "one column", "several blocks"],
)


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@of_all_sizes
def test_every_pixel_is_there_four_times(height: int, width: int, channels: int, dtype: jnp.dtype) -> None:
    x = draw(2, height, width, channels).astype(dtype)
    found = double_pixels(x, interpret=True)
    assert found.dtype == jnp.bfloat16
    expected = x.astype(jnp.bfloat16).repeat(2, axis=1).repeat(2, axis=2)
    np.testing.assert_array_equal(found, expected)


def test_zeros_keep_their_sign_and_what_is_not_finite_stays_so() -> None:
    x = jnp.asarray([0.0, -0.0, jnp.inf, -jnp.inf, jnp.nan, 3e38, 1e-30], jnp.bfloat16).reshape(1, 1, 7, 1)
    found, expected = double_pixels(x, interpret=True), x.repeat(2, axis=1).repeat(2, axis=2)
    np.testing.assert_array_equal(found.view(jnp.uint16), expected.view(jnp.uint16))


@of_all_sizes
def test_four_pixels_are_added_up_in_fp32(height: int, width: int, channels: int) -> None:
    x = draw(2, 2 * height, 2 * width, channels).astype(jnp.bfloat16)
    by_row = x.astype(jnp.float32).reshape(2, height, 2, width, 2, channels).sum(4)
    np.testing.assert_array_equal(add_up_pixels(x, interpret=True), by_row.sum(2).astype(jnp.bfloat16))


@of_all_sizes
def test_pixels_are_spread_between_zeros(height: int, width: int, channels: int) -> None:
    x = draw(2, height, width, channels).astype(jnp.bfloat16)
    expected = jnp.zeros((2, 2 * height, 2 * width, channels), jnp.bfloat16).at[:, ::2, ::2].set(x)
    np.testing.assert_array_equal(spread_pixels(x, interpret=True), expected)
