"""What encodes a training's rows, as a hash: another encoder, or the same one in another dtype, has other rows.

Not here: the rows' keys (rows.py).
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

VERSION = 2
"""Rows of other versions of the programs are not taken from a cache."""
WHOLE_BYTES = 2**29
"""Larger files, which take more than a second to hash, are known by PIECES of PIECE_BYTES each, the first and the last
ones at their ends."""
PIECES = 1024
PIECE_BYTES = 2**14


def fingerprint(
    folder: Path, components: Sequence[str], own_files: Sequence[Path] = (), *, dtype: str, variant: str | None
) -> str:
    """Returns a hash of all that decides what these components make: their files' content, the dtype they compute in.

    A model's `own_files`, which may hold some of them, count for all, and so does its model_index.json.
    """
    found = hashlib.sha256(f"{VERSION} {dtype} {variant or ''}".encode())
    index = folder / "model_index.json"
    for file in (*own_files, *([index] if index.is_file() else ())):
        found.update(f"{file.name} {_hash_file(file)};".encode())
    for component in components:
        for file in sorted((folder / component).rglob("*")):
            if file.is_file():
                found.update(f"{component}/{file.name} {_hash_file(file)};".encode())
    return found.hexdigest()


def _hash_file(file: Path) -> str:
    """Hashes all of a file, or of a large one its size, its time and pieces of it: learnt weights differ all over."""
    status = file.stat()
    with file.open("rb") as opened:
        if status.st_size <= WHOLE_BYTES:
            return hashlib.file_digest(opened, "sha256").hexdigest()
        found = hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}".encode())
        for piece in range(PIECES):
            opened.seek(piece * (status.st_size - PIECE_BYTES) // (PIECES - 1))
            found.update(opened.read(PIECE_BYTES))
        return found.hexdigest()
