"""One process at a time: a lock on a file, which the kernel lets go of when its holder ends, however it ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.errors import LumeshError


class AlreadyRunningError(LumeshError):
    """The data directory is somebody else's."""

    title = "Already running"


@contextmanager
def hold_lock(file: Path, *, who: str, timeout_s: float) -> Iterator[None]:
    """Holds the lock, after waiting for it; raises AlreadyRunningError, naming the holder, when the wait is over."""
    file.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with file.open("a+") as stream:
        while not _try_lock(stream.fileno()):
            if time.monotonic() >= deadline:
                stream.seek(0)
                raise AlreadyRunningError(
                    f"{who} (process {stream.read().strip() or 'unknown'}) already uses {file.parent}.",
                    advice="Stop it first, or choose another --data-dir.",
                )
            time.sleep(0.02)
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
