"""How weights of 3 x 3 convolutions lie for the kernel of conv3x3.py: in blocks, a matrix a block, or as they are.

A model that does not learn has them blocked when it is loaded, or kept as matrices (weights/permuted.py). Where they
change with every step they stay as they are, and the kernel reads them so.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

LANES = 128
TAPS = 3  # of rows and of columns
BLOCKED_NDIM = 6
FLAT_NDIM = 3


def block_taps(weight_OITHW: jax.Array) -> jax.Array:
    """Blocks a weight for the kernel, in bf16: (output blocks, frame taps, row taps, inputs, column taps, LANES)."""
    outputs, inputs, time_taps, _, _ = weight_OITHW.shape
    blocks, filled = pl.cdiv(outputs, LANES), fill(inputs)
    pads = ((0, blocks * LANES - outputs), (0, filled - inputs), (0, 0), (0, 0), (0, 0))
    weight = jnp.pad(weight_OITHW.astype(jnp.bfloat16), pads)
    return weight.reshape(blocks, LANES, filled, time_taps, TAPS, TAPS).transpose(0, 3, 4, 2, 5, 1)


def order_taps(weight_OIHW: jax.Array, *, turned: bool = False) -> jax.Array:
    """Orders a weight for the kernel as it is, in bf16: (row taps, column taps, outputs, inputs).

    What is added up, its inputs, or its outputs if `turned`, is filled up with zeros to whole vectors of lanes. On TPU
    the order is that in which such a weight lies anyhow, so nothing is moved.
    """
    weight = weight_OIHW.astype(jnp.bfloat16).transpose(2, 3, 0, 1)
    *_, outputs, inputs = weight.shape
    pads = (fill(outputs) - outputs if turned else 0, 0 if turned else fill(inputs) - inputs)
    return jnp.pad(weight, ((0, 0), (0, 0), (0, pads[0]), (0, pads[1]))) if any(pads) else weight


def restore_taps(ordered: jax.Array, *, inputs: int, outputs: int, turned: bool) -> jax.Array:
    """Turns an ordered weight back into (O, I, 3, 3), of the convolution that it stands for."""
    taps = ordered[::-1, ::-1].swapaxes(2, 3) if turned else ordered
    return taps.transpose(2, 3, 0, 1)[:outputs, :inputs]


def find_flat_shape(weight_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """The shape in which a blocked weight of one frame (O, I, 3, 3) is kept: a matrix a block, without padding."""
    outputs, inputs, *_ = weight_shape
    return (pl.cdiv(outputs, LANES), TAPS * fill(inputs), TAPS * LANES)


def unflatten_taps(flat: jax.Array) -> jax.Array:
    """Turns a weight kept in the shape of `find_flat_shape` into what `block_taps` gives."""
    return flat.reshape(len(flat), 1, TAPS, -1, TAPS, LANES)


def unblock_taps(blocked: jax.Array, *, inputs: int, outputs: int) -> jax.Array:
    """Turns a blocked weight back into (O, I, T, 3, 3)."""
    blocks, time_taps, _, filled, _, _ = blocked.shape
    weight = blocked.transpose(0, 5, 3, 1, 2, 4).reshape(blocks * LANES, filled, time_taps, TAPS, TAPS)
    return weight[:outputs, :inputs]


def fill(channels: int) -> int:
    """Rounds channels up to whole vectors of lanes."""
    return LANES * pl.cdiv(channels, LANES)
