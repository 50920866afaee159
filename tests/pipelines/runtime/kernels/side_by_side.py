"""The same function in torch and through the bridge."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch

from pipelines.runtime.bridge.environment import to_jax_dtype
from pipelines.runtime.bridge.modules import TracedModule


class Calls(torch.nn.Module):
    """A module that is one function of its inputs."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.function(*tensors)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def to_jax(tensor: torch.Tensor) -> jax.Array:
    if tensor.dtype == torch.bfloat16:
        return jnp.asarray(tensor.float().numpy(), jnp.bfloat16)
    return jnp.asarray(tensor.numpy())


def run_both(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """What torch gives, and what the same function gives through jit; both fp32."""
    module = TracedModule(Calls(function))
    traced = jax.jit(lambda *arrays: module.call({}, *arrays))(*map(to_jax, tensors))
    expected = function(*tensors)
    assert traced.dtype == to_jax_dtype(expected.dtype)
    return expected.float().numpy(), np.asarray(traced, np.float32)
