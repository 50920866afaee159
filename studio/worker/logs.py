"""The worker's log, rotated while the worker writes to it.

The output of the worker and of native libraries goes to one open file in append mode, so the file is copied and
truncated while it is open; lines written at that moment may be lost. A few older files are kept.
"""

import os
import shutil
from pathlib import Path
from typing import BinaryIO

MAX_LOG_BYTES = 5_000_000
KEPT = 3


def open_log(file: Path) -> BinaryIO:
    """Opens the log for appending."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rotate(file)
    return file.open("ab")


def rotate(file: Path, *, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Moves a log longer than `max_bytes` to `.1`, that one to `.2`, and so on; deletes the oldest."""
    if not file.exists() or file.stat().st_size <= max_bytes:
        return
    for number in range(KEPT, 1, -1):
        older = _name(file, number - 1)
        if older.exists():
            older.replace(_name(file, number))
    shutil.copyfile(file, _name(file, 1))
    os.truncate(file, 0)


def _name(file: Path, number: int) -> Path:
    return file.with_name(f"{file.name}.{number}")
