"""The services that a studio runs in the background (background.py), and their intervals."""

import asyncio
import time
from collections.abc import Callable

from studio.database import Database
from studio.library import disk, uploads
from studio.services import sheets, webhook_sender
from studio.services.background import Service
from studio.settings import Settings

UPLOADS_INTERVAL_S = 600.0
DISK_INTERVAL_S = 15.0


def list_services(settings: Settings, database: Database) -> tuple[Service, ...]:
    """Returns all services, for the application's lifespan."""
    return (
        forget_unused_uploads(settings, database),
        keep_disk_below_limit(settings, database),
        webhook_sender.make_service(database, allows_private=settings.allow_private_webhooks),
        sheets.make_service(database, settings.outputs_dir),
    )


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
