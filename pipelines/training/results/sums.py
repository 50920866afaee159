"""Sums of a state's files, by which one that the disk has changed is found: tensorstore sums its lists, not the arrays.

They are written into the state before it counts as whole, and compared before it is read. A state without them, as
earlier versions wrote, is read as it is.
"""

import errno
import json
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SUMS = "sums.json"
"""The file in a state: of each file its size and CRC-32."""
_LATER = frozenset((SUMS, "_CHECKPOINT_METADATA", "commit_success.txt"))
"""Files that are written after the sums, and hold nothing of the state."""
_LOST = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO)
_READERS = 4  # of files at once; one sums 0.9 GB a second (2026-11-28, two shared cores)
_PIECE_BYTES = 2**24


class ChangedError(Exception):
    """A file of a state is not as it was written, or gone."""


def write_sums(state: Path) -> None:
    """Writes the sums of all files of a state; raises OSError."""
    files = sorted(file for file in state.rglob("*") if file.is_file() and file.name not in _LATER)
    names = [file.relative_to(state).as_posix() for file in files]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="sums") as pool:
        sums = dict(zip(names, pool.map(_sum, files), strict=True))
    (state / SUMS).write_text(json.dumps(sums), "utf-8")


def check_sums(state: Path, *, below: str = "") -> None:
    """Raises ChangedError for a file of a state that was changed since, of those `below` a folder if one is named.

    What may not be read is no damage: raises OSError.
    """
    try:
        sums: dict[str, list[int]] = json.loads((state / SUMS).read_text("utf-8"))
        wanted = {name: tuple(found) for name, found in sums.items() if name.startswith(below)}
    except FileNotFoundError:
        return
    except (ValueError, TypeError, AttributeError) as error:
        raise ChangedError(f"{SUMS}: {error}") from error
    files = [state / name for name in wanted]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="sums") as pool:
        for file, found in zip(files, pool.map(_find_sum, files), strict=True):
            if found != wanted[file.relative_to(state).as_posix()]:
                raise ChangedError(str(file))


def _find_sum(file: Path) -> tuple[int, int] | None:
    """Returns a file's size and CRC-32, None for one that is gone, or that the disk cannot read any more."""
    try:
        return _sum(file)
    except OSError as error:
        if error.errno not in _LOST:
            raise
        return None


def _sum(file: Path) -> tuple[int, int]:
    """Returns a file's size and CRC-32."""
    size, found = 0, 0
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            size, found = size + len(piece), zlib.crc32(piece, found)
    return size, found
