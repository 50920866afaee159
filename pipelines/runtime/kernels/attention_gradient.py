"""Attention whose gradient a TPU computes by a kernel, too: flash.py's forwards, flash_gradient.py's backwards.

Outputs, and the sums that the gradient starts from, carry the name KEPT, or KEPT_OF_FEW where keys are few: what a
rematerialisation may keep.
Not here: which attentions take this way (attention.py).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.sharding import count_parts
from pipelines.runtime.kernels.flash import CHIPS_OF_LARGE_UNITS, LANES, find_vmem_bytes, flash_attention
from pipelines.runtime.kernels.flash_gradient import differentiate

KEPT = "attention"
KEPT_OF_FEW = "attention to few keys"
"""The name where keys are so few, as a text's, that attention takes fewer products than one of its linear layers."""


def attend_with_gradient(
    query_BHLD: jax.Array,
    key_BHLD: jax.Array,
    value_BHLD: jax.Array,
    *,
    scale: float,
    mesh: jax.sharding.Mesh,
    rows: str | None,
    key_lengths: jax.Array | None = None,
    interpret: bool = False,
) -> jax.Array:
    """softmax(q k^T * scale) v, every device of the mesh axis `rows` with its own rows of the batch.

    With `key_lengths` (batch,) queries of a row see as many keys, the first ones: at least flash.py's FIRST_KEYS.
    """
    batch, heads, _, width = query_BHLD.shape
    spec = P(rows) if rows is not None and batch % count_parts(mesh, rows) == 0 else P()
    device_kind = mesh.devices.flat[0].device_kind
    chip: Any = {"vmem_bytes": find_vmem_bytes(device_kind), "has_large_units": device_kind in CHIPS_OF_LARGE_UNITS}
    # Heads that fill a vector side by side stay so: XLA drops these transpositions against those before and after.
    # Others come first, as heads.py takes them apart, each as a row of its own, filled up to whole vectors with zeros.
    is_apart = width >= LANES or LANES % width != 0
    # Of a token: 4 x keys x features for attention, 2 x features x features for a linear layer.
    name = KEPT_OF_FEW if 2 * key_BHLD.shape[2] <= heads * width else KEPT
    attend = _attend(name, heads=1 if is_apart else heads, scale=scale, interpret=interpret, **chip)

    def run(query: jax.Array, key: jax.Array, value: jax.Array, *lengths: jax.Array) -> jax.Array:
        if is_apart:
            repeated = (jnp.repeat(one, heads) for one in lengths)
            apart = (_fill(x.reshape(-1, x.shape[2], width), -width % LANES) for x in (query, key, value))
            return attend(*apart, *repeated)[..., :width].reshape(query.shape)
        merged = (x.swapaxes(1, 2).reshape(x.shape[0], -1, heads * width) for x in (query, key, value))
        out = attend(*merged, *lengths)
        return out.reshape(query.shape[0], -1, heads, width).swapaxes(1, 2)

    arrays = (query_BHLD, key_BHLD, value_BHLD, *(() if key_lengths is None else (key_lengths,)))
    return jax.shard_map(run, mesh=mesh, in_specs=(spec,) * len(arrays), out_specs=spec, check_vma=False)(*arrays)


def _attend(name: str, *, has_large_units: bool, **options: Any) -> Callable[..., jax.Array]:
    """Builds an attention of (batch, length, heads * width) arrays and, perhaps, the rows' own lengths.

    What it keeps for its gradient carries this name.
    """

    @jax.custom_vjp
    def attend(*arrays: jax.Array) -> jax.Array:
        return run(*arrays)[0]

    def run(*arrays: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        query, key, value, *lengths = arrays
        found = flash_attention(query, key, value, key_lengths_B=_take(lengths), tells_sums=True, **options)
        out, sums = (checkpoint_name(x, name) for x in found)
        return out, (*arrays, out, sums)

    def run_back(kept: tuple[jax.Array, ...], gradient: jax.Array) -> tuple[jax.Array | None, ...]:
        query, key, value, *lengths, out, sums = kept
        how: Any = options | {"has_large_units": has_large_units}
        found = differentiate(query, key, value, out, sums, gradient, key_lengths_B=_take(lengths), **how)
        return (*found, *(None for _ in lengths))

    attend.defvjp(run, run_back)
    attended: Any = attend  # its type is lost in custom_vjp
    return attended


def _fill(x_BLC: jax.Array, features: int) -> jax.Array:
    return jnp.pad(x_BLC, ((0, 0), (0, 0), (0, features)))


def _take(lengths: list[jax.Array]) -> jax.Array | None:
    return lengths[0] if lengths else None
