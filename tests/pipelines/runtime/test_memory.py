"""Live bytes come and go with the arrays, whole, split or replicated."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.runtime.memory import count_live_bytes
from pipelines.runtime.mesh import build_mesh


@pytest.mark.parametrize(
    ("spec", "copies"), [(PartitionSpec("tp"), 1), (PartitionSpec(), 8), (PartitionSpec(("dp", "tp")), 1)]
)
def test_a_split_array_counts_once_and_a_replicated_one_per_device(spec: PartitionSpec, copies: int) -> None:
    before = count_live_bytes()
    array = jax.device_put(np.zeros((8, 4), np.float32), NamedSharding(build_mesh("tp=8"), spec))
    assert count_live_bytes() - before == copies * array.nbytes
    array.delete()
    assert count_live_bytes() == before


def test_counting_changes_nothing() -> None:
    array = jax.device_put(np.zeros((8, 4), np.float32))
    assert count_live_bytes() == count_live_bytes()
    array.delete()
