"""The services that a studio runs in the background (background.py), and their intervals."""

import asyncio
import logging
import time
from collections.abc import Callable

from studio.database import Database, care
from studio.library import disk, uploads
from studio.services import sheets, webhook_sender
from studio.services.background import Service
from studio.settings import Settings
from studio.storage import Reserve

UPLOADS_INTERVAL_S = 600.0
DISK_INTERVAL_S = 15.0

log = logging.getLogger(__name__)


def list_services(settings: Settings, database: Database) -> tuple[Service, ...]:
    """Returns all services, for the application's lifespan."""
    return (
        forget_unused_uploads(settings, database),
        keep_disk_below_limit(settings, database),
        keep_reserve(settings),
        copy_database(settings),
        webhook_sender.make_service(database, allows_private=settings.allow_private_webhooks),
        sheets.make_service(database, settings.outputs_dir),
    )


def keep_reserve(settings: Settings) -> Service:
    """Keeps the room with which a full disk is emptied (storage.py)."""

    async def work() -> None:
        await asyncio.to_thread(Reserve(settings.data_dir).keep)

    return Service(name="keeping a reserve", interval_s=DISK_INTERVAL_S, work=work)


def copy_database(settings: Settings) -> Service:
    """Takes a copy of the database that can be brought back, at the start and every few hours."""

    async def work() -> None:
        if await asyncio.to_thread(care.keep_copy, settings.database_file) is None:
            log.warning("the disk has no room for a copy of the database")

    return Service(name="copying the database", interval_s=care.COPY_INTERVAL_S, work=work)


def forget_unused_uploads(
    settings: Settings, database: Database, *, read_clock: Callable[[], float] = time.time
) -> Service:
    """Deletes uploaded pictures that no job used in time."""

    async def work() -> None:
        await asyncio.to_thread(uploads.forget_unused, database, settings.uploads_dir, now_s=read_clock())

    return Service(name="forgetting unused uploads", interval_s=UPLOADS_INTERVAL_S, work=work)


def keep_disk_below_limit(settings: Settings, database: Database) -> Service:
    """Keeps the studio's files below `--max-disk`; without a limit it only records that once."""
    limit_bytes = settings.max_disk_bytes

    async def work() -> None:
        await asyncio.to_thread(disk.keep_below, database, settings, limit_bytes=limit_bytes)

    interval_s = None if limit_bytes is None else DISK_INTERVAL_S
    return Service(name="keeping the disk below its limit", interval_s=interval_s, work=work)
