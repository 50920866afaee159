"""Rotated pairs of neighbours are those of complex multiplication, and exchanging them rounds nothing."""

import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.kernels.rotary import rotate_pairs


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_pairs_are_turned_by_their_angles(dtype: jnp.dtype) -> None:
    rng = np.random.default_rng(0)
    x = np.asarray(jnp.asarray(rng.standard_normal((2, 5, 3, 8)), dtype)).astype(np.float32)
    angles = rng.uniform(0, 2 * np.pi, (5, 4))
    expected = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)[None, :, None]
    tables = (np.repeat(table, 2, axis=1).astype(np.float32) for table in (np.cos(angles), np.sin(angles)))
    found = np.asarray(rotate_pairs(jnp.asarray(x, dtype), *map(jnp.asarray, tables))).astype(np.float32)
    tolerance = 1e-6 if dtype == jnp.float32 else 2**-8 * np.abs(x).max()
    np.testing.assert_allclose(found[..., ::2], expected.real, atol=tolerance)
    np.testing.assert_allclose(found[..., 1::2], expected.imag, atol=tolerance)
