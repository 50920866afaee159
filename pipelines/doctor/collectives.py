"""Each collective over all devices against numpy: what one device sends has to arrive where it should, to the bit.

Values are whole numbers that name the device and the place they come from, so a wrong link shows as a wrong number.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

WIDTH = 1024
"""Numbers that one device gives another: 4 KiB in fp32, which are several packets of a link."""


def _draw(count: int) -> np.ndarray:
    """(count, count, WIDTH): what device i holds for device j."""
    return np.arange(count * count * WIDTH, dtype=np.float32).reshape(count, count, WIDTH) % 9973


def _expect(name: str, values: np.ndarray) -> np.ndarray:
    """Returns what numpy says that each device holds afterwards, the devices' parts after each other."""
    count = len(values)
    match name:
        case "all-gather":
            return np.concatenate([values] * count)
        case "all-reduce":
            return np.concatenate([values.sum(0, keepdims=True)] * count)
        case "reduce-scatter":
            return values.sum(0)[:, None]
        case "all-to-all":
            return values.swapaxes(0, 1)
        case _:
            return np.roll(values, 1, axis=0)


def _run(name: str, own_1JW: Any, count: int) -> Any:
    match name:
        case "all-gather":
            return jax.lax.all_gather(own_1JW, "all", axis=0, tiled=True)
        case "all-reduce":
            return jax.lax.psum(own_1JW, "all")
        case "reduce-scatter":
            return jax.lax.psum_scatter(own_1JW, "all", scatter_dimension=1, tiled=True)
        case "all-to-all":
            return jax.lax.all_to_all(own_1JW[0], "all", 0, 0, tiled=True)[None]
        case _:
            return jax.lax.ppermute(own_1JW, "all", [(i, (i + 1) % count) for i in range(count)])


NAMES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "permute")


def check(name: str, devices: Sequence[Any], *, disturb: Callable[[Any], Any]) -> str:
    """Runs one collective; returns "" if all is right, else which devices have something else."""
    count = len(devices)
    mesh = Mesh(np.asarray(devices), ("all",))
    values = _draw(count)
    placed = jax.device_put(jnp.asarray(values), NamedSharding(mesh, P("all")))
    run = jax.shard_map(
        lambda own: _run(name, own, count), mesh=mesh, in_specs=P("all"), out_specs=P("all"), check_vma=False
    )
    found = disturb(np.asarray(jax.jit(run)(placed)))
    expected = _expect(name, values)
    if found.shape != expected.shape:
        return f"gave {found.shape} in place of {expected.shape}"
    parts = (one.reshape(count, -1) for one in (found, expected))
    wrong = [str(devices[i].id) for i, (own, wanted) in enumerate(zip(*parts, strict=True)) if (own != wanted).any()]
    return f"wrong on the devices {', '.join(wrong)} of {count}" if wrong else ""
