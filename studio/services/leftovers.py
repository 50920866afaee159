"""What a killed process left in the data directory: torn files, and whole files that no row names.

A worker that is killed between writing a job's files and storing their rows leaves files that nobody sees, that count
for `--max-disk` and cannot be purged: they are deleted at the next start, as a retry makes them again. A file that is
younger than all that the database knows of its job is another matter: it may be all that is left of a picture, after an
older database was brought back. It stays, and the log says so.
"""

import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path

from pipelines.files.whole import forget_parts
from studio.database import Database
from studio.jobs.states import JobState
from studio.library import training_room
from studio.library.files import POSTER_SUFFIX, THUMB_SUFFIX
from studio.settings import Settings

MARGIN_S = 2.0  # a heartbeat is at most a second old
_UPLOAD = re.compile(r"[0-9a-f]{64}(\.thumb\.webp|\.png|\.mp4)")
SUFFIXES = (POSTER_SUFFIX, THUMB_SUFFIX, ".png", ".mp4")

log = logging.getLogger(__name__)


def sweep(settings: Settings, database: Database) -> None:
    """Deletes leftovers, before any worker runs; says how many files stay although no row names them."""
    for folder in (settings.data_dir, settings.uploads_dir, settings.presets_dir, settings.plans_dir):
        forget_parts(folder)
    gone, kept = sweep_outputs(settings.outputs_dir, database)
    gone += sweep_uploads(settings.uploads_dir, database)
    gone += training_room.forget_strangers(database, settings.training_dir)
    if gone:
        log.warning("%d files that a killed process left in %s were deleted", gone, settings.data_dir)
    if kept:
        log.warning("%d files in %s belong to no job of the database and stay", kept, settings.outputs_dir)


def sweep_outputs(outputs_dir: Path, database: Database) -> tuple[int, int]:
    """Deletes files of known jobs that no row names; returns how many, and how many of unknown jobs stay."""
    gone = kept = 0
    named = {row["file"].rpartition(".")[0] for row in database.read("SELECT file FROM outputs")}
    for name, files in _group(outputs_dir):
        if name in named:
            continue
        known_at = _find_last_trace(database, name.rpartition("/")[2].rpartition("-")[0])
        for file in files:
            if file.stat().st_mtime > known_at:
                kept += 1
                continue
            file.unlink(missing_ok=True)
            gone += 1
    return gone, kept


def sweep_uploads(uploads_dir: Path, database: Database) -> int:
    """Deletes uploaded pictures that no row names: their upload was never answered. Returns how many files went."""
    named = {row["sha"] for row in database.read("SELECT sha FROM uploads")}
    newest = database.read_one("SELECT coalesce(max(at), 0) AS at FROM events")
    gone = 0
    for file in uploads_dir.iterdir() if uploads_dir.is_dir() else ():
        is_ours = _UPLOAD.fullmatch(file.name) is not None and file.is_file()
        # Younger than all that the database knows: it may belong to a newer one, which was lost.
        if is_ours and file.name.partition(".")[0] not in named and newest and file.stat().st_mtime < newest["at"]:
            file.unlink(missing_ok=True)
            gone += 1
    return gone


def _find_last_trace(database: Database, job_id: str) -> float:
    """Returns until when a dead attempt at this job may have written files; -inf for a job that is not known.

    A running job's worker is dead, as this is the start: its last heartbeat is its last trace.
    """
    row = database.read_one(
        "SELECT jobs.state, queued_at, started_at, finished_at, heartbeat_at FROM jobs "
        "LEFT JOIN workers ON workers.id = jobs.worker WHERE jobs.id = ?",
        (job_id,),
    )
    if row is None:
        return -math.inf
    until = {
        JobState.QUEUED: row["queued_at"],
        JobState.RUNNING: row["heartbeat_at"],
        JobState.DONE: row["started_at"],  # of an earlier attempt: this one's files have rows
    }.get(JobState(row["state"]), row["finished_at"])
    return -math.inf if until is None else until + MARGIN_S


def _group(outputs_dir: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yields `YYYY-MM-DD/<job>-<n>` with its files: the output, its thumbnail, its poster."""
    for day in sorted(outputs_dir.iterdir()) if outputs_dir.is_dir() else ():
        found: dict[str, list[Path]] = {}
        for file in day.iterdir() if day.is_dir() and not day.is_symlink() else ():
            suffix = next((one for one in SUFFIXES if file.name.endswith(one)), None)
            if suffix is not None and not file.name.startswith(".") and file.is_file() and not file.is_symlink():
                found.setdefault(f"{day.name}/{file.name.removesuffix(suffix)}", []).append(file)
        yield from found.items()
