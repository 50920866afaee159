"""Device memory in use, so that a swap can prove that the old model is gone, and people can see what is left."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax

HOST = "pinned_host"  # what JAX calls memory of the host that devices copy from and to by themselves


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """One device's memory. Where the backend counts nothing, as on a CPU, `used_bytes` are those of live arrays."""

    id: int
    kind: str
    platform: str
    coords: list[int] | None
    used_bytes: int
    peak_bytes: int | None
    limit_bytes: int | None


def measure_devices() -> list[dict[str, Any]]:
    """Every device as a DeviceMemory, ready for JSON."""
    live = Counter[int]()
    for array in jax.live_arrays():
        if array.sharding.memory_kind == HOST:
            continue
        for device in array.sharding.addressable_devices:
            live[device.id] += _count_shard_bytes(array)
    return [asdict(_measure(device, live[device.id])) for device in jax.local_devices()]


def find_limit(devices: Sequence[Any]) -> int | None:
    """Bytes that each of these holds; None where one does not say, as a CPU."""
    return min((device.memory_stats() or {}).get("bytes_limit", 0) for device in devices) or None


def find_room(devices: Sequence[Any]) -> int | None:
    """Bytes that each of these has free; None where one does not say, as a CPU."""
    found = [device.memory_stats() or {} for device in devices]
    if not all("bytes_limit" in stats for stats in found):
        return None
    return min(stats["bytes_limit"] - stats["bytes_in_use"] for stats in found)


def count_working_bytes(program: Any) -> int:
    """Bytes of a device that a compiled program takes beside its arguments; 0 of some that were not compiled here."""
    found = _analyse(program)
    return found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes if found else 0


def count_code_bytes(program: Any) -> int:
    """Bytes of a compiled program's own code; 0 of some that were not compiled here."""
    found = _analyse(program)
    return found.generated_code_size_in_bytes if found else 0


def _analyse(program: Any) -> Any:
    try:
        return program.memory_analysis()
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        return None


def _measure(device: Any, live_bytes: int) -> DeviceMemory:
    stats = device.memory_stats() or {}
    coords = getattr(device, "coords", None)
    return DeviceMemory(
        id=device.id,
        kind=device.device_kind,
        platform=device.platform,
        coords=list(coords) if coords is not None else None,
        used_bytes=stats.get("bytes_in_use", live_bytes),
        peak_bytes=stats.get("peak_bytes_in_use"),
        limit_bytes=stats.get("bytes_limit"),
    )


def count_chips(devices: Sequence[Any] | None = None) -> int:
    """Number of chips, which is what is paid for: a TPU chip may be several devices, and a split CPU is one."""
    return len({_name_chip(device) for device in (jax.devices() if devices is None else devices)})


def _name_chip(device: Any) -> Any:
    if device.platform == "cpu":
        return "cpu"
    return device.process_index, tuple(device.coords) if device.platform == "tpu" else device.id


def count_live_bytes() -> int:
    """Bytes of all live device arrays of this process; replicated ones count once per device."""
    return sum(_count_shard_bytes(array) * len(array.sharding.addressable_devices) for array in jax.live_arrays())


def _count_shard_bytes(array: jax.Array) -> int:
    # From shapes alone: asking an array for its shards makes new live arrays, and the count would count itself.
    return array.dtype.itemsize * math.prod(array.sharding.shard_shape(array.shape))
