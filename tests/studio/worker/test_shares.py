"""Two workers never see the same device."""

from pathlib import Path

import pytest

from studio.worker.shares import ShareError, divide


def _make_gpus(root: Path, count: int) -> None:
    for number in range(count):
        (root / f"proc/driver/nvidia/gpus/0000:0{number}:00.0").mkdir(parents=True)


def _make_chips(root: Path, count: int, *, vendor: str = "0x1ae0") -> None:
    for number in range(count):
        (root / "dev/vfio").mkdir(parents=True, exist_ok=True)
        (root / f"dev/vfio/{number}").touch()
        device = root / f"sys/kernel/iommu_groups/{number}/devices/0000:00:0{number}.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")


def test_one_worker_keeps_what_it_sees(tmp_path: Path) -> None:
    _make_gpus(tmp_path, 4)
    assert divide(1, {}, root=tmp_path) == [{}]


def test_gpus_are_divided_among_workers(tmp_path: Path) -> None:
    _make_gpus(tmp_path, 3)
    assert divide(2, {}, root=tmp_path) == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1,2"}]
    allowed = {"CUDA_VISIBLE_DEVICES": "2, 1"}
    assert divide(2, allowed, root=tmp_path) == [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "1"}]


def test_chips_of_a_tpu_host_are_divided_into_halves(tmp_path: Path) -> None:
    _make_chips(tmp_path, 8)
    first, second = divide(2, {}, root=tmp_path)
    assert first == {
        "TPU_VISIBLE_CHIPS": "0,1,2,3",
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "2,2,1",
        "TPU_PROCESS_BOUNDS": "1,1,1",
    }
    assert second["TPU_VISIBLE_CHIPS"] == "4,5,6,7"


def test_an_older_tpu_has_other_device_files(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for number in range(4):
        (tmp_path / f"dev/accel{number}").touch()
    assert [share["TPU_VISIBLE_CHIPS"] for share in divide(4, {}, root=tmp_path)] == ["0", "1", "2", "3"]


def test_other_makers_devices_are_no_chips(tmp_path: Path) -> None:
    _make_chips(tmp_path, 4, vendor="0x10de")
    assert divide(3, {}, root=tmp_path) == [{}, {}, {}]


@pytest.mark.parametrize("workers", [3, 5, 16])
def test_what_cannot_be_divided_is_said(tmp_path: Path, workers: int) -> None:
    _make_chips(tmp_path, 8)
    with pytest.raises(ShareError, match="TPU chips"):
        divide(workers, {}, root=tmp_path)
