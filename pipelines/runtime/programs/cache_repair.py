"""Deletes damaged entries of JAX's compilation cache, so that their programs are compiled once more and then kept.

JAX writes an entry in place: a kill, or a full disk, leaves half of one. It only warns about such an entry, compiles,
and never replaces the file, so every later start would compile again. An entry is a zlib stream, which ends with a
checksum of what it holds; those that were found whole are listed by size and time in a file beside them and read once.
Importable without jax.
"""

import json
import logging
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.files.whole import write_whole

SUFFIX = "-cache"  # jax's LRUCache adds it to an entry's key
LEDGER = "lumesh-checked.json"
INDEX = "lumesh-programs.json"
READ_BYTES = 2**20
THREADS = 4
STILL_WRITTEN_S = 0.3  # what another process is writing grows within this time

_ZLIB = 0x78  # the first byte; with the package zstandard, which is not required here, JAX writes another format

log = logging.getLogger(__name__)

Mark = list[int]
"""An entry's size in bytes and the time of its last change in nanoseconds."""


def repair(folder: Path, *, index: Path) -> int:
    """Deletes damaged entries and returns how many; the `index` of cached programs, which may name them, goes too."""
    known, marks = _read_ledger(folder), _list_entries(folder)
    new = {name: mark for name, mark in marks.items() if known.get(name) != mark}
    if not new and known.keys() == marks.keys():
        return 0
    with ThreadPoolExecutor(THREADS, thread_name_prefix="cache") as pool:
        wholes = pool.map(_is_whole, (folder / name for name in new))
        damaged = [name for name, is_whole in zip(new, wholes, strict=True) if not is_whole]
    if damaged:
        time.sleep(STILL_WRITTEN_S)
    gone = [name for name in damaged if _mark(folder / name) == new[name]]
    for name in gone:
        (folder / name).unlink(missing_ok=True)
    if gone:
        index.unlink(missing_ok=True)
        log.warning("%d damaged entries of the compilation cache are deleted: they are compiled again", len(gone))
    _write(folder / LEDGER, {name: mark for name, mark in marks.items() if name not in damaged})
    return len(gone)


def _list_entries(folder: Path) -> dict[str, Mark]:
    marks = {file.name: _mark(file) for file in sorted(folder.glob(f"*{SUFFIX}"))}
    return {name: mark for name, mark in marks.items() if mark is not None}


def _mark(file: Path) -> Mark | None:
    try:
        status = file.stat()
    except OSError:  # deleted since it was listed
        return None
    return [status.st_size, status.st_mtime_ns]


def _is_whole(file: Path) -> bool:
    stream = zlib.decompressobj()
    try:
        with file.open("rb") as entry:
            piece = entry.read(READ_BYTES)
            if piece and piece[0] != _ZLIB:
                return True  # not for us to judge
            while piece and not stream.eof:
                stream.decompress(piece)
                piece = entry.read(READ_BYTES)
    except zlib.error:
        return False
    except OSError as error:
        log.warning("%s cannot be read: %s", file, error.strerror)
        return True
    return stream.eof


def _read_ledger(folder: Path) -> dict[str, Mark]:
    try:
        found = json.loads((folder / LEDGER).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(file: Path, marks: dict[str, Mark]) -> None:
    """Writes the ledger; on a full disk it stays as it was."""
    try:
        write_whole(file, json.dumps(marks).encode())
    except OSError as error:
        log.warning("%s is not written: %s", file, error.strerror)
