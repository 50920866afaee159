"""Where a training works."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a training works: `output` for its files, `cache` for rows, `cache_dir` for compiled programs.

    `packs` are files of `compile --train`, or folders of them.
    """

    output: Path
    cache: Path
    cache_dir: Path
    allow_cpu: bool = False
    packs: tuple[Path, ...] = ()
