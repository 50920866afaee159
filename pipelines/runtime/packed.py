"""Weights that are read in another order than they are stored in: packed projections, and layers in one stack.

Packed projections are dealt out so that tensor parallelism splits them on heads and gates.

One weight often holds several projections, one after the other (q|k|v|gate|up). Cut in even parts, a device would get
all of q and a piece of k; dealt out, part p holds slice p of every block, which is the same layer, smaller.

Layers that run as a scan (torch_bridge.ScannedLayers) have one weight for all, with the layers along its first axis.
Both orders are made while reading, slice by slice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.runtime.weights import StoredTensor, WeightSource


@dataclass(frozen=True, kw_only=True)
class PackedTensor:
    """A stored weight whose `blocks` (sizes along `axis`) are dealt out to `parts` devices."""

    stored: StoredTensor
    axis: int
    blocks: tuple[int, ...]
    parts: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    def read(self, index: tuple[slice, ...]) -> np.ndarray:
        """The slice in the new order; along `axis` it must cover whole parts."""
        start, stop, _ = index[self.axis].indices(self.shape[self.axis])
        size = self.shape[self.axis] // self.parts
        assert start % size == 0 == stop % size, "a device reads whole parts"
        pieces = []
        for part in range(start // size, stop // size):
            offset = 0
            for block in self.blocks:
                width = block // self.parts
                place = slice(offset + part * width, offset + (part + 1) * width)
                pieces.append(self.stored.read((*index[: self.axis], place, *index[self.axis + 1 :])))
                offset += block
        return np.concatenate(pieces, self.axis)


@dataclass(frozen=True, kw_only=True)
class StackedTensor:
    """The same weight of several layers, one after the other along a new first axis."""

    layers: Sequence[WeightSource]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.layers), *self.layers[0].shape)

    def read(self, index: tuple[slice, ...]) -> np.ndarray:
        return np.stack([layer.read(index[1:]) for layer in self.layers[index[0]]])
