"""Downloads a repository's files so that what has arrived is kept when the connection breaks or the process ends.

huggingface_hub gives every try a temporary file of another name and deletes it, or leaves it behind when it is killed.
So the files that its cache lacks are fetched here, each into `blobs/<etag>.incomplete` beside where the cache keeps it:
the name is that of the content, so a later try asks for the rest by Range. A whole file has its size, and its SHA-256
where the hub names it by that, and only then gets its place; huggingface_hub links it into the snapshot.
Not here: which files a model needs, what went wrong in words (hub.py).
"""

import contextlib
import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import filelock
import httpx2
from huggingface_hub import constants, get_hf_file_metadata, get_session, hf_hub_url
from huggingface_hub.file_download import DryRunFileInfo, repo_folder_name
from huggingface_hub.utils import WeakFileLock, build_hf_headers, hf_raise_for_status

from pipelines.runtime.weights.hub_token import find_token

AT_ONCE = 8  # files, as huggingface_hub's own default
POLL_S = 0.2
PIECE_BYTES = 2**20
MAX_TRIES = 5  # in a row, each of less than PIECE_BYTES
PAUSE_S = 0.1  # doubled after each of them
# Files that nobody has written to for so long belong to no download: those of huggingface_hub, which it cannot go on
# with, and ours, of content that was never asked for again.
HUBS_ORPHANED_S, OURS_ORPHANED_S = 24 * 3600.0, 30 * 24 * 3600.0
SUFFIX = ".incomplete"
TRANSIENT = (408, 429, 500, 502, 503, 504)
_HUBS = re.compile(r"(.+)\.[0-9a-f]{8}\.incomplete")
_SHA_256 = re.compile(r"[0-9a-f]{64}")

log = logging.getLogger(__name__)


class DamagedDownloadError(Exception):
    """A whole file whose bytes are not those that the hub has; it is deleted."""


class _Stopped(Exception):  # noqa: N818 - no error: another file's failed, or somebody cancelled
    """Ends a thread whose download nobody waits for any more."""


class _TransientError(Exception):
    """An answer after which the same request may succeed; its cause is what to tell if it never does."""


@dataclass(frozen=True, kw_only=True)
class _File:
    """A file of a repository, and the place of its content in the cache; its size is in bytes."""

    name: str
    url: str
    blob: Path
    lock: Path
    size: int

    @property
    def part(self) -> Path:
        return self.blob.with_name(f"{self.blob.name}{SUFFIX}")


@dataclass
class _Progress:
    """Shared by the threads: the bytes that each file has so far, and whether to go on."""

    done: dict[str, int] = field(default_factory=dict[str, int])
    stop: threading.Event = field(default_factory=threading.Event)


class _Part:
    """The bytes of a file that have arrived, on disk and in its SHA-256, where the content is named by that."""

    def __init__(self, file: _File, stream: BinaryIO) -> None:
        self._file = file
        self._stream = stream
        self._digest = hashlib.sha256()
        stream.seek(0)
        while piece := stream.read(PIECE_BYTES):
            self._digest.update(piece)
        if self.size > file.size:
            self.restart()

    @property
    def size(self) -> int:
        return self._stream.tell()

    @property
    def is_whole(self) -> bool:
        return self.size == self._file.size

    @property
    def is_sound(self) -> bool:
        name = self._file.blob.name
        return not _SHA_256.fullmatch(name) or self._digest.hexdigest() == name

    def append(self, piece: bytes) -> None:
        self._stream.write(piece)
        self._digest.update(piece)

    def restart(self) -> None:
        self._stream.seek(0)
        self._stream.truncate()
        self._digest = hashlib.sha256()


def fetch_missing(repo: str, files: Sequence[DryRunFileInfo], *, on_bytes: Callable[[int, int], None]) -> None:
    """Downloads the files that the cache lacks; `on_bytes(done, total)` may raise to stop, and nothing is lost then.

    Raises httpx2.TransportError, HfHubHTTPError, DamagedDownloadError, and OSError where the disk is at fault.
    """
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo, repo_type="model")
    missing = [one for one in files if one.will_download and (one.file_size or 0) <= constants.MAX_HTTP_DOWNLOAD_SIZE]
    if missing:
        (folder / "blobs").mkdir(parents=True, exist_ok=True)
        _fetch_all(repo, missing, folder, on_bytes=on_bytes)
    _forget_orphans(folder / "blobs", now_s=time.time())


def _fetch_all(
    repo: str, files: Sequence[DryRunFileInfo], folder: Path, *, on_bytes: Callable[[int, int], None]
) -> None:
    progress, total = _Progress(), sum(one.file_size or 0 for one in files)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="download") as pool:
        running: set[Future[None]] = {pool.submit(_fetch, repo, one, folder, progress) for one in files}
        try:
            while running:
                ended, running = wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for future in ended:
                    future.result()
                on_bytes(min(sum(progress.done.copy().values()), total), total)
        except BaseException:
            progress.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _fetch(repo: str, info: DryRunFileInfo, folder: Path, progress: _Progress) -> None:
    """Downloads one file into its place, unless another process has done so meanwhile."""
    url = hf_hub_url(repo, info.filename, revision=info.commit_hash)
    about = get_hf_file_metadata(url, token=find_token(), retry_on_errors=True)
    if about.etag is None or about.size is None:
        return  # huggingface_hub gets what is not named by its content, or says that it cannot
    locks = Path(constants.HF_HUB_CACHE) / ".locks" / folder.name
    locks.mkdir(parents=True, exist_ok=True)
    file = _File(
        name=info.filename,
        url=url,
        blob=folder / "blobs" / about.etag,
        lock=locks / f"{about.etag}.lock",
        size=about.size,
    )
    with _hold(file, progress):
        if not file.blob.exists():
            with file.part.open("r+b" if file.part.exists() else "w+b") as stream:
                _complete(file, _Part(file, stream), progress)
            file.part.replace(file.blob)
        for orphan in file.blob.parent.glob(f"{file.blob.name}*{SUFFIX}"):
            orphan.unlink(missing_ok=True)
    progress.done[file.name] = info.file_size or 0


@contextlib.contextmanager
def _hold(file: _File, progress: _Progress) -> Generator[None]:
    """Holds the lock that huggingface_hub takes too; meanwhile shows how far another process is with the file."""
    while not progress.stop.is_set():
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(WeakFileLock(file.lock, timeout=POLL_S))
            except filelock.Timeout:
                with contextlib.suppress(OSError):
                    progress.done[file.name] = file.part.stat().st_size
                continue
            yield
            return
    raise _Stopped


def _complete(file: _File, part: _Part, progress: _Progress) -> None:
    """Gets what is lacking of the file, and checks the whole; a damaged one is deleted."""
    tries = 0
    while not part.is_whole:
        have = part.size
        progress.done[file.name] = have
        try:
            _receive(file, part, progress)
        except (httpx2.TransportError, _TransientError) as error:
            tries = 0 if part.size - have >= PIECE_BYTES else tries + 1
            if tries == MAX_TRIES:
                raise (error.__cause__ if isinstance(error, _TransientError) and error.__cause__ else error) from None
            log.info("%s: %s; it goes on from byte %d", file.name, error, part.size)
            if progress.stop.wait(PAUSE_S * 2**tries):
                raise _Stopped from error
    if not part.is_sound:
        file.part.unlink(missing_ok=True)
        raise DamagedDownloadError(file.name)


def _receive(file: _File, part: _Part, progress: _Progress) -> None:
    """Appends what comes over one connection; raises TransportError if that is not all that is lacking."""
    have = part.size
    headers = build_hf_headers(token=find_token()) | {
        "Accept-Encoding": "identity"
    }  # bytes on the way are bytes of the file
    if have:
        headers["Range"] = f"bytes={have}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", file.url, headers=headers, timeout=timeout, follow_redirects=True) as response:
        try:
            hf_raise_for_status(response)
        except httpx2.HTTPError as error:
            if response.status_code in TRANSIENT:
                raise _TransientError(str(error)) from error
            raise
        if have and response.status_code != httpx2.codes.PARTIAL_CONTENT:
            part.restart()  # the server gives the whole file only
        for piece in response.iter_bytes():
            if progress.stop.is_set():
                raise _Stopped
            part.append(piece)
            progress.done[file.name] = part.size
    if part.size > file.size:
        part.restart()
        raise httpx2.RemoteProtocolError(f"more than {file.size} bytes came")
    if not part.is_whole:
        raise httpx2.RemoteProtocolError(f"the connection ended after {part.size} of {file.size} bytes")


def _forget_orphans(blobs: Path, *, now_s: float) -> None:
    """Deletes incomplete files that no download goes on with, and logs how much room that makes."""
    freed = 0
    for file in blobs.glob(f"*{SUFFIX}"):
        limit_s = HUBS_ORPHANED_S if _HUBS.fullmatch(file.name) else OURS_ORPHANED_S
        with contextlib.suppress(OSError):  # another process deleted or finished it first
            status = file.stat()
            if now_s - status.st_mtime > limit_s:
                file.unlink()
                freed += status.st_size
    if freed:
        log.info("deleted %.1f MB of downloads in %s that nothing goes on with", freed / 1e6, blobs)
