"""Weights that are part of a stored tensor, or several of them, or one in another form: nothing is read beforehand.

Single-file checkpoints hold what diffusers has apart as one tensor, or the other way round (single_file.py), and fp8
weights have a scale beside them. Each view passes the destinations of a read on to what it is a view of, so that the
bytes of a slice still go from the file straight to where they belong.
Not here: layouts that a mesh or a kernel wants (permuted.py), updates (lora_merge.py).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.errors import ModelError
from pipelines.messages import say
from pipelines.runtime.weights.stored import Destination, Runs, StoredTensor, WeightSource, cut, cut_rows

_SCALES = (".scale_weight", ".weight_scale")  # beside `.weight`, as ComfyUI writes them: first and now
# Tensors that only programs which compute in fp8 read: scales of activations, and marks.
_OF_FP8 = re.compile(r"(^|\.)(scaled_fp8|comfy_quant|scale_input|input_scale|scale_weight|weight_scale)$")
_EXACT_BYTES = np.dtype(np.float32).itemsize


@dataclass(frozen=True, kw_only=True)
class SomeRows:
    """The rows of a weight from `start` to `stop`."""

    source: WeightSource
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.stop - self.start, *self.source.shape[1:])

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Runs]:
        return self.source.plan([_shift(one, self.start) for one in destinations])


@dataclass(frozen=True, kw_only=True)
class JoinedTensor:
    """Several weights, one after the other along their rows."""

    parts: Sequence[WeightSource]

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:])

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Runs]:
        first = 0
        for part in self.parts:
            last = first + part.shape[0]
            inside = [_shift(piece, -first) for one in destinations if (piece := cut(one, first, last)) is not None]
            if inside:
                yield from part.plan(inside)
            first = last


@dataclass(frozen=True, kw_only=True)
class TransposedTensor:
    """A matrix, turned."""

    source: WeightSource

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape[::-1]

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Runs]:
        return self.source.plan([Destination(index=one.index[::-1], array=one.array.T) for one in destinations])


@dataclass(frozen=True, kw_only=True)
class SqueezedTensor:
    """A weight without its last axes, `count` of them, whose size is 1."""

    source: WeightSource
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape[: -self.count]

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Runs]:
        return self.source.plan(
            [
                Destination(
                    index=(*one.index, *(slice(0, 1),) * self.count),
                    array=one.array.reshape(*one.array.shape, *(1,) * self.count),
                )
                for one in destinations
            ]
        )


@dataclass(frozen=True, kw_only=True)
class ScaledTensor:
    """A weight times a scale, in fp32: one number, or one for each row."""

    source: WeightSource
    scale: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Runs]:
        for pieces in cut_rows(self.shape, _EXACT_BYTES, destinations):
            yield _ScaledRead(source=self, destinations=pieces)


@dataclass(frozen=True, kw_only=True)
class _ScaledRead:
    source: ScaledTensor
    destinations: Sequence[Destination]

    def run(self) -> None:
        exact = [Destination(index=one.index, array=np.empty(one.array.shape, np.float32)) for one in self.destinations]
        for read in self.source.source.plan(exact):
            read.run()
        scale = np.asarray(self.source.scale, np.float32)
        for destination, read in zip(self.destinations, exact, strict=True):
            rows = scale if scale.size == 1 else scale[destination.index[0]]
            by_row = rows.reshape(-1, *(1,) * (read.array.ndim - 1))
            np.copyto(destination.array, read.array * by_row, casting="unsafe")


def apply_scales(stored: Mapping[str, StoredTensor]) -> dict[str, WeightSource]:
    """Returns a file's weights, those with a scale beside them multiplied by it, without the scales and their marks.

    Raises ModelError for a scale that is neither one number nor one for each row: of a kind that is not read here.
    """
    weights: dict[str, WeightSource] = {}
    for name, tensor in stored.items():
        if _OF_FP8.search(name):
            continue
        layer = name.removesuffix(".weight")
        scale = next((stored[layer + ending] for ending in _SCALES if layer != name and layer + ending in stored), None)
        weights[name] = tensor if scale is None else ScaledTensor(source=tensor, scale=_read_scale(name, tensor, scale))
    return weights


def _read_scale(name: str, tensor: StoredTensor, scale: StoredTensor) -> tuple[float, ...]:
    count = int(np.prod(scale.shape))
    if tensor.dtype.itemsize != 1 or tensor.dtype.kind in "iub" or count not in (1, tensor.shape[0]):
        raise ModelError(
            say(
                "{name} in {file} is stored as {dtype} with scales of shape {shape}, which cannot be read here.",
                name=name,
                file=tensor.file,
                dtype=tensor.dtype.name,
                shape=scale.shape,
            ),
            advice=say("Use a checkpoint in fp32, fp16, bf16 or fp8."),
        )
    values = np.empty(scale.shape, np.float32)
    for read in scale.plan([Destination(index=tuple(slice(0, size) for size in scale.shape), array=values)]):
        read.run()
    return tuple(values.ravel().tolist())


def _shift(destination: Destination, rows: int) -> Destination:
    own = destination.index[0]
    return Destination(
        index=(slice(own.start + rows, own.stop + rows), *destination.index[1:]), array=destination.array
    )
