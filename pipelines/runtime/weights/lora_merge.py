"""A stored weight that is read with updates added to it.

The sum is made in fp32 for just the slice that is asked for, while it is read: whatever the order in which slices are
put together afterwards (permuted.py) and wherever they go (shard_load.py), none of that has to know of updates.
Not here: the kinds of updates (lora_update.py), what a LoRA file says (lora.py), which updates a model has now
(lora_state.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.runtime.weights.lora_update import Update
from pipelines.runtime.weights.stored import Destination, WeightSource, cut_rows

_EXACT_BYTES = np.dtype(np.float32).itemsize


@dataclass(frozen=True, kw_only=True)
class AdaptedTensor:
    """A weight that is read with updates added."""

    source: WeightSource
    updates: Sequence[Update]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    def plan(self, destinations: Sequence[Destination]) -> Iterator["_AdaptedRead"]:
        for pieces in cut_rows(self.shape, _EXACT_BYTES, destinations):
            yield _AdaptedRead(source=self.source, destinations=pieces, updates=self.updates)


@dataclass(frozen=True, kw_only=True)
class _AdaptedRead:
    source: WeightSource
    destinations: Sequence[Destination]
    updates: Sequence[Update]

    def run(self) -> None:
        exact = [Destination(index=one.index, array=np.empty(one.array.shape, np.float32)) for one in self.destinations]
        for read in self.source.plan(exact):
            read.run()
        for destination, read in zip(self.destinations, exact, strict=True):
            changes = [update.change(read.array, destination.index, self.source) for update in self.updates]
            for change in changes:
                np.add(read.array, change, out=read.array)
            np.copyto(destination.array, read.array, casting="unsafe")


def adapt(stored: Mapping[str, WeightSource], updates: Mapping[str, Sequence[Update]]) -> dict[str, WeightSource]:
    """`stored`, in which every weight with `updates` is read as the sum of both."""
    return {
        name: AdaptedTensor(source=source, updates=updates[name]) if name in updates else source
        for name, source in stored.items()
    }
