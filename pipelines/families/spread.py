"""Chooses a mesh for data parallelism: `dp` as large as possible, `tp` as small as the weights' size allows.

A batch as large as `dp` then gives more outputs an hour than all chips working on one output; each takes longer.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from pipelines.families.protocol import Parts
from pipelines.runtime.devices.memory import find_limit
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.devices.offload import measure

_WEIGHTS_SHARE = 0.6  # of a chip's memory that weights may take before they are split


def spread(
    describe: Callable[[Mesh], Parts],
    devices: Sequence[Any] | None,
    *,
    hbm_bytes: int | None,
    max_batch_size: int,
) -> dict[str, int]:
    """Returns axes and sizes for `devices` with `hbm_bytes` each (None: unlimited), or for this machine's devices.

    `describe` returns the model's parts on a mesh, with their weights' sizes.
    """
    if devices is None:
        devices = jax.devices()
        hbm_bytes = find_limit(devices)
    limit = math.inf if hbm_bytes is None else hbm_bytes * _WEIGHTS_SHARE
    tp = 1
    while tp < len(devices):
        parts = describe(build_mesh(f"dp={len(devices) // tp},tp={tp}", devices=devices))
        if sum(map(measure, parts.weights.values())) <= limit:
            break
        tp *= 2
    dp = min(len(devices) // tp, max_batch_size)
    return {"dp": dp, "sp": len(devices) // (tp * dp), "tp": tp}
