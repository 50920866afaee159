"""Device memory in use, so that a swap can prove that the old model is gone."""

import jax


def count_live_bytes() -> int:
    """Bytes of all live device arrays of this process; a sharded array counts once, a replicated one per device."""
    return sum(shard.data.nbytes for array in jax.live_arrays() for shard in array.addressable_shards)
