"""The disk quota: keeps the studio's own files below `--max-disk` by purging the oldest trash.

Only trash is ever deleted. Once the trash is empty, the queue accepts no new jobs (jobs/queue.py) until people throw
something away or the limit is raised; waiting jobs go on.
Not counted: models, packs and compiled programs, which people provide or the studio can make again.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from studio.database import Database
from studio.library import trash
from studio.settings import Settings

log = logging.getLogger(__name__)


def keep_below(database: Database, settings: Settings, *, limit_bytes: int | None) -> None:
    """Measures usage, purges trash while it exceeds the limit, and stores the result for the queue."""
    used_bytes = measure(settings) if limit_bytes is not None else 0
    while limit_bytes is not None and used_bytes > limit_bytes:
        needed_bytes = used_bytes - limit_bytes
        gone = trash.purge_oldest(database, settings.outputs_dir, needed_bytes=needed_bytes)
        if not gone:
            break
        log.warning("the disk quota is used up: %d of the oldest outputs in the trash were deleted", len(gone))
        used_bytes = measure(settings)
    with database.write() as tx:
        tx.execute("UPDATE disk SET used_bytes = ?, limit_bytes = ?", (used_bytes, limit_bytes))


def measure(settings: Settings) -> int:
    """Returns the bytes of outputs, uploads and presets. The database is small, and at first grows when rows go."""
    return sum(map(_measure_folder, (settings.outputs_dir, settings.uploads_dir, settings.presets_dir)))


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
