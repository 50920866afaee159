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
from pipelines.runtime.weights.stored import Destination, Read, StoredTensor


@dataclass(frozen=True, kw_only=True)
class AdaptedTensor(StoredTensor):
    """A stored tensor that is read with updates added."""

    updates: Sequence[Update]

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Read]:
        for read in super().plan(destinations):
            yield _AdaptedRead(stored=self, destinations=read.destinations, updates=self.updates)


@dataclass(frozen=True, kw_only=True)
class _AdaptedRead(Read):
    updates: Sequence[Update]

    def run(self) -> None:
        exact = [Destination(index=one.index, array=np.empty(one.array.shape, np.float32)) for one in self.destinations]
        Read(stored=self.stored, destinations=exact).run()
        for destination, read in zip(self.destinations, exact, strict=True):
            changes = [update.change(read.array, destination.index, self.stored) for update in self.updates]
            for change in changes:
                np.add(read.array, change, out=read.array)
            np.copyto(destination.array, read.array, casting="unsafe")


def adapt(stored: Mapping[str, StoredTensor], updates: Mapping[str, Sequence[Update]]) -> dict[str, StoredTensor]:
    """`stored`, in which every weight with `updates` is read as the sum of both."""
    return {name: _add(tensor, updates[name]) if name in updates else tensor for name, tensor in stored.items()}


def _add(tensor: StoredTensor, updates: Sequence[Update]) -> AdaptedTensor:
    return AdaptedTensor(
        file=tensor.file, dtype=tensor.dtype, shape=tensor.shape, offset=tensor.offset, updates=updates
    )
