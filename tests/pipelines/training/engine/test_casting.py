"""Weights that are rounded before they are cast are those that are cast, and so are their gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.training.engine.casting import cast


@pytest.mark.parametrize("is_large", [True, False])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_a_cast_is_jaxs_own_to_the_bit(dtype: Any, *, is_large: bool) -> None:
    values = np.random.default_rng(0).standard_normal(4096) * np.logspace(-45, 38, 4096)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-40, 1 + 2**-8, 1 + 3 * 2**-8]
    weight = jnp.asarray([*values, *special], jnp.float32)
    factors = jnp.asarray(np.random.default_rng(1).standard_normal(len(weight)), dtype)

    def run(change: Any) -> Any:
        total = lambda weight: (change(weight) * factors).sum()  # noqa: E731
        return jax.jit(change)(weight), jax.jit(jax.grad(total))(weight)

    found = run(lambda weight: cast(weight, dtype, is_large=is_large))
    expected = run(lambda weight: weight.astype(dtype))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one, np.float32), np.asarray(other, np.float32))


def test_whole_numbers_stay_as_they_are() -> None:
    assert cast(jnp.arange(3), jnp.bfloat16, is_large=True).dtype == jnp.int32
