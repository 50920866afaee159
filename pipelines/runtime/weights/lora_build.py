"""The parts of one adapter, as a file holds them, become an update of a weight and of its bias.

Formulas are those of peft and LyCORIS, which write these files: low-rank pairs times alpha over rank (with the middle
matrix of a Tucker decomposition for convolutions), LoHa (arXiv 2108.06098), LoKr (arXiv 2309.14859), DoRA (arXiv
2402.09353), and LyCORIS' full differences.
Not here: computing slices of updates (lora_update.py), files and names (lora.py).
"""

import math
from collections.abc import Mapping, Sequence
from typing import NoReturn, cast

import numpy as np

from pipelines.runtime.weights.lora_update import (
    Decomposed,
    Delta,
    Difference,
    ExchangedHalves,
    Hadamard,
    Kronecker,
    LowRank,
    SomeRows,
    Update,
)

Parts = Mapping[str, np.ndarray]
"""Part (pipelines/loras/tensors.py) -> its fp32 values."""

WEIGHT, BIAS = "weight", "bias"
MODULATION = "scale_shift_table"  # of a block of a transformer; the few-step LoRAs of Wan bring its `diff_m`


class HalfError(Exception):
    """A part without the one that belongs to it."""


class JointLengthsError(Exception):
    """A DoRA of several weights, whose lengths of columns are taken over the rows of all of them together."""


class MisfitError(Exception):
    """An adapter for a weight of the shape `found`."""

    def __init__(self, found: tuple[int, ...]) -> None:
        super().__init__(str(found))
        self.found = found


def find_rank(parts: Parts) -> int:
    """Returns the rank that an alpha counts for; 0 where there is none, as in a LoKr of two whole factors."""
    names = ("down", "hada_w1_b", "lokr_w2_b", "lokr_w1_b")
    return next((len(parts[name]) for name in names if name in parts), 0)


def build(parts: Parts, shapes: Mapping[str, tuple[int, ...]], *, factor: float, scale: float) -> dict[str, Update]:
    """Builds the updates of a layer's weight, bias and modulation, of which `shapes` has those that exist.

    `factor` is alpha over rank, `scale` the strength. Raises HalfError, and MisfitError when sizes differ.
    """
    updates: dict[str, Update] = {}
    if (delta := _build_weight(parts, shapes.get(WEIGHT, ()), factor * scale, scale)) is not None:
        updates[WEIGHT] = _decompose(delta, parts, shapes[WEIGHT])
    elif parts.keys() & {"magnitude", "dora_scale"}:
        raise HalfError
    for name, strength in (("up_bias", factor * scale), ("diff_b", scale), ("b_norm", scale)):
        if name in parts:
            updates[BIAS] = _build_difference(parts[name], shapes.get(BIAS, ()), strength)
    if "diff_m" in parts:
        updates[MODULATION] = _build_difference(parts["diff_m"], shapes.get(MODULATION, ()), scale)
    return updates


def _build_weight(parts: Parts, shape: tuple[int, ...], scaled: float, scale: float) -> Delta | None:
    if "down" in parts or "up" in parts:
        up, down = _take(parts, "up"), _take(parts, "down")
        if "mid" in parts:  # x -> down -> mid -> up are three convolutions, of which mid has the kernel
            down = np.einsum("abkl,bi->aikl", parts["mid"], down.reshape(len(down), -1))
        return _pair(up, down, shape, scaled)
    if any(name.startswith("hada_") for name in parts):
        first, second = (_build_factor(parts, number, shape) for number in "12")
        return Hadamard(first=LowRank(up=first.up, down=first.down, scale=scaled), second=second)
    if any(name.startswith("lokr_") for name in parts):
        return _build_kronecker(parts, shape, scaled)
    for name in ("diff", "w_norm"):
        if name in parts:
            return _build_difference(parts[name], shape, scale)
    return None


def _build_factor(parts: Parts, number: str, shape: tuple[int, ...]) -> LowRank:
    """Builds one of the two matrices of a LoHa."""
    up, down = _take(parts, f"hada_w{number}_a"), _take(parts, f"hada_w{number}_b")
    if (core := parts.get(f"hada_t{number}")) is not None:
        up, down = up.T, np.einsum("ijkl,jr->irkl", core, down)
    return _pair(up, down, shape, 1.0)


def _build_kronecker(parts: Parts, shape: tuple[int, ...], scale: float) -> Kronecker:
    left, right = _build_whole(parts, "lokr_w1"), _build_whole(parts, "lokr_w2")
    kernel = shape[2:]
    if left.ndim < 2 or right.ndim < 2 or right[0].size % math.prod(kernel):
        raise MisfitError((len(left) * len(right), left[0].size * right[0].size))
    right = right.reshape(len(right), -1, *kernel)
    found = (left.shape[0] * right.shape[0], left.shape[1] * right.shape[1], *kernel)
    if found != shape:
        raise MisfitError(found)
    return Kronecker(left=left, right=right, scale=scale)


def _build_whole(parts: Parts, name: str) -> np.ndarray:
    """Builds one factor of a LoKr, which is stored whole or as a pair."""
    if name in parts:
        return parts[name]
    first, second = _take(parts, f"{name}_a"), _take(parts, f"{name}_b")
    if name == "lokr_w2" and (core := parts.get("lokr_t2")) is not None:
        return np.einsum("ijkl,ip,jr->prkl", core, first, second)
    return first @ second.reshape(len(second), -1)


def _pair(up: np.ndarray, down: np.ndarray, shape: tuple[int, ...], scale: float) -> LowRank:
    """Builds a pair; 1x1 convolutions may come as matrices, and the other way round."""
    rank, rows = len(down) if down.ndim else 0, len(up) if up.ndim else 0
    fits = shape and rank and rows == shape[0]
    if not fits or up.size != rows * rank or down.size != rank * math.prod(shape[1:]):
        raise MisfitError((rows, *down.shape[1:]))
    return LowRank(up=up.reshape(rows, rank), down=down.reshape(rank, *shape[1:]), scale=scale)


def _build_difference(values: np.ndarray, shape: tuple[int, ...], scale: float) -> Difference:
    if not shape or values.size != math.prod(shape):
        raise MisfitError(values.shape)
    return Difference(values=values.reshape(shape), scale=scale)


def _decompose(delta: Delta, parts: Parts, shape: tuple[int, ...]) -> Update:
    """Builds a DoRA of a delta with a magnitude: one value a row, or LyCORIS' (1, columns, ...) with one a column."""
    magnitude = parts.get("magnitude", parts.get("dora_scale"))
    if magnitude is None:
        return delta
    of_columns = "magnitude" not in parts and magnitude.ndim > 1 and len(magnitude) == 1 < shape[0]
    if magnitude.size != shape[1 if of_columns else 0]:
        raise MisfitError(magnitude.shape)
    return Decomposed(delta=delta, magnitude=magnitude.reshape(-1), shape=shape, of_columns=of_columns)


def deal_out(update: Update, shapes: Sequence[tuple[int, ...]]) -> list[Update]:
    """Deals the rows of an update out to the weights of these shapes, in order.

    Raises JointLengthsError for a DoRA of columns: a weight is changed without sight of the others.
    """
    if len(shapes) == 1:
        return [update]
    if isinstance(update, Decomposed) and update.of_columns:
        raise JointLengthsError
    dealt: list[Update] = []
    start = 0
    for shape in shapes:
        if isinstance(update, Decomposed):
            magnitude = update.magnitude[start : start + shape[0]]
            dealt.append(Decomposed(delta=SomeRows(whole=update.delta, start=start), magnitude=magnitude, shape=shape))
        else:
            dealt.append(SomeRows(whole=cast(Delta, update), start=start))
        start += shape[0]
    return dealt


def exchange_halves(update: Update, rows: int) -> Update:
    """Returns an update of which the first half of the `rows` and the second one change places."""
    if not isinstance(update, Decomposed):
        return ExchangedHalves(whole=cast(Delta, update), rows=rows)
    delta = ExchangedHalves(whole=update.delta, rows=rows)
    magnitude = update.magnitude if update.of_columns else np.roll(update.magnitude, rows // 2)
    return Decomposed(delta=delta, magnitude=magnitude, shape=update.shape, of_columns=update.of_columns)


def _take(parts: Parts, name: str) -> np.ndarray:
    return parts[name] if name in parts else _refuse_half()


def _refuse_half() -> NoReturn:
    raise HalfError
