"""Weights kept as they lie on a mesh, so that a later load only reads them.

On the way from a checkpoint weights are cut, stacked, dealt out, turned (permuted.py) and rounded. Kept afterwards,
every device's slice is one piece of a file, and what was stored in fp32 and is computed in bf16 takes half the bytes.

A file is named by everything that decides what is in it: the checkpoint's files, from where in them each weight comes,
in which slices and precision it lies on the devices, and the code that brings it there. For each read of a component
one file is kept: another mesh's takes its place.
"""

import contextlib
import errno
import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from pipelines.errors import ModelError
from pipelines.models.fingerprints import fingerprint_files
from pipelines.runtime.weights import int8, permuted, quantised, stored, views
from pipelines.runtime.weights.shard_load import Bounds, OnRead, find_bounds
from pipelines.runtime.weights.stored import DTYPES, Destination, Runs, StoredTensor, WeightSource, read_headers

SPARE_BYTES = 2**30  # of the disk, for what people make

_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
_CODE = fingerprint_files(Path(str(module.__file__)) for module in (int8, permuted, quantised, stored, views))

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class KeptTensor:
    """A weight each of whose slices is a stored tensor of its own."""

    shape: tuple[int, ...]
    slices: Mapping[Bounds, StoredTensor]

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Runs]:
        """Yields reads of whole slices; each destination must be one of them."""
        for destination in destinations:
            stored = self.slices[tuple((part.start, part.stop) for part in destination.index)]
            whole = tuple(slice(0, size) for size in stored.shape)
            yield from stored.plan([Destination(index=whole, array=destination.array)])


class ShardedCopy:
    """The copy that is kept of one read of a component: its file's name and content."""

    def __init__(
        self,
        folder: Path,
        *,
        component: str,
        files: Sequence[Path],
        sources: Mapping[str, WeightSource],
        shardings: Mapping[str, Sharding],
        dtype: Any,
        rounded: Collection[str] = (),
    ) -> None:
        self._shapes = {name: source.shape for name, source in sources.items()}
        self._bounds = {
            name: list(dict.fromkeys(find_bounds(shape, shardings[name]).values()))
            for name, shape in self._shapes.items()
        }
        self._dtype = np.dtype(dtype)
        self._dtypes = {name: np.dtype(np.int8) if name in rounded else self._dtype for name in sources}
        stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        made_of = hashlib.sha256(repr((stats, sources, self._bounds, _CODE)).encode())
        own = hashlib.sha256(repr((sorted(sources), self._dtype.name)).encode())
        self._stem = f"{component}-{own.hexdigest()[:8]}"
        self.file = folder / f"{self._stem}-{made_of.hexdigest()[:16]}.safetensors"

    def load(
        self, sources: Mapping[str, WeightSource], load: Callable[..., dict[str, jax.Array]]
    ) -> dict[str, jax.Array]:
        """Calls `load(kept)` with the kept copy, or else `load(sources, on_read=...)` while writing one.

        Another process may keep its own layout, or clear them all, while this one reads: then `sources` are read.
        """
        if kept := self.find():
            try:
                return load(kept)
            except FileNotFoundError:
                log.info("%s is gone, the checkpoint is read", self.file)
                return load(sources)
        with self.keep() as on_read:
            return load(sources, on_read=on_read)

    def find(self) -> dict[str, WeightSource]:
        """The kept copy's weights by name; empty when nothing is kept, or the file is damaged."""
        if not self.file.exists():
            return {}
        try:
            stored = read_headers([self.file])
            return {
                name: KeptTensor(
                    shape=self._shapes[name], slices={bounds: stored[_call(name, bounds)] for bounds in different}
                )
                for name, different in self._bounds.items()
            }
        except (ModelError, OSError, KeyError) as error:
            log.warning("%s is not used: %s", self.file, error)
            return {}

    @contextlib.contextmanager
    def keep(self) -> Iterator[OnRead]:
        """Writes a copy: gives a function to call with each weight's slices, in any order; deletes incomplete files.

        A disk that is full or cannot be written is reported in the log, and the load goes on.
        """
        header, places, end = self._describe()
        with contextlib.ExitStack() as stack:
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                self._remove_others("part")  # of processes that were killed; one that lives gives up
                self._check_room(end)
                part = _Part(self.file.with_suffix(f".{os.getpid()}.part"), header, places)
                stack.callback(part.remove)
            except OSError as error:
                self._give_up(error)
                yield _ignore
                return
            yield part.write
            try:
                part.finish()
                self._remove_others("safetensors")
                part.path.replace(self.file)
            except OSError as error:
                self._give_up(error)

    def _remove_others(self, kind: str) -> None:
        for old in self.file.parent.glob(f"{self._stem}-*.{kind}"):
            old.unlink(missing_ok=True)

    def _check_room(self, size: int) -> None:
        free = shutil.disk_usage(self.file.parent).free
        if size + SPARE_BYTES > free:
            raise OSError(errno.ENOSPC, f"it needs {(size + SPARE_BYTES) / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")

    def _give_up(self, error: OSError) -> None:
        log.warning("The weights' layout is not kept in %s: %s", self.file.parent, error)

    def _describe(self) -> tuple[bytes, dict[tuple[str, Bounds], int], int]:
        """The file's header, each slice's offset after it, and the size of all slices in bytes."""
        entries, places, end = dict[str, Any](), dict[tuple[str, Bounds], int](), 0
        for name, different in self._bounds.items():
            for bounds in different:
                shape = [stop - start for start, stop in bounds]
                places[name, bounds], start = end, end
                end += math.prod(shape) * self._dtypes[name].itemsize
                entries[_call(name, bounds)] = {
                    "dtype": _DTYPE_NAMES[self._dtypes[name]],
                    "shape": shape,
                    "data_offsets": [start, end],
                }
        text = json.dumps(entries).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text, places, end


class _Part:
    """A partial file that is being written; an error is raised only by `finish`."""

    def __init__(self, path: Path, header: bytes, places: Mapping[tuple[str, Bounds], int]) -> None:
        self.path = path
        self._places = places
        self._start = len(header)
        self._error: OSError | None = None
        self._stream = path.open("wb", buffering=0)
        self._write(header, 0)

    def write(self, name: str, slices: Mapping[Bounds, np.ndarray]) -> None:
        for bounds, array in slices.items():
            self._write(array.reshape(-1).view(np.uint8).data, self._start + self._places[name, bounds])

    def _write(self, left: bytes | memoryview, at: int) -> None:
        try:
            while left and self._error is None:
                count = os.pwrite(self._stream.fileno(), left, at)
                left, at = left[count:], at + count
        except OSError as error:
            self._error = error

    def finish(self) -> None:
        """Waits until all of it is on the disk; raises the OSError that ended the writing, if one did."""
        if self._error is not None:
            raise self._error
        os.fsync(self._stream.fileno())

    def remove(self) -> None:
        """Deletes the partial file; no-op after the rename."""
        self._stream.close()
        self.path.unlink(missing_ok=True)


def _call(name: str, bounds: Bounds) -> str:
    """A slice's name in the file: `proj.weight[0:64,32:48]`."""
    return f"{name}[{','.join(f'{start}:{stop}' for start, stop in bounds)}]"


def _ignore(_name: str, _slices: Mapping[Bounds, np.ndarray]) -> None:
    pass
