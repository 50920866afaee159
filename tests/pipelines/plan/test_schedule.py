"""The kernel's own schedule: the innermost loop is found and counted, and the tiles in use fill the unit well."""

from pathlib import Path

import pytest

from pipelines.errors import LumeshError
from pipelines.plan.schedule import find_most, list_loop_cycles, measure
from pipelines.plan.topologies import V5E, V6E, find_topology
from pipelines.runtime.kernels.flash import Tiles, choose_tiles, find_vmem_bytes

SCHEDULE = """\
= control target key start
LB: loop body
    0   :  { %s1 = smov 0 }
   0x1 LB: > { %s2 = sadd.s32 1, %s1 }
   0x2   : > { %v1 = vld [vmem:%s2] }
   0x3 LB: > > { %v2 = vadd.f32 %v1, %v1 }
   0x4   : > > { %v3 = vmul.f32 %v2, %v1 }
   0x5   : > > { %v4 = vmul.f32 %v3, %v1 }
   0x6   : > { %s3 = sadd.s32 1, %s2 }
   0x7   :  { %s4 = smov 0 }
"""


def test_the_innermost_loop_is_counted() -> None:
    assert list_loop_cycles(SCHEDULE) == [3]


@pytest.mark.tpu_aot
def test_the_tiles_of_a_long_video_run_near_the_two_thirds_of_the_peak_that_heads_of_128_allow() -> None:
    tiles = choose_tiles(75_600, 75_600, group=1, width=128, itemsize=2, vmem_bytes=find_vmem_bytes("TPU v6 lite"))
    assert tiles == Tiles(queries=2048, keys=32768, step=1024)
    busy = measure(tiles, heads=1, width=128)
    assert 0.54 < busy.utilisation < 2 / 3 == busy.most
    assert not busy.is_bound_by_units
    assert busy.small_cycles < 0.95 * busy.cycles


@pytest.mark.tpu_aot
@pytest.mark.parametrize("name", ["v5e-1", "v5p-8"])
def test_units_of_128_are_what_the_kernel_waits_for(name: str) -> None:
    tiles = Tiles(queries=1024, keys=1024, step=512)
    assert measure(tiles, heads=1, width=128, topology=find_topology(name)).is_bound_by_units


def test_large_units_are_filled_by_half_of_the_products_and_narrow_heads_need_less_of_them() -> None:
    shares = [find_most(chip, width=width) for chip in (V6E, V5E) for width in (128, 64)]
    assert shares == pytest.approx([2 / 3, 4 / 5, 1, 4 / 3])


@pytest.mark.tpu_aot
def test_a_kernel_that_is_not_compiled_is_an_error_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "libtpu.so"
    broken.write_text("no library")
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(broken))
    with pytest.raises(LumeshError, match="512 queries, 1024 keys, 512 a step is not compiled: .*libtpu.so") as failure:
        measure(Tiles(queries=512, keys=1024, step=512), heads=1, width=128)
    assert len(str(failure.value).splitlines()) == 1
