"""How an autoencoder is called whose pictures lie on a mesh: convolutions packed for the kernel, attention split."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import torch

from pipelines.runtime.convolution import PictureAxes, pack_convolutions
from pipelines.runtime.torch_bridge import TracedModule


def prepare_pictures(
    module: TracedModule,
    weights: Mapping[str, jax.Array],
    pictures: PictureAxes | None,
    *,
    also: tuple[type[torch.nn.Module], ...] = (),
) -> tuple[Callable[..., Any], Mapping[str, jax.Array]]:
    """How to call an autoencoder whose pictures lie on a mesh like that, and the weights to call it with.

    `also` are kinds of convolutions that the kernel takes besides those in two dimensions.
    """
    if pictures is None:
        return module.call, weights
    if pictures.takes_kernels:
        weights = pack_convolutions(module.module, weights, also=also)
    return functools.partial(module.call, pictures=pictures, attention=pictures.attention), weights
