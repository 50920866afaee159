"""What people are told when the disk or the database cannot be used, and a reserve to make room with when it is full.

A full disk, a read-only folder, a locked database: each error of the system becomes one sentence with what to do
(`explain`), the same for a request, a job's card, the health check and the command line. `Reserve` is a file that is
given up when the disk is full, so that throwing things away, which itself writes a little, always works.
Not here: the studio's own limit, `--max-disk` (library/disk.py); a damaged database (database/care.py).
"""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pipelines.errors import LumeshError
from pipelines.messages import say

BUSY = say("The database is busy")
RESERVE = "reserve"
RESERVE_BYTES = 4 * 2**20  # a thousand of SQLite's pages: throwing away some hundred outputs writes that much
LOW_BYTES = 8 * 2**20  # with less than this free, the disk counts as full: a picture of 4 megapixels needs that

T = TypeVar("T")

PRIVATE_UMASK = 0o077
"""What a process of ours makes is its own account's alone: the database holds prompts and secrets of webhooks."""

_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


class StorageError(LumeshError):
    """The disk or the database refuses to be read or written; `passes` tells whether it may work again by itself."""

    title = say("The disk cannot be used")
    status = 503
    passes = True


class StorageFullError(StorageError):
    """There is no room on the disk."""

    title = say("The disk is full")
    status = 507


class StorageDamagedError(StorageError):
    """The database is damaged."""

    title = say("The database is damaged")
    passes = False


def show_size(count: int) -> str:
    """Writes bytes as `--max-disk` takes them, in powers of ten: 312 kB, 4.2 MB, 50 GB."""
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if count >= 1000**power:
            return f"{float(f'{count / 1000**power:.3g}'):g} {unit}"
    return f"{count} B"


def explain(error: BaseException) -> StorageError | None:
    """Returns what to tell people about an error of the disk or of SQLite; None for any other error."""
    if isinstance(error, StorageError):
        return error
    if isinstance(error, sqlite3.Error):
        return _explain_database(getattr(error, "sqlite_errorname", None) or "", error)
    if not isinstance(error, OSError):
        return None
    if error.errno in _FULL:
        return full()
    if error.errno in _READ_ONLY:
        return StorageError(
            say("The server may not write or read a file of its own: {error}.", error=error.strerror),
            advice=say("Give the account that runs Lumesh the rights to its data directory."),
        )
    if error.errno == errno.EIO:
        return StorageError(
            say("The disk does not work: {error}.", error=error.strerror), advice=say("See the system's log.")
        )
    return None


def passes(error: BaseException) -> bool:
    """Tells whether an error is the disk's or the database's, and may pass by itself."""
    return (found := explain(error)) is not None and found.passes


def is_full(error: BaseException) -> bool:
    """Tells whether an error means that the disk is full."""
    return isinstance(explain(error), StorageFullError)


def count_free(folder: Path) -> int:
    """Returns the bytes that this account may still write on the folder's disk."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def close_to_others(paths: Iterable[Path]) -> list[Path]:
    """Takes other accounts' rights to these files and folders away; returns those of which that is not possible."""
    open_ones: list[Path] = []
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & PRIVATE_UMASK:
                path.chmod(mode & ~PRIVATE_UMASK)
        except FileNotFoundError:
            continue
        except OSError:
            open_ones.append(path)
    return open_ones


class Reserve:
    """A file in the data directory that keeps a little room for making room."""

    def __init__(self, data_dir: Path) -> None:
        self._file = data_dir / RESERVE

    def keep(self) -> None:
        """Makes the file where it is missing and the disk has room."""
        if self._file.exists() or count_free(self._file.parent) < 4 * RESERVE_BYTES:
            return
        with suppress(OSError):  # the disk filled up just now: the next turn tries again
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            except OSError:
                self._file.unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)

    def spend(self) -> bool:
        """Gives the room back; returns False when there was none left."""
        if not self._file.exists():
            return False
        self._file.unlink(missing_ok=True)
        return True

    def do(self, work: Callable[[], T]) -> T:
        """Does work that makes room in the end; where the disk is full, once more with the reserve's room."""
        try:
            return work()
        except (OSError, sqlite3.Error) as error:
            if not is_full(error) or not self.spend():
                raise
        return work()


def full() -> StorageFullError:
    """Returns what to tell people about a full disk."""
    return StorageFullError(
        say("There is no room left on the server's disk, so nothing can be stored."),
        advice=say(
            "Throw outputs away and empty the trash, or make room on the disk; then everything goes on by itself."
        ),
    )


def _explain_database(name: str, error: sqlite3.Error) -> StorageError | None:
    if name.startswith("SQLITE_FULL"):
        return full()
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StorageError(
            say("Another program holds the database."),
            advice=say("Try again; end what else has jobs.db open."),
            title=BUSY,
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return StorageError(
            say("The database cannot be opened for writing."),
            advice=say("Give the account that runs Lumesh the rights to its data directory."),
        )
    if name.startswith("SQLITE_IOERR"):
        return StorageError(
            say("The database cannot be read or written: {error}.", error=error),
            advice=say("See whether the disk has room and works."),
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StorageDamagedError(
            say("Its file cannot be read any more."),
            advice=say("Stop Lumesh and start it again: it says how to bring the last good copy back."),
        )
    return None
