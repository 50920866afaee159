"""Which axis of which weight is split over the devices while training (FSDP: Zhao et al. 2023).

Masters, optimizer states and averages are always split where they divide; frozen weights only where every device
holding all of them would leave too little room.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.runtime.devices.sharding import STACK

AXIS = "dp"
FEWEST_ELEMENTS = 2**16
"""Smaller arrays are on every device: splitting them saves nothing."""
MATRIX_NDIM = 2  # of a linear layer's weight; those of convolutions have more


def split(name: str, shape: tuple[int, ...], mesh: Mesh) -> NamedSharding:
    """Splits the largest axis that divides, never that of a stack's layers; else the array is on every device.

    Of a convolution's weight (O, I, ...) it is the outputs, where they divide: it lies with its inputs along lanes, and
    is gathered along the outputs without being put in order again.
    """
    parts = mesh.shape[AXIS]
    first = 1 if STACK in name else 0
    axes = [axis for axis in range(first, len(shape)) if shape[axis] % parts == 0]
    if parts == 1 or not axes or math.prod(shape) < FEWEST_ELEMENTS:
        return NamedSharding(mesh, PartitionSpec())
    is_convolution = len(shape) - first > MATRIX_NDIM
    chosen = axes[0] if is_convolution else max(axes, key=lambda axis: shape[axis])
    return NamedSharding(mesh, PartitionSpec(*(AXIS if axis == chosen else None for axis in range(len(shape)))))


def split_all(weights: Mapping[str, Any], mesh: Mesh) -> dict[str, NamedSharding]:
    """Returns name -> sharding of arrays, or of anything with a shape."""
    return {name: split(name, tuple(value.shape), mesh) for name, value in weights.items()}


def place_state(state: Any, mesh: Mesh) -> Any:
    """Returns the shardings of an optimizer's state: each leaf as the weight whose name its path ends in."""

    def choose(path: Any, leaf: Any) -> NamedSharding:
        name = next((entry.key for entry in reversed(path) if isinstance(entry, jax.tree_util.DictKey)), "")
        return split(str(name), tuple(leaf.shape), mesh)

    return jax.tree_util.tree_map_with_path(choose, state)


def rows(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of a batch: its first axis over all devices."""
    return NamedSharding(mesh, PartitionSpec(AXIS))


def find_own_rows(mesh: Mesh, count: int) -> slice:
    """Returns which of a batch's rows the devices of this host hold, which are neighbours as the devices are."""
    parts = [
        index[0].indices(count) for index in rows(mesh).addressable_devices_indices_map((count,)).values() if index
    ]
    start, stop = min(part[0] for part in parts), max(part[1] for part in parts)
    assert sum(one - two for two, one, _ in {*parts}) == stop - start, "a host's devices are neighbours along dp"
    return slice(start, stop)
