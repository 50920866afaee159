"""A LoRA's products by the kernel, interpreted, are what plain JAX gives; so are the gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels import low_rank, operators
from pipelines.runtime.kernels.attention_axes import AttentionAxes

LENGTH = 300  # which fills no tiles


def build_axes(*, learns: bool = True) -> AttentionAxes:
    mesh = build_mesh("dp=2", devices=jax.devices()[:2])
    return AttentionAxes(mesh=mesh, rows="dp", learns=learns, interprets=True)


@pytest.mark.parametrize(
    ("batch", "rank", "inputs", "outputs"),
    [(4, 16, 256, 384), (3, 4, 128, 256), (2, 128, 128, 8320)],  # rows of the mesh, none, and fewer tokens at once
)
def test_values_and_gradients_are_those_of_plain_jax(batch: int, rank: int, inputs: int, outputs: int) -> None:
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(draw.standard_normal(shape) * shape[-1] ** -0.5, jnp.bfloat16)

    x, down, up = normal(batch, LENGTH, inputs), normal(rank, inputs), normal(outputs, rank)
    counted = jnp.asarray(draw.standard_normal((batch, LENGTH, outputs)), jnp.float32)

    def run(multiply: object, *arrays: jax.Array) -> list[np.ndarray]:
        def total(x: jax.Array, down: jax.Array, up: jax.Array) -> tuple[jax.Array, jax.Array]:
            out = multiply(multiply(x, down), up)  # type: ignore[operator]
            return (out.astype(jnp.float32) * counted).sum(), out

        (_, out), gradients = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))(*arrays)
        return [np.asarray(one, np.float32) for one in (out, *gradients)]

    axes = build_axes()
    found = run(lambda x, weight: low_rank.multiply(x, weight, axes), x, down, up)
    exact = run(operators.multiply, *(one.astype(jnp.float32) for one in (x, down, up)))
    for own, expected in zip(found, exact, strict=True):
        np.testing.assert_allclose(own, expected, rtol=0, atol=0.015 * np.abs(expected).max())


def test_it_is_for_a_loras_products_of_many_tokens() -> None:
    axes = build_axes()
    tokens = low_rank.FEWEST_TOKENS

    def takes(shape: tuple[int, ...], weight: tuple[int, int], dtype: object = jnp.bfloat16) -> bool:
        arrays = (jax.ShapeDtypeStruct(shape, dtype), jax.ShapeDtypeStruct(weight, dtype))
        return low_rank.multiplies_by_kernel(axes, *arrays)  # type: ignore[arg-type]

    assert takes((1, tokens, 16), (1024, 16))
    assert takes((1, tokens, 1024), (16, 1024))
    assert not takes((1, tokens - 1, 16), (1024, 16))
    assert not takes((1, tokens, 129), (1024, 129))
    assert not takes((1, tokens, 512), (16, 512))
    assert not takes((1, tokens, 16), (1024, 16), jnp.float32)
    assert not takes((tokens, 16), (1024, 16))
    assert not low_rank.multiplies_by_kernel(None, jnp.ones((1, 8, 16)), jnp.ones((1024, 16)))
