"""Measures how busy the attention kernel keeps the matrix units, from the instructions that the TPU compiler scheduled.

The compiler's cost model does not cover Pallas kernels. But it can dump their final schedule, where every line is one
cycle; a kernel spends its time in the innermost loop. The schedule does not include waiting for memory, which the
kernel hides behind computing. The compiler reads its options from the environment when it is loaded, so each kernel is
compiled in a process of its own (`python -m pipelines.plan.schedule TOPOLOGY QUERIES KEYS STEP HEADS WIDTH`). If the
loop has no more lines than the matrix units need cycles, the matrix units are the bottleneck. The kernel is compiled
with both of its loops: the one that takes maxima, and the shorter one for logits that are small.
"""

import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from pipelines.errors import LumeshError
from pipelines.messages import english
from pipelines.plan.topologies import V4, V5P, V6E, V7X, Chip, Topology, check_compiler, find_devices, find_topology
from pipelines.runtime.devices.platform import extend_environment, prepare_compiler
from pipelines.runtime.kernels.flash import (
    LANES,
    Tiles,
    choose_group,
    count_flops,
    count_vmem_bytes,
    find_vmem_bytes,
    flash_attention,
)

_BUNDLE = re.compile(r"^\s*(0x[0-9a-f]+|0)\s*([A-Z]{2})?:([\s>]*)\{")
TOPOLOGY = "v6e-1"

CANDIDATES = tuple(
    Tiles(queries=queries, keys=4096 // step * step, step=step)
    for queries, step in ((512, 1024), (512, 2048), (1024, 512), (1024, 1024), (2048, 256), (2048, 512), (2048, 1024))
)
_TWO_CORES = (V4.name, V5P.name)  # each core has half of the matrix units
_SIDES = {V6E.name: 256, V7X.name: 256}  # side of a matrix unit; the other chips have 128


@dataclass(frozen=True, kw_only=True)
class Busy:
    """The `cycles` of one step of keys, and its matmuls' share of the peak; and both where logits are small.

    `most` is the highest share that the matrix units' shape allows for heads of this width.
    """

    tiles: Tiles
    cycles: int
    utilisation: float
    small_cycles: int
    small_utilisation: float
    most: float

    @property
    def is_bound_by_units(self) -> bool:
        """Returns whether the matmuls take at least as long as the instructions around them."""
        return self.utilisation >= self.most


def search(*, heads: int, width: int, topology: Topology) -> Iterator[Busy]:
    """Yields a measurement of every candidate that fits in the chip's VMEM.

    Raises LumeshError if the TPU compiler is missing or fails.
    """
    check_compiler()
    assert topology.chip is not None
    vmem_bytes = find_vmem_bytes(topology.chip.name)
    for tiles in CANDIDATES:
        if count_vmem_bytes(tiles, group=choose_group(heads, width), width=width, itemsize=2) <= vmem_bytes:
            yield measure(tiles, heads=heads, width=width, topology=topology)


def measure(tiles: Tiles, *, heads: int, width: int, topology: Topology | None = None) -> Busy:
    """Compiles the kernel for one chip, which takes seconds, and reads its schedule. Raises LumeshError."""
    topology = topology or find_topology(TOPOLOGY)
    chip = topology.chip
    assert chip is not None
    with tempfile.TemporaryDirectory() as folder:
        dump = {"to": folder, "llo_text": "true", "llo_pass_label_regex": ".*final_bundles.*"}
        options = " ".join(f"--xla_jf_dump_{name}={value}" for name, value in dump.items())
        sizes = (topology.name, tiles.queries, tiles.keys, tiles.step, heads, width)
        done = subprocess.run(
            [sys.executable, "-m", "pipelines.plan.schedule", *map(str, sizes)],
            env=extend_environment(LIBTPU_INIT_ARGS=options),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            what = f"{tiles.queries} queries, {tiles.keys} keys, {tiles.step} a step"
            raise LumeshError(english(f"The kernel with {what} is not compiled: {last}"))
        (file,) = (one for one in Path(folder).glob("*flash_attention*final_bundles.txt") if "schedule" not in one.name)
        cycles, small_cycles, *_ = list_loop_cycles(file.read_text("utf-8"))
    group = choose_group(heads, width)
    flops = count_flops(batch=1, heads=group, block=group * width, queries=tiles.queries, keys=tiles.step)
    cores = 2 if chip.name in _TWO_CORES else 1
    at_once = cores * flops * chip.clock_hz / chip.peak_flops  # cycles at the peak
    return Busy(
        tiles=tiles,
        cycles=cycles,
        utilisation=at_once / cycles,
        small_cycles=small_cycles,
        small_utilisation=at_once / small_cycles,
        most=find_most(chip, width=width),
    )


def find_most(chip: Chip, *, width: int) -> float:
    """Returns the share of the peak, in count_flops' FLOPs, that the matrix units' shape allows.

    Logits fill LANES of a unit's rows; the time for sums is proportional to a head's features.
    """
    logits, sums = max(1.0, _SIDES.get(chip.name, LANES) / LANES), min(width, LANES) / LANES
    return 2 / (logits + sums)


def list_loop_cycles(schedule: str) -> list[int]:
    """Returns the cycles of one pass through each innermost loop, the longest first."""
    lengths: dict[int, int] = {}
    first = depth = 0
    for line in schedule.splitlines():
        if (found := _BUNDLE.match(line)) is None:
            continue
        address, here = int(found[1], 16), found[3].count(">")
        if found[2] == "LB":
            first, depth = address, here
        if depth > 1 and here >= depth:
            lengths[first] = address - first + 1
        else:
            depth = 0
    return sorted(lengths.values(), reverse=True)


def _compile(tiles: Tiles, *, heads: int, width: int, topology: Topology) -> None:
    """Compiles the kernel for a few tiles each way, so that none is masked."""
    device = find_devices(topology)[0]
    sharding = SingleDeviceSharding(device)
    query, key = (
        jax.ShapeDtypeStruct((1, 2 * length, heads * width), jnp.bfloat16, sharding=sharding)
        for length in (tiles.queries, tiles.keys)
    )
    vmem_bytes = find_vmem_bytes(device.device_kind)
    options = {"tiles": tiles, "vmem_bytes": vmem_bytes, "bounds_logits": True}
    attend = functools.partial(flash_attention, heads=heads, scale=1.0, **options)
    jax.jit(attend).lower(query, key, key).compile()


if __name__ == "__main__":
    prepare_compiler(cpu_devices=1)
    name, *sizes = sys.argv[1:]
    queries, keys, step, heads, width = map(int, sizes)
    try:
        tiles = Tiles(queries=queries, keys=keys, step=step)
        _compile(tiles, heads=heads, width=width, topology=find_topology(name))
    except (LumeshError, jax.errors.JaxRuntimeError) as error:
        sys.exit(" ".join(str(error).split()))
