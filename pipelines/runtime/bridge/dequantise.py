"""Weights in int8 become what a module computes with, inside the program, just where they are used.

A weight that came with scales (runtime/weights/int8.py) is their product, in the scales' precision. The compiler makes
that product part of the matmul that reads it, so that memory holds, and devices exchange, only the int8.
"""

from collections.abc import Mapping

import jax

from pipelines.runtime.devices.sharding import SCALE, STACK


def dequantise(weights: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the weights without scales: those that had some multiplied by them."""
    return {
        name: weight.astype(scale.dtype) * scale if (scale := weights.get(name + SCALE)) is not None else weight
        for name, weight in weights.items()
        if not name.endswith(SCALE)
    }


def part_stacks(weights: Mapping[str, jax.Array]) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Dequantises all but stacks of layers; returns the weights, and the stacks' scales, which a scan takes apart."""
    scales = {name: value for name, value in weights.items() if name.endswith(SCALE) and STACK in name}
    return dequantise({name: value for name, value in weights.items() if name not in scales}), scales
