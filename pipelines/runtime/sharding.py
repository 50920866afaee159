"""Sharding rules as data: an ordered list of (pattern, PartitionSpec), the first match wins.

A weight without a rule is an error, so that no large tensor ends up replicated by accident: a family that replicates
says so with a rule.

Rules speak of one layer. A stack of layers (torch_bridge.ScannedLayers) is placed like one of them, whole along its
first axis.
"""

import math
import re
from collections.abc import Mapping, Sequence

from jax.sharding import Mesh, NamedSharding, PartitionSpec

Rules = Sequence[tuple[str, PartitionSpec]]

STACK = ".every_layer."  # in the name of a stack


class ShardingRuleError(AssertionError):
    """A rule that matches nothing, a weight that no rule names, or a split that does not divide the weight."""


def apply_rules(rules: Rules, shapes: Mapping[str, tuple[int, ...]], mesh: Mesh) -> dict[str, NamedSharding]:
    """Name -> sharding for every weight. Raises ShardingRuleError for a weight without a rule or an uneven split."""
    patterns = [(re.compile(pattern), spec) for pattern, spec in rules]
    shardings = {}
    for name, shape in shapes.items():
        spec = next((spec for pattern, spec in patterns if pattern.search(name)), None)
        if spec is None:
            raise ShardingRuleError(f"no sharding rule names {name} {shape}")
        if STACK in name:
            spec = PartitionSpec(None, *spec)
        for size, axis in zip(shape, spec, strict=False):
            parts = math.prod(mesh.shape[one] for one in (axis if isinstance(axis, tuple) else (axis,)) if one)
            if size % parts:
                raise ShardingRuleError(f"{name} {shape} does not divide into {parts} parts as {spec} asks")
        shardings[name] = NamedSharding(mesh, spec)
    return shardings


def find_unused_rules(rules: Rules, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Patterns that win no weight: typing mistakes, or rules hidden by an earlier one."""
    used = set()
    for name in shapes:
        used.add(next((pattern for pattern, _ in rules if re.search(pattern, name)), None))
    return [pattern for pattern, _ in rules if pattern not in used]


def batch_class(images: int) -> int:
    """Images per program: the next power of two, so that few programs serve every batch size."""
    return 1 << (images - 1).bit_length()
