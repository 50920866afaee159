"""Heads taken apart by kernels, interpreted, are a reshape; so are they put together, and so are the gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.heads import merge_heads, split_heads

HEADS = 3


def turn_over(x_BLC: jax.Array, *, axes: AttentionAxes | None) -> jax.Array:
    """Tells heads and features apart: with both mixed up no element would be where it is."""
    split = split_heads(x_BLC, HEADS, axes=axes)
    return merge_heads(split * jnp.arange(1, HEADS + 1)[:, None] + split[..., ::-1], axes=axes)


@pytest.mark.parametrize(("batch", "width", "is_kernel"), [(4, 128, True), (3, 128, True), (4, 64, False)])
def test_they_are_what_a_reshape_gives_and_so_are_gradients(batch: int, width: int, *, is_kernel: bool) -> None:
    mesh = build_mesh("dp=2", devices=jax.devices()[:2])
    axes = AttentionAxes(mesh=mesh, rows="dp", learns=True, interprets=True)
    x, counted = np.random.default_rng(0).standard_normal((2, batch, 300, HEADS * width)).astype(np.float32)

    def run(axes: AttentionAxes | None) -> tuple[str, jax.Array]:
        loss = lambda x: (turn_over(x, axes=axes) ** 2 * counted).sum()  # noqa: E731
        return str(jax.make_jaxpr(jax.grad(loss))(x)), jax.jit(jax.grad(loss))(x)

    traced, found = run(axes)
    assert [traced.count(f"name={name}") for name in ("cut_features", "join_features")] == [2 * is_kernel] * 2
    np.testing.assert_allclose(found, run(None)[1], rtol=1e-5, atol=1e-4)


def test_inference_has_no_kernel_for_it() -> None:
    axes = AttentionAxes(mesh=build_mesh("dp=1", devices=jax.devices()[:1]), interprets=True)
    traced = jax.make_jaxpr(functools.partial(turn_over, axes=axes))(jnp.zeros((1, 8, HEADS * 128)))
    assert "features" not in str(traced)
