"""Files that jobs need, on a worker's machine: stored once by the hash of their bytes, and kept for the next job.

Pictures and clips to start or learn from lie in `cache/inputs` under their hash, LoRAs in `loras/` under their ref,
where families look for them; folders of peft's keep their files' names. Of more than KEPT_BYTES in `cache/inputs` the
oldest go, as far as no job asked for them a short while ago: one training may need more. Workers of one machine may
share it.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from pipelines.files.whole import write_whole
from pipelines.loras.files import SUFFIX
from pipelines.loras.settings import ADAPTER_CONFIG, ADAPTER_MODEL
from studio.cluster.protocol import Attachment
from studio.settings import Settings

KEPT_BYTES = 2 * 10**9
NEEDED_S = 6 * 3600.0
"""So long a file is kept that a job asked for: until the last of a training's 10 GB came, at 4 Mbit/s, and was read."""


class Hashes:
    """The SHA-256 of files, each read again only when it changed."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], str]] = {}

    def find(self, file: Path) -> str:
        """Returns a file's hash in hexadecimal digits; raises OSError."""
        found = file.stat()
        state = (found.st_mtime_ns, found.st_size)
        if self._known.get(file, (None, ""))[0] != state:
            with file.open("rb") as stream:
                self._known[file] = (state, hashlib.file_digest(stream, "sha256").hexdigest())
        return self._known[file][1]

    def touch(self, file: Path) -> None:
        """Marks a file as used now, which changes nothing of its hash; raises OSError."""
        sha = self.find(file)
        os.utime(file)
        found = file.stat()
        self._known[file] = ((found.st_mtime_ns, found.st_size), sha)


class Stock:
    """A worker's files."""

    def __init__(self, settings: Settings) -> None:
        self._inputs = settings.data_dir / "cache" / "inputs"
        self._loras = settings.loras_dir
        self._hashes = Hashes()

    def list_missing(self, wanted: Sequence[Attachment]) -> list[Attachment]:
        """Returns those that must be sent; those that are here are kept for the job that asks."""
        return [one for one in wanted if not self._keep(one)]

    def store(self, one: Attachment, content: bytes) -> None:
        """Keeps a file; raises ValueError for bytes that are not what they are said to be, or a name that is a path."""
        if hashlib.sha256(content).hexdigest() != one.sha:
            raise ValueError(f"the bytes of {one.name} are not those of {one.sha}")
        write_whole(self.find(one), content)
        if one.ref and one.name == ADAPTER_MODEL:  # a file of the same ref would be taken before the folder
            (self._loras / f"{one.ref}{SUFFIX}").unlink(missing_ok=True)
        self._forget_oldest()

    def find(self, one: Attachment) -> Path:
        """Returns where a file is kept."""
        if one.ref and one.name in (ADAPTER_MODEL, ADAPTER_CONFIG):
            path = PurePosixPath(one.ref, one.name)
        else:
            path = PurePosixPath(f"{one.ref}{SUFFIX}" if one.ref else f"{one.sha}{PurePosixPath(one.name).suffix}")
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{path} is not a name")
        return (self._loras if one.ref else self._inputs) / path

    def _keep(self, one: Attachment) -> bool:
        """Keeps a file for the job that asks; False where it is not here."""
        file = self.find(one)
        try:
            if not file.is_file() or file.stat().st_size != one.size or self._hashes.find(file) != one.sha:
                return False
            if not one.ref:
                self._hashes.touch(file)
        except FileNotFoundError:  # another worker of this machine deleted it just now
            return False
        return True

    def _forget_oldest(self) -> None:
        found: list[tuple[os.stat_result, Path]] = []
        for file in self._inputs.glob("*"):
            with suppress(FileNotFoundError):  # another worker deleted it just now, or wrote it to its end
                found.append((file.stat(), file))
        total, needed_s = 0, time.time() - NEEDED_S
        for state, file in sorted(found, key=lambda one: one[0].st_mtime, reverse=True):
            total += state.st_size
            if total > KEPT_BYTES and state.st_mtime < needed_s:
                file.unlink(missing_ok=True)
