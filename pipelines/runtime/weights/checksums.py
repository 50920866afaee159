"""Verifies that the weights on this disk are the ones that were published, by SHA-256 of whole files.

The expected sums come from the hub's cache, which names large files by their SHA-256, or from a `SHA256SUMS` in the
model's folder, as `sha256sum` writes it.
"""

import hashlib
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

from pipelines.errors import ModelError
from pipelines.messages import say

SUMS_FILE = "SHA256SUMS"
HASHERS = 4
PIECE_BYTES = 16 * 2**20
POLL_S = 0.2  # how long a cancel waits at most, beside one piece
_SUM_LINE = re.compile(r"([0-9a-f]{64}) [ *](?:\./)?(.+)", re.IGNORECASE)


def verify_weights(folder: Path, components: Iterable[str], *, on_bytes: Callable[[int, int], None]) -> None:
    """Compares every safetensors file of the components with its record; `on_bytes(done, total)` may raise to stop.

    Raises ModelError, naming the file, for one that differs and for one without a record.
    """
    files = sorted(file for component in components for file in (folder / component).glob("*.safetensors"))
    sums = _read_sums(folder)
    wanted = {file: _find_sum(file, folder, sums) for file in files}
    total = sum(file.stat().st_size for file in files)
    progress = _Progress()
    with ThreadPoolExecutor(HASHERS, thread_name_prefix="checksums") as pool:
        hashing = {pool.submit(_hash, file, progress): file for file in files}
        try:
            running = set(hashing)
            while running:
                ended, running = wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for future in ended:
                    file = hashing[future]
                    if future.result() != wanted[file]:
                        raise ModelError(
                            say(
                                "{file} is damaged: its SHA-256 is {found}..., not {wanted}...",
                                file=file,
                                found=future.result()[:12],
                                wanted=wanted[file][:12],
                            ),
                            advice=say(
                                "Delete it (in the hub's cache also what it links to), then download or copy it again."
                            ),
                        )
                on_bytes(progress.done, total)
        except BaseException:
            progress.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Progress:
    """Shared by the hashing threads: bytes read by all of them, and whether to go on."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.done += count


def _hash(file: Path, progress: _Progress) -> str:
    digest = hashlib.sha256()
    with file.open("rb", buffering=0) as stream:
        while not progress.stop.is_set() and (piece := stream.read(PIECE_BYTES)):
            digest.update(piece)
            progress.add(len(piece))
    return digest.hexdigest()


def _read_sums(folder: Path) -> dict[str, str]:
    """Path inside the folder -> SHA-256."""
    file = folder / SUMS_FILE
    if not file.exists():
        return {}
    lines = (_SUM_LINE.fullmatch(line.strip()) for line in file.read_text("utf-8").splitlines())
    return {line[2]: line[1].lower() for line in lines if line is not None}


def _find_sum(file: Path, folder: Path, sums: dict[str, str]) -> str:
    name = file.relative_to(folder).as_posix()
    if name in sums:
        return sums[name]
    blob = file.resolve().name if file.is_symlink() else ""
    if re.fullmatch(r"[0-9a-f]{64}", blob):
        return blob
    raise ModelError(
        say("Nothing says what {file} should be, so it cannot be verified.", file=file),
        advice=say(
            "Put a {file} into {folder} (sha256sum */*.safetensors > {file}), or do not ask for it.",
            file=SUMS_FILE,
            folder=folder,
        ),
    )
