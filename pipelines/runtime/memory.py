"""Device memory in use, so that a swap can prove that the old model is gone."""

import math

import jax


def count_live_bytes() -> int:
    """Bytes of all live device arrays of this process; replicated ones count once per device."""
    # From shapes alone: asking an array for its shards makes new live arrays, and the count would count itself.
    return sum(
        array.dtype.itemsize
        * math.prod(array.sharding.shard_shape(array.shape))
        * len(array.sharding.addressable_devices)
        for array in jax.live_arrays()
    )
