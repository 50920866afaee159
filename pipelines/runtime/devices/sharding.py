"""Sharding rules as data: an ordered list of (pattern, PartitionSpec), the first match wins.

A weight without a rule is an error, so that no large tensor ends up replicated by accident: a family that replicates
says so with a rule. The scales of a weight in int8 lie as it does.

Rules speak of one layer. A stack of layers (bridge/modules.ScannedLayers) is placed like one of them, whole along its
first axis.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from jax.sharding import Mesh, NamedSharding, PartitionSpec

Rules = Sequence[tuple[str, PartitionSpec]]

Axes = str | tuple[str, ...] | None
"""An entry of a PartitionSpec: the mesh axes that split one axis of an array."""


class Rows(Protocol):
    """A family's Layout, as far as it counts rows of the denoiser's batch."""

    @property
    def row_count(self) -> int: ...


STACK = ".every_layer."  # in the name of a stack
SCALE = "#scale"
"""After the name of a weight in int8: its scales, with a size of 1 along the axes that share one (weights/int8.py)."""


class ShardingRuleError(AssertionError):
    """Raised for a weight that no rule names, or whose shape a rule does not divide evenly."""


def apply_rules(rules: Rules, shapes: Mapping[str, tuple[int, ...]], mesh: Mesh) -> dict[str, NamedSharding]:
    """Name -> sharding for every weight. Raises ShardingRuleError for a weight without a rule or an uneven split."""
    patterns = [(re.compile(pattern), spec) for pattern, spec in rules]
    shardings = {}
    for name, shape in shapes.items():
        weight = name.removesuffix(SCALE)
        spec = next((spec for pattern, spec in patterns if pattern.search(weight)), None)
        if spec is None:
            raise ShardingRuleError(f"no sharding rule names {name} {shape}")
        if STACK in name:
            spec = PartitionSpec(None, *spec)
        if weight != name:
            spec = PartitionSpec(*(None if size == 1 else axis for size, axis in zip(shape, spec, strict=False)))
        for size, axis in zip(shape, spec, strict=False):
            if size % (parts := count_parts(mesh, axis)):
                raise ShardingRuleError(f"{name} {shape} does not divide into {parts} parts as {spec} asks")
        shardings[name] = NamedSharding(mesh, spec)
    return shardings


def count_parts(mesh: Mesh, axis: Axes) -> int:
    """Into how many parts an axis of a mesh, or several together, split an array."""
    return math.prod(mesh.shape[one] for one in (axis if isinstance(axis, tuple) else (axis,)) if one)


def split_pictures(mesh: Mesh, batch: str | None, *, height: int, width: int) -> tuple[Axes, Axes]:
    """Axes for the rows of pictures, or else for their columns: as many devices as divide them evenly.

    `batch` is the axis that the batch has already. 720p's latents have 90 rows and 160 columns: columns over 8 chips.
    """
    free = tuple(axis for axis in mesh.axis_names if axis != batch)
    for axes in (free, ("sp", "tp"), ("sp",)):
        devices = count_parts(mesh, axes)
        if height % devices == 0:
            return axes, None
        if width % devices == 0:
            return None, axes
    return None, None


def batch_class(images: int) -> int:
    """Images per program: the next power of two, so that few programs serve every batch size."""
    return 1 << (images - 1).bit_length()


def count_at_once(mesh: Mesh, lay_out: Callable[[int], Rows]) -> int:
    """How many outputs a run makes in the time of one; `lay_out(count)` says how many rows so many need.

    As many as `dp` has devices, when a single one's rows leave no device less to do: two devices that share the two
    branches of guidance have none to spare.
    """
    count = mesh.shape["dp"]
    one, many = (_rows_per_device(lay_out(outputs).row_count, count) for outputs in (1, count))
    return count if many <= one else 1


def _rows_per_device(rows: int, devices: int) -> int:
    """Rows that do not divide are done by every device."""
    return rows if rows % devices else rows // devices
