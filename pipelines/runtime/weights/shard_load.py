"""Stored tensors to arrays on the mesh: several threads read ahead, each device gets only its own slice.

The slices of a weight are read into memory that a CPU device then uses as it is; other devices get it sent, and it is
let go of. So beyond the arrays the host holds a few rows a thread, and for other devices about AHEAD_BYTES, or the
largest weight where that is more.
Not here: the files (stored.py), which tensor a weight is (resolve.py), orders that differ from the files'
(permuted.py), which slice goes where (sharding.py).
"""

import contextlib
import math
import mmap
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from pipelines.runtime.weights.stored import Destination, WeightSource

READERS = 4  # on two busy cores 0.55 to 1.1 GB/s with 4 threads, 0.3 to 0.5 with 1
AHEAD_BYTES = 2**30
HUGE_PAGE_BYTES = 2**21
ALIGNMENT = 64  # what XLA:CPU wants of memory that it uses as it is

Bounds = tuple[tuple[int, int], ...]
"""Start and stop of a slice along each axis of a weight."""

OnRead = Callable[[str, Mapping[Bounds, np.ndarray]], None]
"""Is called with a weight's name and its distinct slices."""


def load_weights(
    sources: Mapping[str, WeightSource],
    shardings: Mapping[str, Sharding],
    *,
    dtype: Any,
    on_tensor: Callable[[int, int], None],
    rounded: Collection[str] = (),
    on_read: OnRead = lambda _name, _slices: None,
) -> dict[str, jax.Array]:
    """Reads every source into a sharded array of `dtype`, or of int8 if it is `rounded` (int8.py).

    `on_tensor(done, total)` is called as it goes and may raise; `on_read` gets the slices that devices here will hold.
    Raises ModelError for a file that has become shorter.
    """
    placed: dict[str, jax.Array] = {}
    waiting: deque[tuple[str, _Arriving]] = deque()

    def place_oldest() -> None:
        on_tensor(len(placed), len(sources))
        name, weight = waiting.popleft()
        weight.finish()
        on_read(name, weight.slices)
        placed[name] = weight.place()

    with ThreadPoolExecutor(READERS, thread_name_prefix="weights") as readers:
        try:
            for name, source in sources.items():
                kind = np.int8 if name in rounded else dtype
                weight = _Arriving(source.shape, shardings[name], np.dtype(kind))
                while waiting and weight.size + sum(one.size for _, one in waiting) > AHEAD_BYTES:
                    place_oldest()
                weight.start(source, readers)
                waiting.append((name, weight))
            while waiting:
                place_oldest()
        except BaseException:
            readers.shutdown(wait=False, cancel_futures=True)
            raise
    on_tensor(len(placed), len(sources))
    return placed


class _Arriving:
    """A weight that is being read: memory for each of its different slices, and the devices that get them."""

    def __init__(self, shape: tuple[int, ...], sharding: Sharding, dtype: np.dtype) -> None:
        self._shape = shape
        self._sharding = sharding
        self._bounds_of = find_bounds(shape, sharding)
        different = list(dict.fromkeys(self._bounds_of.values()))
        arrays = _allocate(len(different), sharding.shard_shape(shape), dtype)
        self.size = sum(array.nbytes for array in arrays)
        self.slices: dict[Bounds, np.ndarray] = dict(zip(different, arrays, strict=True))
        self._reads: list[Future[None]] = []

    def start(self, source: WeightSource, readers: ThreadPoolExecutor) -> None:
        destinations = [
            Destination(index=tuple(slice(*bound) for bound in bounds), array=array)
            for bounds, array in self.slices.items()
        ]
        self._reads = [readers.submit(read.run) for read in source.plan(destinations)]

    def finish(self) -> None:
        """Waits until everything is read; raises what a read raised."""
        for read in self._reads:
            read.result()

    def place(self) -> jax.Array:
        """Gives the array on its devices, once it is read."""
        parts = [jax.device_put(self.slices[bounds], device) for device, bounds in self._bounds_of.items()]
        array = jax.make_array_from_single_device_arrays(self._shape, self._sharding, parts)
        return array.block_until_ready()  # until it is sent, its memory is not free for the next


def find_bounds(shape: tuple[int, ...], sharding: Sharding) -> dict[Any, Bounds]:
    """Bounds of the slice that each local device holds of an array."""
    return {
        device: tuple(part.indices(size)[:2] for part, size in zip(index or (), shape, strict=True))
        for device, index in sharding.addressable_devices_indices_map(shape).items()
    }


def _allocate(count: int, shape: tuple[int, ...], dtype: np.dtype) -> list[np.ndarray]:
    """Memory for `count` arrays side by side, in large pages where the system has them."""
    size = math.prod(shape) * dtype.itemsize
    step = max(-(-size // ALIGNMENT), 1) * ALIGNMENT
    memory = mmap.mmap(-1, count * step)
    if len(memory) >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    everything = np.frombuffer(memory, np.uint8)
    return [everything[at : at + size].view(dtype).reshape(shape) for at in range(0, count * step, step)]
