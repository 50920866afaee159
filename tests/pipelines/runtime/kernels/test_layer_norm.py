"""A training's layer norm is the one of inference, and so are its gradients; what it found is not computed again."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from pipelines.runtime.kernels.layer_norm import MOMENTS, norm_learning

EPS = 1e-2  # large, so that its place counts


@pytest.mark.parametrize(("axes", "has_weight"), [(1, True), (1, False), (2, True)])
def test_values_and_gradients_are_torch_s(axes: int, *, has_weight: bool) -> None:
    draw = np.random.default_rng(0)
    x, counted = draw.standard_normal((2, 3, 200, 24)).astype(np.float32) * 2 + 0.5
    own = [draw.standard_normal(x.shape[-axes:]).astype(np.float32) for _ in range(2)] if has_weight else []

    wanted = [torch.tensor(one, requires_grad=True) for one in (x, *own)]
    out = torch.nn.functional.layer_norm(wanted[0], x.shape[-axes:], *wanted[1:], eps=EPS)
    (out * torch.tensor(counted)).sum().backward()

    def total(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        weight, bias = arrays[1:] or (None, None)
        found = norm_learning(arrays[0], weight, bias, axes=axes, eps=EPS, on_matrix_units=False)
        return (found * counted).sum(), found

    gradients, found = jax.grad(total, argnums=tuple(range(1 + len(own))), has_aux=True)(x, *own)
    np.testing.assert_allclose(found, out.detach(), atol=1e-5)
    for gradient, one in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(gradient, one.grad, rtol=1e-5, atol=1e-4)


def test_a_bias_is_summed_up_as_a_product_where_there_are_matrix_units() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 300, 16)), jnp.bfloat16)
    weight, bias = jnp.ones(16, jnp.bfloat16), jnp.zeros(16, jnp.bfloat16)

    def differentiate(*, on_matrix_units: bool) -> jax.Array:
        norm = functools.partial(norm_learning, axes=1, eps=EPS, on_matrix_units=on_matrix_units)
        return jax.grad(lambda bias: (norm(x, weight, bias).astype(jnp.float32) * x).sum())(bias)

    by_product = differentiate(on_matrix_units=True)
    np.testing.assert_array_equal(by_product, differentiate(on_matrix_units=False))
    np.testing.assert_allclose(by_product.astype(jnp.float32), x.astype(jnp.float32).sum((0, 1)), rtol=1e-2)


def test_a_layer_that_is_computed_again_has_its_moments_kept() -> None:
    def layer(x: jax.Array) -> jax.Array:
        return jnp.tanh(norm_learning(x, None, None, axes=1, eps=EPS, on_matrix_units=False))

    def count_roots(policy: object) -> int:
        loss = lambda x: jax.checkpoint(layer, policy=policy)(x).sum()  # noqa: E731
        return str(jax.make_jaxpr(jax.grad(loss))(jnp.ones((4, 8)))).count("rsqrt")

    assert count_roots(jax.checkpoint_policies.save_only_these_names(MOMENTS)) == 1
    assert count_roots(jax.checkpoint_policies.nothing_saveable) == 2
