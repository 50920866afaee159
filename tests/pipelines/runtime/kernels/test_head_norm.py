"""Heads normed, turned and taken apart by one kernel, interpreted, are what plain JAX gives; so are the gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.head_norm import LANES, norm_heads, norms_by_kernel
from pipelines.runtime.kernels.rotary import rotate_pairs

EPS = 1e-3  # large, so that its place counts


def build_axes(*, learns: bool = True) -> AttentionAxes:
    mesh = build_mesh("dp=2", devices=jax.devices()[:2])
    return AttentionAxes(mesh=mesh, rows="dp", learns=learns, interprets=True)


def norm_plainly(x_BLC: jax.Array, weight: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    heads = x_BLC.astype(jnp.float32).reshape(*x_BLC.shape[:2], -1, LANES)
    over = -1 if weight.size == LANES else (-2, -1)
    normed = heads * jax.lax.rsqrt(jnp.square(heads).mean(over, keepdims=True) + EPS)
    return rotate_pairs(normed * weight.astype(jnp.float32).reshape(-1, LANES), cos, sin)


@pytest.mark.parametrize(
    ("batch", "heads", "is_whole", "has_own_tables", "dtype", "within"),
    [
        (4, 6, False, False, jnp.float32, 1e-5),  # rows of the mesh; six heads at once
        (4, 9, False, True, jnp.bfloat16, 1e-2),  # three at once
        (3, 2, False, True, jnp.float32, 1e-5),  # no rows of the mesh
        (2, 3, True, False, jnp.float32, 1e-5),
        (2, 5, True, True, jnp.bfloat16, 1e-2),
    ],
)
def test_values_and_gradients_are_those_of_plain_jax(
    batch: int, heads: int, dtype: jnp.dtype, within: float, *, is_whole: bool, has_own_tables: bool
) -> None:
    length = 300  # which fills no tiles
    draw = np.random.default_rng(0)
    x = jnp.asarray(draw.standard_normal((batch, length, heads * LANES)), dtype)
    weight = jnp.asarray(draw.uniform(-1, 2, (heads if is_whole else 1) * LANES), dtype)
    angles = draw.uniform(0, 6, (*((batch,) if has_own_tables else ()), length, LANES // 2)).repeat(2, -1)
    cos, sin = (jnp.asarray(table(angles), jnp.float32) for table in (np.cos, np.sin))
    counted = jnp.asarray(draw.standard_normal((batch, length, heads, LANES)), dtype)

    def run(norm: object) -> list[np.ndarray]:
        def total(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
            out = norm(x, weight, cos, sin)  # type: ignore[operator]
            return (out.astype(jnp.float32) * counted).sum(), out

        (_, out), gradients = jax.jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))(x, weight)
        return [np.asarray(one, np.float32) for one in (out, *gradients)]

    found = run(lambda *arrays: norm_heads(*arrays, eps=EPS, axes=build_axes()))
    for own, expected in zip(found, run(norm_plainly), strict=True):
        np.testing.assert_allclose(own, expected, rtol=0, atol=within * np.abs(expected).max())


def test_it_is_for_heads_of_128_features_that_learn() -> None:
    assert norms_by_kernel(build_axes(), LANES)
    assert not norms_by_kernel(build_axes(), 64)
    assert not norms_by_kernel(build_axes(learns=False), LANES)
    assert not norms_by_kernel(None, LANES)
