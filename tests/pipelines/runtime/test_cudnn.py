"""Attention on NVIDIA GPUs, as far as a machine without one can tell: what is chosen, and the same call through XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.attention import attend
from pipelines.runtime.cudnn import attend_fused, has_cuda, takes


def draw(*shape: int, seed: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_the_fused_call_is_our_own_attention(*, is_causal: bool, scale: float | None, key_heads: int) -> None:
    query = draw(2, 4, 24, 16, seed=0)
    key, value = (draw(2, key_heads, 24, 16, seed=seed) for seed in (1, 2))
    expected = attend(query, key, value, mask=None, is_causal=is_causal, scale=scale, has_grouped_heads=key_heads != 4)
    found = attend_fused(query, key, value, is_causal=is_causal, scale=scale, implementation="xla")
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_keys_may_be_of_another_length() -> None:
    query, key, value = draw(1, 2, 24, 16, seed=0), draw(1, 2, 7, 16, seed=1), draw(1, 2, 7, 16, seed=2)
    expected = attend(query, key, value, mask=None, is_causal=False, scale=None, has_grouped_heads=False)
    found = attend_fused(query, key, value, is_causal=False, scale=None, implementation="xla")
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize(
    ("shape", "dtype", "has_mask", "is_taken"),
    [
        ((1, 10, 4096, 64), jnp.bfloat16, False, True),  # SDXL
        ((1, 48, 4608, 128), jnp.bfloat16, False, True),  # FLUX.2
        ((1, 40, 75600, 128), jnp.float16, False, True),  # Wan
        ((1, 1, 16384, 512), jnp.bfloat16, False, False),  # an autoencoder's middle
        ((1, 10, 4096, 64), jnp.float32, False, False),
        ((1, 64, 512, 64), jnp.bfloat16, True, False),  # a text encoder's padding or position bias
        ((1, 2, 64, 20), jnp.bfloat16, False, False),
        ((2, 64, 64), jnp.bfloat16, False, False),
    ],
)
def test_the_kernel_gets_what_it_can_do(shape: tuple[int, ...], dtype: type, *, has_mask: bool, is_taken: bool) -> None:
    mask = jnp.ones((1, 1, shape[-2], shape[-2]), bool) if has_mask else None
    assert takes(jax.ShapeDtypeStruct(shape, dtype), mask=mask) is is_taken


def test_a_cpu_has_none() -> None:
    assert not has_cuda()
