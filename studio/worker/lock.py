"""One process at a time: a lock on a file, which the kernel lets go of when its holder ends, however it ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from pipelines.errors import LumeshError

POLL_S = 0.02


class AlreadyRunningError(LumeshError):
    """The data directory is somebody else's."""

    title = "Already running"


@contextmanager
def hold_lock(file: Path, *, who: str, timeout_s: float) -> Iterator[None]:
    """Holds the lock, after waiting for it; raises AlreadyRunningError, naming the holder, when the wait is over."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Without flock there is no lock: a file that only exists would outlive a holder that was killed.
    lock = FileLock(file, fallback_to_soft=False)
    try:
        lock.acquire(timeout=timeout_s, poll_interval=POLL_S)
    except Timeout as error:
        raise AlreadyRunningError(
            f"{who} (process {file.read_text('utf-8').strip() or 'unknown'}) already uses {file.parent}.",
            advice="Stop it first, or choose another --data-dir.",
        ) from error
    try:
        file.write_text(str(os.getpid()), "utf-8")
        yield
    finally:
        lock.release()
