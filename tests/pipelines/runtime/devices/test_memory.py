"""Live bytes come and go with the arrays, whole, split or replicated."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.runtime.devices.memory import count_chips, count_live_bytes, measure_devices
from pipelines.runtime.devices.mesh import build_mesh


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


def test_each_device_tells_what_it_holds() -> None:
    before = {one["id"]: one["used_bytes"] for one in measure_devices()}
    array = jax.device_put(np.zeros((8, 4), np.float32), NamedSharding(build_mesh("tp=8"), PartitionSpec("tp")))
    after = {one["id"]: one["used_bytes"] for one in measure_devices()}
    assert {after[number] - before[number] for number in before} == {array.nbytes // 8}
    array.delete()


def test_a_chip_is_what_is_paid_for() -> None:
    def chip(platform: str, number: int, coords: tuple[int, ...] | None = None) -> SimpleNamespace:
        return SimpleNamespace(platform=platform, id=number, coords=coords, process_index=0)

    assert count_chips([chip("cpu", number) for number in range(8)]) == 1
    assert count_chips([chip("gpu", number) for number in range(2)]) == 2
    assert count_chips([chip("tpu", number, (number // 2, 0, 0)) for number in range(8)]) == 4  # two cores each
