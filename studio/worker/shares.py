"""Divides this machine's accelerators among its workers, by the variables that limit a process to some of them.

JAX takes every device that it sees, so two workers must not see the same one. GPUs are CUDA_VISIBLE_DEVICES; TPU chips
are TPU_VISIBLE_CHIPS with the bounds that libtpu wants for a part of a host
(https://github.com/jax-ml/jax/issues/14977: `TPU_PROCESS_BOUNDS`, and `TPU_CHIPS_PER_PROCESS_BOUNDS` of 1, 2 or 4 chips
as 1,1,1, 1,2,1 or 2,2,1). On the CPU there is nothing to divide. No JAX here: the app asks, which never imports it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.errors import LumeshError
from pipelines.messages import english

CHIP_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1"}
GOOGLE = "0x1ae0"  # PCI vendor


class ShareError(LumeshError):
    """The devices cannot be divided among so many workers."""

    title = english("The devices cannot be divided")


def divide(workers: int, environment: Mapping[str, str], *, root: Path = Path("/")) -> list[dict[str, str]]:
    """Returns each worker's variables; empty for a single worker, and on a machine without accelerators.

    Raises ShareError when there are fewer devices than workers, or when TPU chips do not make equal parts.
    """
    if workers == 1:
        return [{}]
    if gpus := _list_gpus(environment, root):
        return [{"CUDA_VISIBLE_DEVICES": ",".join(share)} for share in _split(gpus, workers, "GPUs")]
    if chips := _list_chips(environment, root):
        return [_limit_tpu(share) for share in _split_chips(chips, workers)]
    return [{} for _ in range(workers)]


def _list_gpus(environment: Mapping[str, str], root: Path) -> list[str]:
    """Lists NVIDIA's GPUs: those that are allowed already, or else those that the driver names."""
    if (allowed := environment.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [one.strip() for one in allowed.split(",") if one.strip() and one.strip() != "-1"]
    driver = root / "proc/driver/nvidia/gpus"
    return [str(number) for number, _ in enumerate(driver.iterdir())] if driver.is_dir() else []


def _list_chips(environment: Mapping[str, str], root: Path) -> list[str]:
    """Lists TPU chips: /dev/accel0 and further, or since v5e Google's devices among /dev/vfio/0 and further."""
    if (allowed := environment.get("TPU_VISIBLE_CHIPS")) is not None:
        return [one.strip() for one in allowed.split(",") if one.strip()]
    count = sum(not one.is_dir() for one in (root / "dev").glob("accel[0-9]*"))
    if not count:
        groups = [one.name for one in (root / "dev/vfio").glob("[0-9]*")]
        count = sum(_is_of_google(root / f"sys/kernel/iommu_groups/{group}/devices") for group in groups)
    return [str(number) for number in range(count)]


def _is_of_google(devices: Path) -> bool:
    return any(file.read_text("utf-8").strip() == GOOGLE for file in devices.glob("*/vendor"))


def _split_chips(chips: Sequence[str], workers: int) -> list[list[str]]:
    shares = _split(chips, workers, "TPU chips")
    sizes = {len(share) for share in shares}
    if len(sizes) > 1 or not sizes <= CHIP_BOUNDS.keys():
        raise ShareError(
            english(f"{len(chips)} TPU chips make no {workers} equal parts of 1, 2 or 4 chips."),
            advice=english("Choose another --workers."),
        )
    return shares


def _split(devices: Sequence[str], workers: int, what: str) -> list[list[str]]:
    """Splits devices into neighbouring ones, whose numbers differ by one at most."""
    if len(devices) < workers:
        raise ShareError(
            english(f"This machine has {len(devices)} {what} for --workers {workers}."),
            advice=english("Each worker needs one of its own: choose a smaller --workers."),
        )
    bounds = [len(devices) * number // workers for number in range(workers + 1)]
    return [list(devices[start:end]) for start, end in zip(bounds, bounds[1:], strict=False)]


def _limit_tpu(share: Sequence[str]) -> dict[str, str]:
    return {
        "TPU_VISIBLE_CHIPS": ",".join(share),
        "TPU_CHIPS_PER_PROCESS_BOUNDS": CHIP_BOUNDS[len(share)],
        "TPU_PROCESS_BOUNDS": "1,1,1",
    }
