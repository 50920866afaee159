"""Twice the rows and columns, by the kernel, interpreted: every pixel four times, to the bit."""

import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.kernels.upsample import double_pixels


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize(
    ("height", "width", "channels"),
    [(4, 16, 128), (3, 7, 5), (2, 1, 130), (48, 65, 3)],
    ids=["whole tiles", "odd", "one column", "several blocks"],
)
def test_every_pixel_is_there_four_times(height: int, width: int, channels: int, dtype: jnp.dtype) -> None:
    values = np.random.default_rng(0).standard_normal((2, height, width, channels))
    x = jnp.asarray(values, jnp.float32).astype(dtype)
    found = double_pixels(x, interpret=True)
    assert found.dtype == jnp.bfloat16
    expected = x.astype(jnp.bfloat16).repeat(2, axis=1).repeat(2, axis=2)
    np.testing.assert_array_equal(found, expected)


def test_zeros_keep_their_sign_and_what_is_not_finite_stays_so() -> None:
    x = jnp.asarray([0.0, -0.0, jnp.inf, -jnp.inf, jnp.nan, 3e38, 1e-30], jnp.bfloat16).reshape(1, 1, 7, 1)
    found, expected = double_pixels(x, interpret=True), x.repeat(2, axis=1).repeat(2, axis=2)
    np.testing.assert_array_equal(found.view(jnp.uint16), expected.view(jnp.uint16))
