"""Arrays on disk by what they were made of: latents and embeddings are computed once and can never be stale.

A key is the hash of everything that decides the arrays: the picture's bytes, its cut, the encoder, a version. An entry
is a safetensors file, written whole or not at all, with a checksum; a damaged one counts as missing, is told, and is
made again. Several processes may share a folder.
Not here: what goes into an entry (the families).
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from pipelines.files.whole import PART, put_whole
from pipelines.pictures.reading import DECODING_ERRORS

SUFFIX = ".safetensors"
_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
_CHECKSUM = "sha256"
log = logging.getLogger(__name__)


def make_key(*parts: object) -> str:
    """Returns the key of an entry that depends on these parts: texts, numbers, tuples of them, named tuples."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True, default=str).encode()).hexdigest()


class Cache:
    """One folder of entries."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, key: str) -> bool:
        """Returns whether there is an entry, which may yet prove damaged."""
        return self._find(key).exists()

    def get(self, key: str) -> dict[str, np.ndarray] | None:
        """Returns an entry's arrays and notes that they were used; None when it is missing or damaged."""
        file = self._find(key)
        try:
            content = file.read_bytes()
            arrays = {name: _read_array(entry) for name, entry in deserialize(content)}
            if _read_checksum(content) != _compute_checksum(arrays):
                raise ValueError("its checksum differs")
            os.utime(file)
        except FileNotFoundError:
            return None
        except (SafetensorError, *DECODING_ERRORS, KeyError) as error:
            log.warning("The cached entry %s is damaged (%s) and is made again.", file, error)
            return None
        return arrays

    def put(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes an entry, in place of what is there."""
        whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        content = save(whole, {_CHECKSUM: _compute_checksum(whole)})
        put_whole(self._find(key), lambda part: part.write_bytes(content))

    def count_bytes(self) -> int:
        """Returns the size of all entries."""
        return sum(size for _, size, _ in self._list())

    def remove_unused(self, max_bytes: int) -> int:
        """Removes the entries that were used longest ago until the rest fits; returns how many."""
        entries = sorted(self._list())
        total, removed = sum(size for _, size, _ in entries), 0
        for _, size, file in entries:
            if total <= max_bytes:
                break
            Path(file).unlink(missing_ok=True)
            total, removed = total - size, removed + 1
        return removed

    def _find(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key[2:]}{SUFFIX}"

    def _list(self) -> list[tuple[int, int, str]]:
        """Lists (last use in ns, bytes, file) of every entry."""
        found = []
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            with os.scandir(folder) as files:
                for file in files:
                    if file.name.endswith(SUFFIX) and PART not in file.name:
                        state = file.stat()
                        found.append((state.st_mtime_ns, state.st_size, file.path))
        return found


class Recent:
    """Entries in memory: all of them, or those used last that `most_bytes` have room for."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self._most_bytes = most_bytes
        self._entries: dict[str, Mapping[str, np.ndarray]] = {}  # the one used last comes last
        self._bytes = 0

    def get(self, key: str) -> Mapping[str, np.ndarray] | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = entry
        return entry

    def put(self, key: str, entry: Mapping[str, np.ndarray]) -> None:
        self._bytes += _count_bytes(entry)
        self._entries[key] = entry
        while self._most_bytes is not None and self._bytes > self._most_bytes and len(self._entries) > 1:
            self._bytes -= _count_bytes(self._entries.pop(next(iter(self._entries))))


def _count_bytes(entry: Mapping[str, np.ndarray]) -> int:
    return sum(np.asarray(array).nbytes for array in entry.values())


def _read_array(entry: Mapping[str, Any]) -> np.ndarray:
    """Reads an array of a safetensors file, of bf16 too, which safetensors' own reader for NumPy refuses."""
    return np.frombuffer(entry["data"], _DTYPES[entry["dtype"]]).reshape(entry["shape"])


def _compute_checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _read_checksum(content: bytes) -> str:
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header["__metadata__"][_CHECKSUM]
