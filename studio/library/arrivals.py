"""Files that arrive over the network in a folder of the data directory, under a hidden name until they are kept.

Not here: how bytes arrive (api/upload_body.py), what is in the file (loras.py, models.py).
"""

import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pipelines.errors import LumeshError
from pipelines.messages import Message, say

TORN_S = 24 * 3600.0  # after this long an upload is certainly dead
Refuse = Callable[[Message, Message], LumeshError]
"""Makes an error of what happened and what to do."""


@contextmanager
def arrive(folder: Path, *, refuse: Refuse) -> Generator[BinaryIO]:
    """Opens a temporary file, deleted at the end unless it was renamed; raises what `refuse` makes of a full disk."""
    folder.mkdir(parents=True, exist_ok=True)
    _forget_torn(folder, before_s=time.time() - TORN_S)
    part = folder / f".{secrets.token_hex(8)}.part"
    try:
        with part.open("xb") as file:
            yield file
    except OSError as error:
        raise refuse(
            say("It cannot be written: {error}.", error=error.strerror),
            say("See how much room the server's disk has."),
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _forget_torn(folder: Path, *, before_s: float) -> None:
    """Deletes partial uploads of a server that was killed."""
    for part in folder.glob(".*.part"):
        with suppress(OSError):  # another request deleted it first
            if part.stat().st_mtime < before_s:
                part.unlink()
