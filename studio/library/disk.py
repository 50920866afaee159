"""How much of the disk the studio's own files take, kept below `--max-disk` by deleting the oldest of the trash.

Only trash is ever deleted. When there is none left the queue takes nothing new (jobs/queue.py) until people throw
something away, or the limit is raised; jobs that wait already go on.
Not here: models, packs and compiled programs, which people bring along or the studio makes again.
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
    """Measures, deletes trash while there is too much, and stores what the queue goes by."""
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
    """Bytes of outputs, uploads and presets; the database is small, and deleting from it makes it grow first."""
    return sum(map(_measure_folder, (settings.outputs_dir, settings.uploads_dir, settings.presets_dir)))


def _measure_folder(folder: Path) -> int:
    return sum(_list_sizes(folder)) if folder.is_dir() else 0


def _list_sizes(folder: Path) -> Iterator[int]:
    """By scandir, which costs a third of what paths cost: there may be thirty thousand files."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from _list_sizes(Path(entry.path))
                else:
                    yield entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:  # gone since it was listed
                continue
