"""The machines a plan can be made for: how many chips, how much a chip holds, and how fast it is.

Clocks are peak FLOP/s divided by the FLOPs of the matrix units' multiply-adds per cycle. Bandwidth between chips is the
sum of a chip's links; the TPU documentation gives it in bits per second. HBM is the amount that the compiler lets a
program use, taken from its refusals.
"""

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from pipelines.errors import LumeshError, RecipeError
from pipelines.messages import say

GIB = 1 << 30


TPU_SOURCE = say("Estimated by the TPU compiler")
CPU_SOURCE = say("Compiled for CPU: memory only")
"""How a plan for a machine is made, as people read it."""


@dataclass(frozen=True, kw_only=True)
class Chip:
    """A TPU chip: `peak_flops` in bf16, `ici_bytes_per_s` over all links, `hbm_bytes_per_s` to or from its memory.

    A chip of two `cores` is one device, but a kernel whose steps must be in order runs on one of them; one of two
    `devices` is two, and the figures are those of a device. `peak_flops_fp8` is None where fp8 is no faster than bf16.
    `hourly_price` of a chip in US dollars is what Google listed on demand for the USA in 2025, None where it listed
    nothing; whoever rents gives their own.
    """

    name: str
    hbm_bytes: int
    clock_hz: float
    peak_flops: float
    hbm_bytes_per_s: float
    ici_bytes_per_s: float
    hourly_price: float | None
    cores: int = 1
    devices: int = 1
    peak_flops_fp8: float | None = None


# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
V4 = Chip(
    name="TPU v4",
    hbm_bytes=int(30.75 * GIB),
    clock_hz=1.05e9,
    peak_flops=275e12,
    hbm_bytes_per_s=1.23e12,
    ici_bytes_per_s=300e9,
    hourly_price=3.22,
    cores=2,
)
V5E = Chip(
    name="TPU v5e",
    hbm_bytes=int(15.75 * GIB),
    clock_hz=1.5e9,
    peak_flops=197e12,
    hbm_bytes_per_s=0.82e12,
    ici_bytes_per_s=200e9,
    hourly_price=1.20,
)
V5P = Chip(
    name="TPU v5p",
    hbm_bytes=int(95.74 * GIB),
    clock_hz=1.75e9,
    peak_flops=459e12,
    hbm_bytes_per_s=2.77e12,
    ici_bytes_per_s=600e9,
    hourly_price=4.20,
    cores=2,
)
V6E = Chip(
    name="TPU v6e",
    hbm_bytes=int(31.25 * GIB),
    clock_hz=1.75e9,
    peak_flops=918e12,
    hbm_bytes_per_s=1.64e12,
    ici_bytes_per_s=450e9,
    hourly_price=2.70,
)
# https://docs.cloud.google.com/tpu/docs/tpu7x gives for a chip, which is two devices: 2307 TFLOP/s in bf16, 4614 in
# fp8, 192 GiB of HBM at 7380 GB/s, and 1200 GB/s over its links, both directions together. Each device is counted with
# half of these, and the faster way between the two is left out. That a core does 2^19 FLOP a cycle in bf16, as v6e's,
# and twice as many in fp8 is an assumption, by which the clock is 2.2 GHz: the compiler's own cycles of large matmuls
# are 0.8 and 0.94 of that.
V7X = Chip(
    name="TPU7x",
    hbm_bytes=int(94.75 * GIB),
    clock_hz=2.2e9,
    peak_flops=2307e12 / 2,
    peak_flops_fp8=4614e12 / 2,
    hbm_bytes_per_s=7380e9 / 2,
    ici_bytes_per_s=600e9 / 2,
    hourly_price=None,
    devices=2,
)

CHIP_OF_KIND = {
    "TPU v4": "TPU v4",
    "TPU v5 lite": "TPU v5e",
    "TPU v5e": "TPU v5e",
    "TPU v5": "TPU v5p",
    "TPU v5p": "TPU v5p",
    "TPU v6 lite": "TPU v6e",
    "TPU v6e": "TPU v6e",
    "TPU7x": "TPU7x",
}
"""The chips' names by JAX's names of their devices."""


def find_chip(kind: str) -> Chip | None:
    """Returns the chip whose devices JAX calls this; None for a CPU, a GPU, and a TPU that is not known."""
    return next((chip for chip in (V4, V5E, V5P, V6E, V7X) if chip.name == CHIP_OF_KIND.get(kind)), None)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A machine: `layout` and `options` name it to JAX's compile-only topologies; without a chip it is this CPU."""

    name: str
    chips: int
    chip: Chip | None = None
    layout: str = ""
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def devices(self) -> int:
        """Returns how many devices JAX shows, which is what a mesh is made of."""
        return self.chips * (self.chip.devices if self.chip else 1)

    @property
    def title(self) -> str:
        """Returns a title for people: `8 chips TPU v6e`."""
        if self.chip is None:
            return f"{self.chips} CPU {'device' if self.chips == 1 else 'devices'}"
        return f"{self.chips} {'chip' if self.chips == 1 else 'chips'} {self.chip.name}"


_ONE_CHIP = {"chips_per_host_bounds": (1, 1, 1)}
_ONE_HOST = {
    "chips_per_host_bounds": (2, 4, 1)
}  # as in machines of eight chips; the default would be two hosts of four

# v4, v5p and v7x are named by TensorCores, two to a chip; the others by chips.
TOPOLOGIES = {
    topology.name: topology
    for topology in (
        Topology(name="v4-8", chip=V4, chips=4, layout="v4:2x2x1", options={"chip_config_name": "megacore"}),
        Topology(name="v5e-1", chip=V5E, chips=1, layout="v5e:1x1", options=_ONE_CHIP),
        Topology(name="v5e-4", chip=V5E, chips=4, layout="v5e:2x2"),
        Topology(name="v5e-8", chip=V5E, chips=8, layout="v5e:2x4", options=_ONE_HOST),
        Topology(name="v6e-1", chip=V6E, chips=1, layout="v6e:1x1", options=_ONE_CHIP),
        Topology(name="v6e-4", chip=V6E, chips=4, layout="v6e:2x2"),
        Topology(name="v6e-8", chip=V6E, chips=8, layout="v6e:2x4", options=_ONE_HOST),
        Topology(name="v5p-8", chip=V5P, chips=4, layout="v5p:2x2x1"),
        Topology(name="v7x-8", chip=V7X, chips=4, layout="tpu7x:2x2x1"),
        Topology(name="cpu-1", chips=1),
        Topology(name="cpu-8", chips=8),
    )
}


LARGEST_HOST = "v6e-8"
"""The topology that is planned for where none is asked: the newest machine of one host with a list price."""

# Of several hosts, with four chips each: for training alone.
SLICES = {
    topology.name: topology
    for topology in (
        Topology(name="v5e-16", chip=V5E, chips=16, layout="v5e:4x4"),
        Topology(name="v6e-16", chip=V6E, chips=16, layout="v6e:4x4"),
        Topology(name="v6e-32", chip=V6E, chips=32, layout="v6e:4x8"),
        Topology(name="v5p-16", chip=V5P, chips=8, layout="v5p:2x2x2"),
        Topology(name="v5p-64", chip=V5P, chips=32, layout="v5p:2x4x4"),
    )
}


def find_topology(name: str, *, trains: bool = False) -> Topology:
    """Returns a topology by name, for training also one of SLICES; raises RecipeError for an unknown one."""
    known = TOPOLOGIES | SLICES if trains else TOPOLOGIES
    if name not in known:
        raise RecipeError(
            {"topology": say("there is no {name}; allowed: {names}", name=repr(name), names=", ".join(known))}
        )
    return known[name]


def find_machine(kind: str, devices: int) -> Topology | None:
    """Returns the machine of so many devices of a kind, as JAX calls it; None for a CPU, and for one not known."""
    chip = find_chip(kind)
    known = (TOPOLOGIES | SLICES).values()
    return next((one for one in known if chip is not None and one.chip is chip and one.devices == devices), None)


def find_devices(topology: Topology) -> list[Any]:
    """Returns the devices to build a mesh of; nothing can run on them.

    Raises LumeshError if there is no TPU compiler, or if JAX in this process has fewer CPU devices.
    """
    import jax
    from jax.experimental import topologies

    if topology.chip is None:
        devices = jax.devices("cpu")
        if len(devices) < topology.chips:
            raise LumeshError(
                say(
                    "{topology} has {title}; JAX shows {count} here.",
                    topology=topology.name,
                    title=topology.title,
                    count=len(devices),
                ),
                advice=say("Leave JAX_NUM_CPU_DEVICES unset, and the device count out of XLA_FLAGS."),
            )
        return devices[: topology.chips]
    check_compiler()
    return topologies.get_topology_desc(topology.layout, platform="tpu", **topology.options).devices


def check_compiler() -> None:
    """Raises LumeshError if no TPU compiler is installed."""
    import jax

    if find_spec("libtpu") is None:
        raise LumeshError(
            say("The TPU compiler is not installed here."),
            advice=say(
                "Install it: pip install 'jax[tpu]=={version}', or plan for cpu-1 or cpu-8.", version=jax.__version__
            ),
        )
