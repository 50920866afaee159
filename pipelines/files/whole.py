"""Files that are written whole or not at all, whatever happens meanwhile: a full disk, a kill, a power cut.

The content goes into a file of its own in the same folder, is flushed to the disk, and takes the name by renaming; then
the folder is flushed too. Every file that nobody can make again is written here: keys, users, words, presets, outputs.
Not here: files in place of which a torn one is noticed and made again (caches of compiled programs).
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

PART = ".part"
PRIVATE = 0o600
# What file systems answer that cannot flush a folder.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES)


def write_whole(file: Path, content: bytes, *, mode: int | None = None, is_flushed: bool = True) -> None:
    """Replaces the file's content atomically; on failure the old content stays.

    With `mode` the file has these permissions from its first byte on, else those of the process' umask. A file that
    nobody will look for after a power cut need not be flushed, which takes tens of milliseconds on a slow disk.
    """

    def write(part: Path) -> None:
        if mode is not None:
            part.touch(mode=mode)
        part.write_bytes(content)

    put_whole(file, write, is_flushed=is_flushed)


def put_whole(file: Path, write: Callable[[Path], object], *, is_flushed: bool = True) -> None:
    """Lets `write` fill a file in the same folder, with the same suffix; renames it once it is flushed to the disk."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.stem}.{secrets.token_hex(4)}{PART}{file.suffix}")
    try:
        write(part)
        if is_flushed:
            with part.open("rb") as stream:
                os.fsync(stream.fileno())
        part.replace(file)
        if is_flushed:
            _flush_folder(file.parent)
    finally:
        part.unlink(missing_ok=True)


def give_usual_mode(file: Path) -> None:
    """Gives a file the permissions of this process' umask: safetensors writes its own for the account alone."""
    mark = file.with_name(f".{file.stem}.{secrets.token_hex(4)}{PART}")
    try:
        mark.touch(exist_ok=False)
        file.chmod(stat.S_IMODE(mark.stat().st_mode))
    finally:
        mark.unlink(missing_ok=True)


def forget_parts(folder: Path) -> None:
    """Deletes what a killed process left of files in this folder; nobody may be writing there."""
    for part in folder.glob(f".*{PART}*"):
        part.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """Flushes a folder, without which a power cut may undo the renaming."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)
