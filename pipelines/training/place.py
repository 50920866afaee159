"""Where a training works."""

from dataclasses import dataclass
from pathlib import Path

from pipelines.runtime.devices import hosts


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a training works: `output` for its files, `cache` for rows, `cache_dir` for compiled programs.

    `packs` are files of `compile --train`, or folders of them. `is_common` says whether all hosts see the same
    `output`. Where each has its own, the first one keeps the states, and all other files are written on every host.
    """

    output: Path
    cache: Path
    cache_dir: Path
    allow_cpu: bool = False
    packs: tuple[Path, ...] = ()
    is_common: bool = True

    @property
    def is_written_here(self) -> bool:
        """Tells whether this host writes what all have made."""
        return hosts.is_leader() or not self.is_common
