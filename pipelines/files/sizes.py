"""What files take on the disk, while others may rename or delete them."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def count_bytes(files: Iterable[Path]) -> int:
    """Returns the bytes of all files; one that went since it was listed has none."""
    total = 0
    for file in files:
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total
