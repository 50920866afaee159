"""Calling an autoencoder whose pictures are split over a mesh: weights blocked for the kernel, attention split."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import torch
from diffusers.models.downsampling import Downsample2D
from torch.nn.functional import conv2d

from pipelines.runtime.bridge.environment import find_picture_axes
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels.convolution import PictureAxes, block_convolutions
from pipelines.runtime.kernels.taps import TAPS


class HalvingConv2d(torch.nn.Conv2d):
    """Halves by taking every second row and column of the kernel's output: 4 x the work, 1/7 of the time to compile.

    Its inputs end with a row and a column of zeros that the module before has put there.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        axes = find_picture_axes()
        if axes is None or not axes.takes_kernels:
            return super().forward(input)
        whole = conv2d(input[:, :, :-1, :-1], self.weight, cast(torch.Tensor, self.bias), padding=1)
        return whole[:, :, 1::2, 1::2]


def split_halvings(autoencoder: torch.nn.Module) -> None:
    """Replaces the halving convolutions of diffusers' autoencoders by HalvingConv2d, with the same parameters."""
    for module in autoencoder.modules():
        match module:
            case Downsample2D(use_conv=True, padding=0, conv=conv):
                pass
            case torch.nn.Sequential() if [type(one) for one in module] == [torch.nn.ZeroPad2d, torch.nn.Conv2d]:
                conv = module[1] if module[0].padding == (0, 1, 0, 1) else None
            case _:
                continue
        if isinstance(conv, torch.nn.Conv2d) and conv.bias is not None and _is_halving(conv):
            conv.__class__ = HalvingConv2d


def _is_halving(conv: torch.nn.Conv2d) -> bool:
    return (conv.kernel_size, conv.stride, conv.padding, conv.groups) == ((TAPS, TAPS), (2, 2), (0, 0), 1)


def prepare_pictures(
    module: TracedModule,
    weights: Mapping[str, jax.Array],
    pictures: PictureAxes | None,
    *,
    also: tuple[type[torch.nn.Module], ...] = (),
) -> tuple[Callable[..., Any], Mapping[str, jax.Array]]:
    """A function that calls an autoencoder with pictures split like that, and the weights to call it with.

    `also` are kinds of convolutions that the kernel takes besides those in two dimensions.
    """
    if pictures is None:
        return module.call, weights
    if pictures.takes_kernels:
        weights = block_convolutions(module.module, weights, also=(HalvingConv2d, *also))
    return functools.partial(module.call, pictures=pictures, attention=pictures.attention), weights
