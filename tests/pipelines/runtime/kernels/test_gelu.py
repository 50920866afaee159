"""GELU in bf16 and fp32 beside PyTorch's own, and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import torch

from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels.gelu import FURTHEST, gelu, gelu_exactly

ALL = np.arange(2**16, dtype=np.uint16).view(jnp.bfloat16)
NEAR = ALL[np.abs(ALL.astype(np.float32)) <= FURTHEST]
STEP = 2.0**-7  # between numbers in bf16, of themselves, at most


def as_torch(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x.astype(np.float64)).requires_grad_()


def test_every_number_up_to_5_is_as_good_as_rounded_once() -> None:
    exact = torch.nn.functional.gelu(as_torch(NEAR)).detach().numpy()
    found = np.asarray(gelu(jnp.asarray(NEAR))).astype(np.float64)
    assert np.abs(found - exact).max() < 0.5 * STEP * 4 + 1e-3  # half a step between 4 and 8
    errors = np.abs(found - exact) / np.maximum(np.abs(exact), 1e-30)
    assert errors[exact != 0].max() < 0.5 * STEP + 0.0014  # rounding, and what the formula is allowed


def test_it_is_nearer_than_jaxs_own() -> None:
    exact = torch.nn.functional.gelu(as_torch(NEAR)).detach().numpy()

    def err(found: jax.Array) -> float:
        return float((np.abs(np.asarray(found).astype(np.float64) - exact) / np.maximum(np.abs(exact), 1e-30)).max())

    x = jnp.asarray(NEAR)
    assert err(gelu(x)) < 0.1 * err(jax.nn.gelu(x, approximate=False))


def test_far_out_it_is_the_number_itself_or_nothing() -> None:
    x = jnp.asarray([6.0, 40.0, 3e38, jnp.inf, -6.0, -40.0, -3e38], jnp.bfloat16)
    np.testing.assert_allclose(gelu(x), [6.0, 40.0, x[2], jnp.inf, 0, 0, 0], atol=1e-6)
    assert jnp.isnan(gelu(jnp.asarray(jnp.nan, jnp.bfloat16)))


def test_its_derivative_is_pytorchs() -> None:
    x = as_torch(NEAR)
    torch.nn.functional.gelu(x).sum().backward()
    assert x.grad is not None
    found = jax.vjp(gelu, jnp.asarray(NEAR))[1](jnp.ones(len(NEAR), jnp.bfloat16))[0]
    np.testing.assert_allclose(np.asarray(found).astype(np.float64), x.grad.numpy(), atol=0.5 * STEP + 1e-3)


def test_in_fp32_it_is_pytorchs_and_so_is_its_derivative() -> None:
    x = torch.linspace(-12, 12, 4801).requires_grad_()
    exact = torch.nn.functional.gelu(x)
    exact.sum().backward()
    assert x.grad is not None
    found, pull = jax.vjp(gelu_exactly, jnp.asarray(x.detach().numpy()))
    np.testing.assert_allclose(found, exact.detach().numpy(), atol=2e-6)
    np.testing.assert_allclose(pull(jnp.ones_like(found))[0], x.grad.numpy(), atol=2e-6)


def test_a_module_takes_each_for_its_dtype() -> None:
    module = TracedModule(torch.nn.GELU())
    x = jnp.linspace(-4, 4, 99)
    np.testing.assert_array_equal(module.call({}, x.astype(jnp.bfloat16)), gelu(x.astype(jnp.bfloat16)))
    np.testing.assert_array_equal(module.call({}, x), gelu_exactly(x))
    by_tanh = TracedModule(torch.nn.GELU(approximate="tanh"))
    np.testing.assert_array_equal(by_tanh.call({}, x), jax.nn.gelu(x, approximate=True))
