"""Files that arrive over the network in a folder of the data directory, under a hidden name until they are kept.

Not here: how bytes arrive (api/upload_body.py), what is in the file (loras.py, models.py).
"""

import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

TORN_S = 24 * 3600.0  # after this long an upload is certainly dead


@contextmanager
def arrive(folder: Path) -> Generator[BinaryIO]:
    """Opens a temporary file, deleted at the end unless it was renamed; raises OSError where the disk is full."""
    folder.mkdir(parents=True, exist_ok=True)
    _forget_torn(folder, before_s=time.time() - TORN_S)
    part = folder / f".{secrets.token_hex(8)}.part"
    try:
        with part.open("xb") as file:
            yield file
    finally:
        part.unlink(missing_ok=True)


def _forget_torn(folder: Path, *, before_s: float) -> None:
    """Deletes partial uploads of a server that was killed."""
    for part in folder.glob(".*.part"):
        with suppress(OSError):  # another request deleted it first
            if part.stat().st_mtime < before_s:
                part.unlink()
