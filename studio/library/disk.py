"""The disk quota: keeps the studio's own files below `--max-disk` by deleting what nobody wants any more.

That is the trash, the oldest first; once it is empty, what trainings that were given up would go on from
(training_room.py). When nothing of that is left, the queue accepts no new jobs (jobs/queue.py) until people delete
something or the limit is raised; waiting jobs go on.
Not counted: models, LoRAs, packs and compiled programs, which people provide or the studio can make again.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from studio.database import Database
from studio.library import training_room, trash
from studio.settings import Settings

log = logging.getLogger(__name__)


def keep_below(database: Database, settings: Settings, *, limit_bytes: int | None) -> None:
    """Measures usage, deletes what may go while it exceeds the limit, and stores the result for the queue."""
    used_bytes = measure(settings) if limit_bytes is not None else 0
    while limit_bytes is not None and used_bytes > limit_bytes:
        needed_bytes = used_bytes - limit_bytes
        gone = trash.purge_oldest(database, settings.outputs_dir, needed_bytes=needed_bytes)
        if gone:
            log.warning("the disk quota is used up: %d of the oldest outputs in the trash were deleted", len(gone))
        elif freed := training_room.free_oldest(database, settings.training_dir):
            log.warning("the disk quota is used up: what the ended training %s had learnt was deleted", freed[0])
        else:
            break
        used_bytes = measure(settings)
    with database.write() as tx:
        tx.execute("UPDATE disk SET used_bytes = ?, limit_bytes = ?", (used_bytes, limit_bytes))


def measure(settings: Settings) -> int:
    """Returns the bytes of outputs, uploads, presets and trainings.

    The database is small, and at first grows when rows go.
    """
    folders = (settings.outputs_dir, settings.uploads_dir, settings.presets_dir, settings.training_dir)
    return sum(map(_measure_folder, folders))


def _measure_folder(folder: Path) -> int:
    return sum(_list_sizes(folder)) if folder.is_dir() else 0


def _list_sizes(folder: Path) -> Iterator[int]:
    """Yields file sizes by scandir, at a third of pathlib's cost: there may be thirty thousand files."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from _list_sizes(Path(entry.path))
                else:
                    yield entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:  # deleted since it was listed
                continue
