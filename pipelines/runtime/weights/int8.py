"""Weights rounded to int8 as they are read: symmetric, with one scale for each output (row), the largest number's.

Each weight becomes two arrays: `name` in int8, and `name` + SCALE, (O, 1), in the precision that the model computes in.
The weight is their product. A scale is rounded to that precision before it rounds anything, so no row is too large or
too small as a whole, and a number is off by at most half its row's scale (and what is cut off at 127, if the scale was
rounded down). Rows are read whole in fp32, updates (lora_merge.py) already added, so LoRAs are rounded only once, and
the numbers are the same on every mesh.
Not here: how programs use them (bridge/row_scales.py), weights that files already hold in int8 (refused, resolve.py).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from pipelines.runtime.bridge.modules import ScannedLayers, TracedModule
from pipelines.runtime.bridge.row_scales import LARGEST
from pipelines.runtime.devices.sharding import SCALE
from pipelines.runtime.weights.permuted import PermutedTensor
from pipelines.runtime.weights.stored import Destination, WeightSource, cut_rows

_EXACT_BYTES = np.dtype(np.float32).itemsize
# Small layers from which all features of a block are scaled or shifted.
_EXACT_LAYERS = re.compile(r"modulation|adaln|norm|emb", re.IGNORECASE)


def list_rounded(module: TracedModule, *, besides: str | None = None) -> frozenset[str]:
    """Lists the weights that are worth rounding: of linear layers within lists of layers, by far most of a transformer.

    What comes before and after those lists, modulation, and what the pattern `besides` finds stay exact.
    """
    lists = [
        name for name, one in module.module.named_modules() if isinstance(one, torch.nn.ModuleList | ScannedLayers)
    ]
    linear = [f"{name}.weight" for name, one in module.module.named_modules() if isinstance(one, torch.nn.Linear)]
    return frozenset(
        name
        for name in linear
        if any(name.startswith(f"{owner}.") for owner in lists)
        and not _EXACT_LAYERS.search(name)
        and not (besides and re.search(besides, name))
    )


@dataclass(frozen=True, kw_only=True)
class RoundedTensor:
    """A matrix (O, I) rounded to int8; `scale_dtype` is the precision of its scales.

    `found` keeps the scales of rows that were read, for `ScaleTensor`.
    """

    source: WeightSource
    scale_dtype: np.dtype
    found: np.ndarray = field(repr=False, compare=False)

    @classmethod
    def of(cls, source: WeightSource, scale_dtype: Any) -> "RoundedTensor":
        """Returns the rounded form of a weight; nothing is read yet."""
        return cls(source=source, scale_dtype=np.dtype(scale_dtype), found=np.full(source.shape[0], np.nan, np.float32))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    def plan(self, destinations: Sequence[Destination]) -> Iterator["_RoundedRead"]:
        for pieces in cut_rows(self.shape, _EXACT_BYTES, destinations):
            yield _RoundedRead(source=self, destinations=pieces)

    def read_rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows in fp32, and their scales (rows, 1), which `found` keeps."""
        rows = np.empty((stop - start, *self.shape[1:]), np.float32)
        index = (slice(start, stop), *(slice(0, size) for size in self.shape[1:]))
        for read in self.source.plan([Destination(index=index, array=rows)]):
            read.run()
        largest = np.maximum(rows.max(1, keepdims=True), -rows.min(1, keepdims=True))
        scale = (largest / LARGEST).astype(self.scale_dtype).astype(np.float32)
        scale[scale == 0] = 1  # a row of zeros
        self.found[start:stop] = scale[:, 0]
        return rows, scale


@dataclass(frozen=True, kw_only=True)
class ScaleTensor:
    """The scales (O, 1) of a rounded weight."""

    rounded: RoundedTensor

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rounded.shape[0], 1)

    def plan(self, destinations: Sequence[Destination]) -> Iterator["_ScaleRead"]:
        for pieces in cut_rows(self.rounded.shape, _EXACT_BYTES, destinations):
            yield _ScaleRead(rounded=self.rounded, destinations=pieces)


def round_weights(
    sources: Mapping[str, WeightSource], names: Collection[str], scale_dtype: Any
) -> dict[str, WeightSource]:
    """`sources`, in which the weights of these `names` (layers of a stack each on their own) are read rounded."""
    return {
        name: RoundedTensor.of(source, scale_dtype) if name in names else source for name, source in sources.items()
    }


def add_scales(sources: Mapping[str, WeightSource]) -> dict[str, WeightSource]:
    """`sources`, with the scales of rounded weights after each, in the order that its rows were given (permuted.py)."""
    found: dict[str, WeightSource] = {}
    for name, source in sources.items():
        found[name] = source
        if (scale := _find_scale(source)) is not None:
            found[name + SCALE] = scale
    return found


def _find_scale(source: WeightSource) -> WeightSource | None:
    if isinstance(source, RoundedTensor):
        return ScaleTensor(rounded=source)
    if not isinstance(source, PermutedTensor) or (scale := _find_scale(source.stored)) is None:
        return None
    return replace(source, stored=scale) if source.axis == 0 else scale


@dataclass(frozen=True, kw_only=True)
class _RoundedRead:
    source: RoundedTensor
    destinations: Sequence[Destination]

    def run(self) -> None:
        start, stop = _span(self.destinations)
        rows, scale = self.source.read_rows(start, stop)
        np.rint(np.divide(rows, scale, out=rows), out=rows)
        np.clip(rows, -LARGEST, LARGEST, out=rows)
        for one in self.destinations:
            own = one.index[0]
            part = rows[own.start - start : own.stop - start, *one.index[1:]]
            np.copyto(one.array, part, casting="unsafe")


@dataclass(frozen=True, kw_only=True)
class _ScaleRead:
    rounded: RoundedTensor
    destinations: Sequence[Destination]

    def run(self) -> None:
        start, stop = _span(self.destinations)
        if np.isnan(self.rounded.found[start:stop]).any():  # another thread has not read them yet
            self.rounded.read_rows(start, stop)
        for one in self.destinations:
            np.copyto(one.array[:, 0], self.rounded.found[one.index[0]], casting="unsafe")


def _span(destinations: Sequence[Destination]) -> tuple[int, int]:
    return min(one.index[0].start for one in destinations), max(one.index[0].stop for one in destinations)
