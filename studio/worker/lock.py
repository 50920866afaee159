"""A file lock that admits one process at a time; the kernel releases it when its holder ends, for whatever reason."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pipelines.errors import LumeshError
from pipelines.messages import english

POLL_S = 0.02


class AlreadyRunningError(LumeshError):
    """Another process holds the data directory."""

    title = english("Already running")


@contextmanager
def hold_lock(file: Path, *, who: str, timeout_s: float) -> Iterator[None]:
    """Waits for the lock and holds it; raises AlreadyRunningError, naming the holder, on timeout."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # No fallback to a soft lock where flock is missing: a lock that is only a file would outlive a killed holder.
    lock = FileLock(file, fallback_to_soft=False)
    try:
        lock.acquire(timeout=timeout_s, poll_interval=POLL_S)
    except Timeout as error:
        raise AlreadyRunningError(
            english(f"{who} (process {file.read_text('utf-8').strip() or 'unknown'}) already uses {file.parent}."),
            advice=english("Stop it first, or choose another --data-dir."),
        ) from error
    try:
        with suppress(OSError):  # a full disk: the number is only for a message
            file.write_text(str(os.getpid()), "utf-8")
        yield
    finally:
        lock.release()
