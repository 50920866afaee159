"""What a machine's own programs took, measured by `doctor --measure`, for plans of that machine.

A measurement counts for the same model, shape, mesh and number of outputs, on as many devices of the same kind, with
the same compiler: anything else is another program. They are kept in one file beside the compiler's answers.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pipelines.files.locked import hold_file
from pipelines.files.whole import write_whole
from pipelines.plan.topologies import CHIP_OF_KIND, Topology

FILE = "measured.json"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The median time of one run of a stage's program, for the denoiser of one step, and what was estimated of it.

    `kind` is JAX's name of the devices. `estimated_ms` is None on devices that have no estimate, and `refusal` says why
    a program did not run, whose `ms` are None then.
    """

    model: str
    shape: str
    stage: str
    mesh: str
    batch_size: int
    kind: str
    devices: int
    versions: dict[str, str]
    runs: int
    ms: float | None
    estimated_ms: float | None
    compile_s: float
    at: float
    refusal: str = ""

    @property
    def name(self) -> tuple[object, ...]:
        """Returns all that makes it another measurement than others."""
        versions = tuple(sorted(self.versions.items()))
        return self.model, self.shape, self.stage, self.mesh, self.batch_size, self.kind, self.devices, versions


def keep(folder: Path, found: Sequence[Measured]) -> None:
    """Adds measurements to the file in this folder, in place of earlier ones of the same programs."""
    new = {one.name for one in found}
    with hold_file(folder / FILE):
        lines = [*(one for one in read(folder) if one.name not in new), *found]
        write_whole(folder / FILE, json.dumps([asdict(one) for one in lines], indent=1).encode())


def read(folder: Path) -> list[Measured]:
    """Reads all measurements; a file that is missing, damaged or of another version holds none."""
    try:
        return [Measured(**line) for line in json.loads((folder / FILE).read_text("utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def choose(
    measured: Sequence[Measured],
    topology: Topology,
    *,
    model: str,
    shape: str,
    mesh: str,
    batch_size: int,
    versions: dict[str, str],
) -> dict[str, float]:
    """Returns stage -> milliseconds of what was measured on such a machine."""
    wanted = (model, shape, mesh, batch_size, topology.devices, topology.chip.name if topology.chip else "cpu")
    return {
        one.stage: one.ms
        for one in measured
        if (one.model, one.shape, one.mesh, one.batch_size, one.devices, CHIP_OF_KIND.get(one.kind, one.kind)) == wanted
        and one.versions == versions
        and one.ms is not None
    }
