"""Loads one checkpoint repeatedly in a process of its own; reads its task as JSON on stdin, prints its figures.

Each round starts without the files in the page cache (if the file system supports that), and measures a plain read, a
load as models are loaded, and a load from the sharded copy.
"""

import gc
import json
import math
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.commands.bench.process import answer
from pipelines.errors import LumeshError
from pipelines.messages import english
from pipelines.models.catalog import PRESETS_DIR

if TYPE_CHECKING:
    import jax

    from pipelines.runtime.bridge.modules import TracedModule

CONFIG = PRESETS_DIR / "configs" / "flux2-klein-4b" / "transformer" / "config.json"
CONFIG_GB = 7.4
DEVICES = 8  # on a machine with only a CPU
FILE_BYTES = 1e9
BUFFER_BYTES = 2**24
ITEM_BYTES = {"bf16": 2, "fp32": 4}
DTYPE_NAMES = {"bf16": "BF16", "fp32": "F32"}


def run_loads(folder: Path, *, gigabytes: float, rounds: int, mesh_text: str | None, stored: str) -> dict[str, Any]:
    """Writes the checkpoint and measures; imports jax. Raises MeshError, and LumeshError if the disk is too small."""
    from pipelines import registry
    from pipelines.runtime.devices import platform

    platform.split_cpu(DEVICES)
    registry.start_jax(folder / "jax")
    import jax
    import jax.numpy as jnp

    from pipelines.families.flux2 import sharding
    from pipelines.runtime.devices.mesh import build_mesh, describe_mesh
    from pipelines.runtime.weights.components import load_component
    from pipelines.runtime.weights.sharded_copies import SPARE_BYTES
    from pipelines.stages import ignore_progress

    module = build_module(gigabytes * ITEM_BYTES["bf16"] / ITEM_BYTES[stored])
    slices = math.gcd(module.module.config.num_attention_heads, jax.device_count())
    mesh = build_mesh(mesh_text, choose=lambda count: {"tp": slices, "sp": count // slices})
    weights = sum(map(math.prod, module.parameter_shapes().values()))
    check_room(
        folder.parent,
        free=shutil.disk_usage(folder).free,
        checkpoint=weights * ITEM_BYTES[stored],
        layout=weights * ITEM_BYTES["bf16"],
        spare=SPARE_BYTES,
    )
    files = list(write_checkpoint(folder, module, stored))
    size = sum(file.stat().st_size for file in files)

    def load(layouts: Path | None = None) -> dict[str, jax.Array]:
        return load_component(
            folder,
            module,
            mesh=mesh,
            rules=sharding.TRANSFORMER_RULES,
            dtype=jnp.bfloat16,
            variant="",
            on_progress=ignore_progress,
            arrange=sharding.deal_out(module.module, mesh),
            layouts=layouts,
        )

    kept = folder / "layouts"
    load(kept)
    if not any(kept.glob("*.safetensors")):
        raise LumeshError(
            english(f"No layout was kept in {folder.parent}: there is no longer room for it, or it cannot be written."),
            advice=english("Name a --folder on another disk."),
        )
    measures = (
        lambda: {"plain_s": time_cold(read_plainly, files)},
        lambda: measure_load(load, files),
        lambda: {"kept_s": measure_load(lambda: load(kept), list(kept.iterdir()))["load_s"]},
        lambda: {"copied_s": time_cold(Path.read_bytes, files)},
    )
    found: list[dict[str, float]] = [{} for _ in range(rounds)]
    for number, figures in enumerate(found):
        # The order alternates, because the first measurement may get the system's free memory more slowly.
        for measure in measures if number % 2 else reversed(measures):
            figures |= measure()
    medians = {name: statistics.median(one[name] for one in found) for name in found[0]}
    return {
        "gb": size / 1e9,
        "files": len(files),
        "stored": stored,
        "kept_gb": sum(file.stat().st_size for file in kept.iterdir()) / 1e9,
        "mesh": describe_mesh(mesh),
        "gb_per_s": size / 1e9 / medians["load_s"],
        "ratio": medians["plain_s"] / medians["load_s"],
        **medians,
        "beyond_mb": max(one["beyond_mb"] for one in found),
        "rounds": found,
    }


def check_room(folder: Path, *, free: float, checkpoint: float, layout: float, spare: float) -> None:
    """Raises LumeshError if the disk is too small: a sharded copy is kept only if `spare` bytes stay free."""
    needed = checkpoint + layout + spare
    if free < needed:
        raise LumeshError(
            english(
                f"{folder} has {free / 1e9:.1f} GB free; {needed / 1e9:.1f} GB are needed: {checkpoint / 1e9:.1f} for "
                f"the checkpoint, {layout / 1e9:.1f} for its layout and {spare / 1e9:.1f} that must stay free."
            ),
            advice=english("Ask for fewer --gigabytes, or name a --folder on a larger disk."),
        )


def build_module(gigabytes: float) -> "TracedModule":
    """Builds klein's transformer without weights, with heads so wide that its bf16 weights would have this size."""
    from diffusers import Flux2Transformer2DModel

    from pipelines.families.flux2.sharding import scan_layers
    from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta

    config = json.loads(CONFIG.read_text("utf-8"))
    wide = config["attention_head_dim"] * math.sqrt(gigabytes / CONFIG_GB)
    head = max(8, 8 * round(wide / 8))
    config |= {"attention_head_dim": head, "axes_dims_rope": [head // 4] * 4, "joint_attention_dim": 60 * head}
    with parameters_on_meta():
        transformer: Any = Flux2Transformer2DModel.from_config(config)
    scan_layers(transformer)
    return TracedModule(transformer)


def write_checkpoint(folder: Path, module: "TracedModule", stored: str) -> Iterator[Path]:
    """Writes random numbers under diffusers' names, in files of a gigabyte with their index; yields the files."""
    import numpy as np

    from pipelines.runtime.devices.sharding import STACK

    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in module.parameter_shapes().items():
        if STACK in name:
            shapes |= {name.replace(STACK, f".{layer}."): shape[1:] for layer in range(shape[0])}
        else:
            shapes[name] = shape
    groups: list[dict[str, tuple[int, ...]]] = [{}]
    for name in sorted(shapes):
        if groups[-1] and ITEM_BYTES[stored] * sum(map(math.prod, groups[-1].values())) > FILE_BYTES:
            groups.append({})
        groups[-1][name] = shapes[name]
    numbers = np.random.default_rng(0).standard_normal(BUFFER_BYTES // 4, np.float32)
    noise = (numbers if stored == "fp32" else numbers.view(np.uint16)[1::2]).tobytes()
    weight_map = {}
    for number, group in enumerate(groups, start=1):
        file = folder / f"diffusion_pytorch_model-{number:05d}-of-{len(groups):05d}.safetensors"
        weight_map |= dict.fromkeys(group, file.name)
        _write_file(file, group, noise, stored)
        yield file
    index = folder / "diffusion_pytorch_model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), "utf-8")


def _write_file(file: Path, shapes: Mapping[str, tuple[int, ...]], noise: bytes, stored: str) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + ITEM_BYTES[stored] * math.prod(shape)
        header[name] = {"dtype": DTYPE_NAMES[stored], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for at in range(0, end, len(noise)):
            stream.write(noise[: end - at])
        stream.flush()
        os.fsync(stream.fileno())  # pages that are not on disk yet cannot be dropped


def measure_load(load: Callable[[], "dict[str, jax.Array]"], files: list[Path]) -> dict[str, float]:
    """Measures seconds, and the peak of host memory beyond the arrays, in megabytes."""
    forget(files)
    gc.collect()  # jax frees borrowed host memory only occasionally, and on Python's garbage collection
    before = read_resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", "utf-8")  # the peak starts from here
    started = time.perf_counter()
    weights = load()
    seconds = time.perf_counter() - started
    beyond = read_resident("VmHWM") - before - count_host_bytes(weights)
    for array in weights.values():
        array.delete()
    return {"load_s": seconds, "beyond_mb": beyond / 1e6}


def count_host_bytes(weights: "Mapping[str, jax.Array]") -> int:
    """Counts bytes of arrays on CPU devices, which are in this process's memory; devices that share it count once."""
    places = {
        shard.data.unsafe_buffer_pointer(): shard.data.nbytes
        for array in weights.values()
        for shard in array.addressable_shards
        if shard.device.platform == "cpu"
    }
    return sum(places.values())


def read_resident(field: str) -> int:
    """Returns this process's resident bytes, current (VmRSS) or peak (VmHWM); Linux only."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def time_cold(read: Callable[[Path], object], files: list[Path]) -> float:
    forget(files)
    started = time.perf_counter()
    kept = [read(file) for file in files]
    seconds = time.perf_counter() - started
    del kept
    return seconds


def read_plainly(file: Path) -> None:
    buffer = bytearray(BUFFER_BYTES)
    with file.open("rb", buffering=0) as stream:
        while stream.readinto(buffer):
            pass


def forget(files: list[Path]) -> None:
    """Asks the system to drop the files from its page cache."""
    for file in files:
        with file.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _run(task: dict[str, Any]) -> dict[str, Any]:
    return run_loads(
        Path(task["folder"]),
        gigabytes=task["gigabytes"],
        rounds=task["rounds"],
        mesh_text=task["mesh"],
        stored=task["stored"],
    )


if __name__ == "__main__":
    answer(_run)
