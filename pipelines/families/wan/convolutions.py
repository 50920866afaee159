"""The autoencoder's 3 x 3 convolutions in the form that TPUs run fastest (runtime/kernels/convolution.py).

These are diffusers' modules; their forward changes only while pictures lie on a mesh of TPUs.
"""

import functools
from typing import Any, cast

import jax
import jax.numpy as jnp
import torch
from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d

from pipelines.runtime.bridge.autoencoder import split_halvings
from pipelines.runtime.bridge.environment import call_jax, find_picture_axes
from pipelines.runtime.kernels.convolution import PictureAxes, convolve_split
from pipelines.runtime.kernels.taps import TAPS


class SplitCausalConv3d(WanCausalConv3d):
    def forward(self, x: torch.Tensor, cache_x: torch.Tensor | None = None) -> torch.Tensor:
        if (axes := _find_axes()) is None:
            return super().forward(x, cache_x)
        before = () if cache_x is None else (cache_x,)
        return call_jax(
            functools.partial(convolve_split, axes=axes), x, self.weight, cast(torch.Tensor, self.bias), *before
        )


class RoundedSiLU(torch.nn.SiLU):
    """Rounds its output to bf16, as convolutions do anyway, so that they and their caches share one array."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        out = super().forward(input)
        if _find_axes() is None:
            return out
        return call_jax(lambda x: jax.lax.optimization_barrier(x.astype(jnp.bfloat16)), out)


def split_convolutions(autoencoder: Any) -> None:
    """Replaces diffusers' modules by these, keeping the parameters."""
    split_halvings(autoencoder)
    for module in autoencoder.modules():
        if isinstance(module, WanCausalConv3d):
            if (module.kernel_size, module.stride) == ((TAPS,) * 3, (1, 1, 1)):
                module.__class__ = SplitCausalConv3d
        elif type(module) is torch.nn.SiLU:
            module.__class__ = RoundedSiLU


def _find_axes() -> PictureAxes | None:
    """Returns the pictures' axes if the kernels apply, else None."""
    axes = find_picture_axes()
    return axes if axes is not None and axes.takes_kernels else None
