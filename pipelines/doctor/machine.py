"""What can be said of a machine without opening its devices: versions, the chips on its bus, who holds them, the disk.

JAX is not imported here: that would take the chips, which the checks need (child.py).
"""

import os
import platform as python_platform
import shutil
from collections import Counter
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pipelines.runtime.devices.platform import (
    CUDA_PLUGINS,
    GPU_DEVICE_FILES,
    TPU_DEVICE_FILES,
    find_holders,
    list_tpu_files,
)

PACKAGES = ("jax", "jaxlib", "libtpu", *CUDA_PLUGINS, "torch", "torchax", "diffusers", "transformers")
_VENDORS = ("0x1ae0", "0x10de")  # Google and NVIDIA, in the PCI IDs
_LOCK = Path("/tmp/libtpu_lockfile")
LITTLE_DISK = 5 * 10**9
"""Bytes below which compiled programs, outputs and a download would soon fill the disk."""


def read_versions() -> dict[str, str]:
    """Returns the version of Python and of each package that is installed."""
    found = {"python": python_platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def identify_hardware(*, bus: Path = Path("/sys/bus/pci/devices")) -> str:
    """Returns the accelerators on the bus, such as `8 x 1ae0:006f`; empty where there is none, or none shows.

    With it a chip is known again before anything opens it. A machine whose bus is hidden, as in some containers, is
    known by its device files instead.
    """
    kinds = Counter[str]()
    for device in sorted(bus.glob("*")) if bus.is_dir() else []:
        vendor, kind = _read(device / "vendor"), _read(device / "device")
        # NVIDIA's sound and USB devices on the same card are none; displays and 3D controllers begin with 0x03.
        if vendor in _VENDORS and (vendor != _VENDORS[1] or _read(device / "class").startswith("0x03")):
            kinds[f"{vendor.removeprefix('0x')}:{kind.removeprefix('0x')}"] += 1
    if kinds:
        return ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items()))
    files = [*list_tpu_files(), *sorted(map(str, Path("/dev").glob(GPU_DEVICE_FILES)))]
    return ", ".join(files)


def _read(file: Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The data directory's disk. `unwritable` are its folders that this user may not write to."""

    folder: str
    free_bytes: int
    total_bytes: int
    unwritable: tuple[str, ...]

    @property
    def is_little(self) -> bool:
        return self.free_bytes < LITTLE_DISK


def look_at_disk(data_dir: Path) -> Disk:
    """Looks at the data directory, or at the nearest folder above it that is there."""
    nearest = next(folder for folder in (data_dir, *data_dir.parents) if folder.is_dir())
    usage = shutil.disk_usage(nearest)
    parts = [nearest]
    if nearest == data_dir:
        parts += [folder for name in ("cache", "models", "outputs", "loras") if (folder := data_dir / name).is_dir()]
    closed = tuple(str(folder) for folder in parts if not os.access(folder, os.R_OK | os.W_OK | os.X_OK))
    return Disk(folder=str(data_dir), free_bytes=usage.free, total_bytes=usage.total, unwritable=closed)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may use the chips: their device files, those that this user may not open, and the processes that hold them.

    Processes of other users are only seen by root; `has_lock` says that libtpu's lock file is there.
    """

    files: tuple[str, ...]
    closed: tuple[str, ...]
    holders: tuple[str, ...]
    has_lock: bool


def look_at_access() -> Access:
    """Looks at the device files of TPUs and GPUs and at libtpu's lock."""
    gpus = sorted(map(str, Path("/dev").glob(GPU_DEVICE_FILES)))
    folder = Path(TPU_DEVICE_FILES[1]).parent
    vfio = sorted(map(str, folder.glob("[0-9]*"))) if folder.is_dir() else []
    tpus = [*sorted(map(str, Path("/dev").glob("accel[0-9]*"))), *vfio]
    files = (*tpus, *gpus)
    return Access(
        files=files,
        closed=tuple(file for file in files if not os.access(file, os.R_OK | os.W_OK)),
        holders=tuple(find_holders([*tpus, *([str(_LOCK)] if tpus and _LOCK.exists() else [])])),
        has_lock=_LOCK.exists(),
    )
