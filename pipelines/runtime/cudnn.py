"""Attention on NVIDIA GPUs: cuDNN's fused kernel. Which device does what of it is attention.py's matter.

What the kernel does not take (fp32, masks, odd or wide heads) stays with plain XLA in attention.py. Tests check the
choice, how it is split, and the same call in XLA's implementation on a CPU; the kernel itself has not been run yet.
"""

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp

MAX_HEAD_DIM = 128  # 256 from Hopper on; only autoencoders have wider heads


@functools.cache
def has_cuda() -> bool:
    """Whether JAX computes on an NVIDIA GPU; a ROCm one has no cuDNN."""
    return "cuda" in jax.devices()[0].client.platform_version.lower()


def takes(query_BHLD: Any, *, mask: Any | None) -> bool:
    """Whether the kernel can do this attention."""
    head_dim = query_BHLD.shape[-1]
    is_half = query_BHLD.dtype in (jnp.bfloat16, jnp.float16)
    return is_half and mask is None and query_BHLD.ndim == 4 and head_dim % 8 == 0 and head_dim <= MAX_HEAD_DIM


def attend_fused(
    query_BHLD: jax.Array,
    key_BHLD: jax.Array,
    value_BHLD: jax.Array,
    *,
    is_causal: bool,
    scale: float | None,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> jax.Array:
    """softmax(q k^T * scale) v; key and value may have fewer heads, each shared by a run of query heads."""
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query_BHLD, key_BHLD, value_BHLD))
    out = jax.nn.dot_product_attention(
        query, key, value, is_causal=is_causal, scale=scale, implementation=implementation
    )
    return jnp.swapaxes(out, 1, 2)
