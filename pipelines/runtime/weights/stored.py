"""Checkpoint files: where each tensor lies in them, and reading slices of it into arrays.

Reads safetensors files in fp32, fp16, bf16 or fp8. Bytes go from the file straight into the memory of
the array where a slice is one piece, else through a few rows of scratch memory, so the host never holds a second copy
of a weight.
Not here: which files there are (models/weight_files.py), downloading (hub.py), arrays and devices (shard_load.py),
which slice goes where (sharding.py).
"""

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Protocol

import ml_dtypes
import numpy as np

from pipelines.errors import ModelError
from pipelines.messages import say
from pipelines.models.weight_files import read_header, truncated

READ_BYTES = 2**24

DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    # Counts and positions, and what programs that quantise write, which is refused as a weight (resolve.py).
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A slice of a weight with explicit bounds, and the array of that shape which it is read into."""

    index: tuple[slice, ...]
    array: np.ndarray


class Runs(Protocol):
    """A read that is planned."""

    def run(self) -> None:
        """Fills the destinations; raises ModelError when the file has become shorter."""
        ...


class WeightSource(Protocol):
    """Anything that a weight can be read from: a stored tensor, or a wrapper that reads it otherwise."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def plan(self, destinations: Sequence[Destination]) -> Iterator["Runs"]:
        """Yields reads that fill all destinations; they may run in any order and on any threads."""
        ...


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """A tensor's place in a safetensors file."""

    file: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int

    def plan(self, destinations: Sequence[Destination]) -> Iterator["Read"]:
        """Yields a read for every few rows, so that one large tensor keeps several threads busy."""
        if not self.shape:
            destinations = [
                Destination(index=(slice(0, 1),), array=destination.array.reshape(1)) for destination in destinations
            ]
        for pieces in cut_rows(self.shape or (1,), self.dtype.itemsize, destinations):
            yield Read(stored=self, destinations=pieces)


def cut_rows(
    shape: tuple[int, ...], itemsize: int, destinations: Sequence[Destination]
) -> Iterator[Sequence[Destination]]:
    """Yields the parts of the destinations that lie in the same few rows, READ_BYTES of a tensor of this shape each."""
    rows, *rest = shape
    step = max(1, READ_BYTES // max(1, math.prod(rest) * itemsize))
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        inside = [part for destination in destinations if (part := cut(destination, start, stop)) is not None]
        if inside:
            yield inside


def cut(destination: Destination, start: int, stop: int) -> Destination | None:
    """The part of a destination that lies in the rows from `start` to `stop`; None if there is none."""
    rows = destination.index[0]
    start, stop = max(start, rows.start), min(stop, rows.stop)
    if start >= stop:
        return None
    array = destination.array[start - rows.start : stop - rows.start]
    return Destination(index=(slice(start, stop), *destination.index[1:]), array=array)


@dataclass(frozen=True, kw_only=True)
class Read:
    """Some rows of a stored tensor, and where parts of them go."""

    stored: StoredTensor
    destinations: Sequence[Destination]

    def run(self) -> None:
        """Fills the destinations; raises ModelError when the file has become shorter."""
        with self.stored.file.open("rb", buffering=0) as stream:
            scattered = []
            for destination in self.destinations:
                if self._is_one_piece(destination):
                    self._fill(stream, destination.index[0].start, destination.array)
                else:
                    scattered.append(destination)
            if scattered:
                self._scatter(stream, scattered)

    def _is_one_piece(self, destination: Destination) -> bool:
        """Whether the bytes can go from the file to the destination as they are."""
        whole = all(
            part == slice(0, size) for part, size in zip(destination.index[1:], self.stored.shape[1:], strict=True)
        )
        return whole and destination.array.dtype == self.stored.dtype and destination.array.flags.c_contiguous

    def _scatter(self, stream: FileIO, destinations: Sequence[Destination]) -> None:
        """Reads all rows once, and copies each destination's part of them."""
        start = min(destination.index[0].start for destination in destinations)
        stop = max(destination.index[0].stop for destination in destinations)
        rows = _borrow_memory(self.stored.dtype, (stop - start, *self.stored.shape[1:]))
        self._fill(stream, start, rows)
        for destination in destinations:
            own = destination.index[0]
            part = rows[own.start - start : own.stop - start, *destination.index[1:]]
            if part.dtype == destination.array.dtype:  # as plain numbers, which numpy copies faster than bf16
                plain = np.dtype(f"u{part.itemsize}")
                np.copyto(destination.array.view(plain), part.view(plain))
            else:
                np.copyto(destination.array, part, casting="unsafe")

    def _fill(self, stream: FileIO, row: int, array: np.ndarray) -> None:
        stream.seek(self._find_offset(row))
        left = array.reshape(-1).view(np.uint8).data
        while left:
            count = stream.readinto(left)
            if not count:
                raise truncated(self.stored.file)
            left = left[count:]

    def _find_offset(self, row: int) -> int:
        return self.stored.offset + row * math.prod(self.stored.shape[1:]) * self.stored.dtype.itemsize


_memory = threading.local()


def _borrow_memory(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Scratch memory of this thread, valid until its next call: fresh pages for each read would cost more than it."""
    size = math.prod(shape) * dtype.itemsize
    if getattr(_memory, "bytes", np.empty(0)).nbytes < size:
        _memory.bytes = np.empty(size, np.uint8)
    return _memory.bytes[:size].view(dtype).reshape(shape)


def read_headers(files: list[Path]) -> dict[str, StoredTensor]:
    """Maps every tensor's name to its place; raises ModelError for a file that is truncated or not safetensors."""
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        header, start = read_header(file)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if entry["dtype"] not in DTYPES:
                raise ModelError(
                    say(
                        "{name} in {file} is stored as {dtype}, which cannot be read here.",
                        name=name,
                        file=file,
                        dtype=entry["dtype"],
                    ),
                    advice=say("Use a checkpoint in fp32, fp16, bf16 or fp8."),
                )
            dtype = np.dtype(DTYPES[entry["dtype"]])
            shape = tuple(entry["shape"])
            if end - begin != int(np.prod(shape)) * dtype.itemsize:
                raise truncated(file)
            tensors[name] = StoredTensor(file=file, dtype=dtype, shape=shape, offset=start + begin)
    return tensors
