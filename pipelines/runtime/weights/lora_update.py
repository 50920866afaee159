"""What adapters add to a weight, a slice at a time: low-rank pairs, LoHa, LoKr, full differences, and DoRA around them.

A weight's first axis is its rows (outputs); a slice is given with explicit bounds for each of its axes. All arithmetic
is in fp32. Adapters of the same weight are each computed from the checkpoint's own weight and then added up, as peft
does with adapters that are not merged.
Not here: which tensors of a file make an update (lora_build.py), where it is added (lora_merge.py).
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pipelines.runtime.weights.stored import READ_BYTES, Destination, WeightSource

Index = tuple[slice, ...]


class Update(Protocol):
    """Something that changes a weight."""

    def change(self, base: np.ndarray, index: Index, stored: WeightSource) -> np.ndarray:
        """Computes what is added to the slice `base` of the checkpoint's weight `stored`."""
        ...


class Delta(Update, Protocol):
    """An update that does not depend on the weight that it is added to."""

    def compute(self, index: Index) -> np.ndarray:
        """Computes a slice of the update."""
        ...


class _Plain:
    """What all updates have in common that do not look at the weight."""

    def compute(self, index: Index) -> np.ndarray:
        raise NotImplementedError

    def change(self, base: np.ndarray, index: Index, stored: WeightSource) -> np.ndarray:  # noqa: ARG002
        return self.compute(index)


@dataclass(frozen=True, kw_only=True, eq=False)
class LowRank(_Plain):
    """`scale` times `up` (out, rank) times `down` (rank, in, ...)."""

    up: np.ndarray
    down: np.ndarray
    scale: float

    def compute(self, index: Index) -> np.ndarray:
        rows, *rest = index
        down = self.down[:, *rest]
        return self.scale * (self.up[rows] @ down.reshape(len(down), -1)).reshape(-1, *down.shape[1:])


@dataclass(frozen=True, kw_only=True, eq=False)
class Hadamard(_Plain):
    """A LoHa: the elementwise product of two low-rank matrices (FedPara, arXiv 2108.06098; LyCORIS, peft)."""

    first: LowRank
    second: LowRank

    def compute(self, index: Index) -> np.ndarray:
        return self.first.compute(index) * self.second.compute(index)


@dataclass(frozen=True, kw_only=True, eq=False)
class Kronecker(_Plain):
    """A LoKr: `scale` times the Kronecker product of `left` (a, b) and `right` (c, d, ...), of shape (ac, bd, ...).

    As in LyCORIS (arXiv 2309.14859) and peft.
    """

    left: np.ndarray
    right: np.ndarray
    scale: float

    def compute(self, index: Index) -> np.ndarray:
        (rows, columns), rest = index[:2], index[2:]
        height, width = self.right.shape[:2]
        row, column = np.arange(rows.start, rows.stop), np.arange(columns.start, columns.stop)
        left = self.left[np.ix_(row // height, column // width)]
        right = self.right[np.ix_(row % height, column % width)][:, :, *rest]
        return self.scale * left.reshape(*left.shape, *(1 for _ in rest)) * right


@dataclass(frozen=True, kw_only=True, eq=False)
class Difference(_Plain):
    """`scale` times a full difference of the weight, stored as it is."""

    values: np.ndarray
    scale: float

    def compute(self, index: Index) -> np.ndarray:
        return self.scale * self.values[index]


@dataclass(frozen=True, kw_only=True, eq=False)
class SomeRows(_Plain):
    """The rows from `start` on of an update to several weights that the file holds as one."""

    whole: Delta
    start: int

    def compute(self, index: Index) -> np.ndarray:
        rows, *rest = index
        return self.whole.compute((slice(self.start + rows.start, self.start + rows.stop), *rest))


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangedHalves(_Plain):
    """An update whose `rows` the file holds the other way round: the second half first."""

    whole: Delta
    rows: int

    def compute(self, index: Index) -> np.ndarray:
        rows, *rest = index
        half = self.rows // 2
        parts = [
            self.whole.compute((slice(start + shift, stop + shift), *rest))
            for start, stop, shift in (
                (rows.start, min(rows.stop, half), half),
                (max(rows.start, half), rows.stop, -half),
            )
            if start < stop
        ]
        return np.concatenate(parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Decomposed:
    """A DoRA: the weight with `delta` added is brought to the length `magnitude`, row by row or column by column.

    W' = magnitude (W + delta) / |W + delta| (arXiv 2402.09353), with the strength inside delta, as in peft. LyCORIS
    also has columns (`of_columns`), whose lengths are taken over all rows. `shape` is the weight's.
    """

    delta: Delta
    magnitude: np.ndarray
    shape: tuple[int, ...]
    of_columns: bool = False
    _factors: list[np.ndarray] = field(default_factory=list[np.ndarray], init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def change(self, base: np.ndarray, index: Index, stored: WeightSource) -> np.ndarray:
        with self._lock:  # slices of a weight are read by several threads
            if not self._factors:
                self._factors.append(self._find_factors(stored))
        axis = 1 if self.of_columns else 0
        factors = self._factors[0][index[axis]]
        factors = factors.reshape([-1 if number == axis else 1 for number in range(base.ndim)])
        return factors * (base + self.delta.compute(index)) - base

    def _find_factors(self, stored: WeightSource) -> np.ndarray:
        """Computes magnitude over length for every row or column, reading the whole weight in parts."""
        squares: list[np.ndarray] = []
        for rows in _cut_rows(self.shape):
            index = (rows, *(slice(0, size) for size in self.shape[1:]))
            part = np.empty((rows.stop - rows.start, *self.shape[1:]), np.float32)
            for read in stored.plan([Destination(index=index, array=part)]):
                read.run()
            square = np.square(part + self.delta.compute(index))
            axes = tuple(axis for axis in range(square.ndim) if axis != (1 if self.of_columns else 0))
            squares.append(square.sum(axes))
        total = np.sum(squares, axis=0) if self.of_columns else np.concatenate(squares)
        return self.magnitude / np.sqrt(np.maximum(total, np.finfo(np.float32).tiny))


def find_pair(update: Update, rows: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns (up, down) of an update of so many rows that is one pair: (rows, rank) and (rank, in, ...).

    Its scale is in `up`. Of a pair for several weights it is what changes these rows. None for other kinds.
    """
    if isinstance(update, LowRank):
        return update.scale * update.up, update.down
    if not isinstance(update, SomeRows | ExchangedHalves):
        return None
    whole = find_pair(update.whole, rows)
    if whole is None:
        return None
    up, down = whole
    if isinstance(update, ExchangedHalves):
        return np.roll(up, update.rows // 2, axis=0), down
    own = up[update.start : update.start + rows]
    changes = own.any(axis=0)  # a pair of several is theirs one upon the other
    return own[:, changes], down[changes]


def _cut_rows(shape: tuple[int, ...]) -> Iterator[slice]:
    rows, *rest = shape
    step = max(1, READ_BYTES // (4 * int(np.prod(rest))))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
