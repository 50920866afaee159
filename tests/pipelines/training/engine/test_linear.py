"""The trainer's linear layers give what PyTorch's give, and so do their gradients, within the rounding of bf16."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.training.engine import linear

SIZES = {
    "many rows": (2, 160, 192, 768),
    "narrowing": (2, 160, 768, 192),
    "few rows": (1, 8, 192, 192),
    "odd sides": (2, 160, 48, 70),
}


def plain(x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    return x @ weight.T + bias


def differentiate(function: Callable[..., jax.Array], *arguments: jax.Array) -> tuple[jax.Array, ...]:
    def loss(*arguments: jax.Array) -> jax.Array:
        return jnp.square(function(*arguments)).mean()

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*arguments)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_values_and_gradients_are_the_plain_ones(
    monkeypatch: pytest.MonkeyPatch, dtype: jnp.dtype, size: tuple[int, int, int, int]
) -> None:
    if dtype == jnp.bfloat16 and linear.choose_dtype() != dtype:
        pytest.skip("this machine's XLA has no product of bf16 that sums in fp32")
    monkeypatch.setattr(linear, "choose_dtype", lambda: dtype)
    batch, rows, inputs, outputs = size
    rng = np.random.default_rng(0)
    x, weight, bias = (
        jnp.asarray(rng.normal(size=shape), jnp.float32)
        for shape in ((batch, rows, inputs), (outputs, inputs), (outputs,))
    )
    tolerance = 1e-4 if dtype == jnp.float32 else 2e-2
    mine, theirs = (
        (jax.jit(function)(x, weight, bias), *differentiate(function, x, weight, bias))
        for function in (linear.linear, plain)
    )
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance * float(jnp.abs(other).max()))
        assert one.dtype == other.dtype


def test_what_comes_in_bf16_gets_its_gradient_in_bf16() -> None:
    """With --mixed-precision bf16, JAX adds gradients from elsewhere to these, which have to be of one dtype."""
    rng = np.random.default_rng(0)
    shapes = ((2, 160, 192), (96, 192), (96,))
    arrays = [jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in shapes]
    for one, other in zip(differentiate(linear.linear, *arrays), differentiate(plain, *arrays), strict=True):
        assert one.dtype == other.dtype == jnp.bfloat16
        wide, expected = one.astype(jnp.float32), other.astype(jnp.float32)
        np.testing.assert_allclose(wide, expected, atol=3e-2 * float(jnp.abs(expected).max()))
