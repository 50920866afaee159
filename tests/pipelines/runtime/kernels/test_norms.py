"""A training's norms are torch's, and so are their gradients; what they found is not computed again."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from pipelines.runtime.kernels.norms import MOMENTS, norm_groups, norm_layer

Norm = Callable[..., Any]
EPS = 1e-2  # large, so that its place counts


def compare(shape: tuple[int, ...], own_shape: tuple[int, ...] | None, ours: Norm, torchs: Norm) -> None:
    """Compares values and gradients of a norm of (input, weight, bias)."""
    draw = np.random.default_rng(0)
    x, counted = draw.standard_normal((2, *shape)).astype(np.float32) * 2 + 0.5
    own = [draw.standard_normal(own_shape).astype(np.float32) for _ in range(2)] if own_shape else []

    wanted = [torch.tensor(one, requires_grad=True) for one in (x, *own)]
    out = torchs(wanted[0], *(wanted[1:] or (None, None)))
    (out * torch.tensor(counted)).sum().backward()

    def total(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = ours(arrays[0], *(arrays[1:] or (None, None)))
        return (found * counted).sum(), found

    gradients, found = jax.grad(total, argnums=tuple(range(1 + len(own))), has_aux=True)(x, *own)
    np.testing.assert_allclose(found, out.detach(), atol=1e-5)
    for gradient, one in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(gradient, one.grad, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("axes", "has_weight"), [(1, True), (1, False), (2, True)])
def test_a_layer_norm_is_torch_s_and_so_are_its_gradients(axes: int, *, has_weight: bool) -> None:
    shape = (3, 200, 24)
    ours = functools.partial(norm_layer, axes=axes, eps=EPS, on_matrix_units=False)
    torchs = lambda x, *own: torch.nn.functional.layer_norm(x, shape[-axes:], *own, eps=EPS)  # noqa: E731
    compare(shape, shape[-axes:] if has_weight else None, ours, torchs)


@pytest.mark.parametrize(("shape", "has_weight"), [((3, 24, 10, 12), True), ((2, 24, 30), False)])
def test_a_group_norm_is_torch_s_and_so_are_its_gradients(shape: tuple[int, ...], *, has_weight: bool) -> None:
    ours = functools.partial(norm_groups, groups=8, eps=EPS)
    torchs = lambda x, *own: torch.nn.functional.group_norm(x, 8, *own, eps=EPS)  # noqa: E731
    compare(shape, (24,) if has_weight else None, ours, torchs)


def test_a_bias_is_summed_up_as_a_product_where_there_are_matrix_units() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 300, 16)), jnp.bfloat16)
    weight, bias = jnp.ones(16, jnp.bfloat16), jnp.zeros(16, jnp.bfloat16)

    def differentiate(*, on_matrix_units: bool) -> jax.Array:
        norm = functools.partial(norm_layer, axes=1, eps=EPS, on_matrix_units=on_matrix_units)
        return jax.grad(lambda bias: (norm(x, weight, bias).astype(jnp.float32) * x).sum())(bias)

    by_product = differentiate(on_matrix_units=True)
    np.testing.assert_array_equal(by_product, differentiate(on_matrix_units=False))
    np.testing.assert_allclose(by_product.astype(jnp.float32), x.astype(jnp.float32).sum((0, 1)), rtol=1e-2)


@pytest.mark.parametrize("sums_apart", [True, False])
def test_sums_of_a_gradient_are_kept_apart_where_they_shall_be(*, sums_apart: bool) -> None:
    norm = functools.partial(norm_layer, axes=1, eps=EPS, on_matrix_units=False, sums_apart=sums_apart)
    x, own = jnp.ones((2, 8)), jnp.ones(8)
    differentiate = jax.grad(lambda x, own: norm(x, own, own).sum(), (0, 1))
    barriers = str(jax.make_jaxpr(differentiate)(x, own)).count("optimization_barrier")
    assert barriers == 1 + sums_apart  # one is the bias's sum's own


def test_a_layer_that_is_computed_again_has_its_moments_kept() -> None:
    def layer(x: jax.Array) -> jax.Array:
        return jnp.tanh(norm_layer(x, None, None, axes=1, eps=EPS, on_matrix_units=False))

    def count_roots(policy: object) -> int:
        loss = lambda x: jax.checkpoint(layer, policy=policy)(x).sum()  # noqa: E731
        return str(jax.make_jaxpr(jax.grad(loss))(jnp.ones((4, 8)))).count("rsqrt")

    assert count_roots(jax.checkpoint_policies.save_only_these_names(MOMENTS)) == 1
    assert count_roots(jax.checkpoint_policies.nothing_saveable) == 2
