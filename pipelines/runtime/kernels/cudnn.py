"""Attention on NVIDIA GPUs: cuDNN's fused kernel. Which device does what of it is attention.py's matter.

What the kernel does not take (fp32, masks, odd or wide heads, and odd lengths where a gradient is wanted) stays with
plain XLA in attention.py, and so does all of it on GPUs older than Ampere or without cuDNN. Tests check the choice, how
it is split, and the same call in XLA's implementation on a CPU; the kernel itself ran on an H200
(pipelines/docs/gpu.md).
"""

import contextlib
import functools
import importlib
from collections.abc import Collection
from typing import Any, Literal

import jax
import jax.numpy as jnp

from pipelines.runtime.devices.platform import CUDA_PLUGINS

MAX_HEAD_DIM = 128  # 256 from Hopper on; only autoencoders have wider heads
AMPERE = (8, 0)  # compute capability; the kernel runs from there on, and so does bf16
MIN_VERSION = 90000  # of cuDNN; JAX 0.10 is built against 9.8
MIN_VERSIONS = {(10, 3): 91100}  # of newer chips


@functools.cache
def has_cuda() -> bool:
    """Whether JAX computes on NVIDIA GPUs that can run the kernel; ROCm GPUs have no cuDNN."""
    capabilities = {find_capability(device) for device in jax.devices()}
    return can_run(capabilities, version=_find_version())


def can_run(capabilities: Collection[tuple[int, int] | None], *, version: int) -> bool:
    """Whether devices of these compute capabilities (None: no NVIDIA GPU) all run the kernel with this cuDNN."""
    return all(one and one >= AMPERE and version >= MIN_VERSIONS.get(one, MIN_VERSION) for one in capabilities)


def find_capability(device: Any) -> tuple[int, int] | None:
    """An NVIDIA GPU's compute capability, such as (8, 0) of Ampere's; None of any other device."""
    if "cuda" not in device.client.platform_version.lower():
        return None
    major, minor = device.compute_capability.split(".")
    return int(major), int(minor)


def _find_version() -> int:
    """Version of cuDNN (91100 is 9.11); 0 where JAX has no CUDA build, or that finds no cuDNN."""
    for plugin in CUDA_PLUGINS:
        with contextlib.suppress(ImportError, RuntimeError):
            return importlib.import_module(f"{plugin}._versions").cudnn_get_version()
    return 0


def takes(query_BHLD: Any, key_BHLD: Any, *, mask: Any | None, learns: bool = False) -> bool:
    """Whether the kernel can do this attention; where a model `learns`, JAX refuses odd lengths, as SDXL's text has."""
    head_dim = query_BHLD.shape[-1]
    is_half = query_BHLD.dtype in (jnp.bfloat16, jnp.float16)
    is_odd = learns and any(x.shape[-2] % 2 for x in (query_BHLD, key_BHLD))
    fits = query_BHLD.ndim == 4 and head_dim % 8 == 0 and head_dim <= MAX_HEAD_DIM
    return is_half and mask is None and fits and not is_odd


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
