"""Weights of a GGUF file: dequantised slice by slice as they are read, in fp32, by the format's own package.

A weight's numbers lie one after the other in blocks, and a row need not begin with one: SDXL's convolutions were cut
anew before they were quantised. So the blocks that some rows touch are read, and what is around them is left out.
Not here: a file's header (pipelines/models/gguf_files.py).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize

from pipelines.models.gguf_files import PLAIN, Blocks, find_blocks, is_gguf, truncated_gguf
from pipelines.models.weight_files import read_header
from pipelines.runtime.weights.stored import DTYPES, Destination, StoredTensor, WeightSource, cut_rows, read_headers
from pipelines.runtime.weights.views import apply_scales

_EXACT_BYTES = np.dtype(np.float32).itemsize


@dataclass(frozen=True, kw_only=True)
class QuantisedTensor:
    """A quantised tensor's place in a GGUF file; `kind` is ggml's name of its type."""

    file: Path
    kind: str
    shape: tuple[int, ...]
    offset: int
    blocks: Blocks

    def plan(self, destinations: Sequence[Destination]) -> Iterator["DequantisingRead"]:
        """Yields a read for every few rows, so that one large tensor keeps several threads busy."""
        for pieces in cut_rows(self.shape, _EXACT_BYTES, destinations):
            yield DequantisingRead(stored=self, destinations=pieces)

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        """Returns the rows from `start` to `stop` in fp32; raises ModelError when the file has become shorter."""
        row, count = math.prod(self.shape[1:]), self.blocks.count
        first, last = start * row // count, -(-stop * row // count)
        with self.file.open("rb") as stream:
            stream.seek(self.offset + first * self.blocks.size)
            stored = stream.read((last - first) * self.blocks.size)
        if len(stored) < (last - first) * self.blocks.size:
            raise truncated_gguf(self.file)
        numbers = dequantize(np.frombuffer(stored, np.uint8), gguf.GGMLQuantizationType[self.kind])
        begin = start * row - first * count
        return numbers[begin : begin + (stop - start) * row].reshape(stop - start, *self.shape[1:])


@dataclass(frozen=True, kw_only=True)
class DequantisingRead:
    """Some rows of a quantised tensor, and where parts of them go."""

    stored: QuantisedTensor
    destinations: Sequence[Destination]

    def run(self) -> None:
        """Fills the destinations; raises ModelError when the file has become shorter."""
        start = min(one.index[0].start for one in self.destinations)
        stop = max(one.index[0].stop for one in self.destinations)
        rows = self.stored.read_rows(start, stop)
        for one in self.destinations:
            own = one.index[0]
            part = rows[own.start - start : own.stop - start, *one.index[1:]]
            np.copyto(one.array, part, casting="unsafe")


def read_weights(file: Path) -> dict[str, WeightSource]:
    """Returns a single file's weights by their names: a safetensors file's, with their scales, or a GGUF file's.

    Raises ModelError for a file that is truncated, or holds what cannot be read.
    """
    if not is_gguf(file):
        return apply_scales(read_headers([file]))
    header, _ = read_header(file)
    return {name: _find(file, entry) for name, entry in header.items() if name != "__metadata__"}


def _find(file: Path, entry: Mapping[str, Any]) -> WeightSource:
    shape, offset, kind = tuple(entry["shape"]), entry["data_offsets"][0], entry["dtype"]
    if kind in PLAIN:
        return StoredTensor(file=file, dtype=np.dtype(DTYPES[kind]), shape=shape, offset=offset)
    blocks = find_blocks(kind)
    assert blocks is not None, "the header refuses other types"
    return QuantisedTensor(file=file, kind=kind, shape=shape, offset=offset, blocks=blocks)
