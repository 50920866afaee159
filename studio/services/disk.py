"""Keeps the studio's files below `--max-disk`, beside the routes; without a limit it only says so once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from studio.context import Studio
from studio.library import disk

POLL_S = 15.0

log = logging.getLogger(__name__)


async def keep_disk(studio: Studio, *, wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Runs as long as the application, where there is a limit."""
    limit_bytes = studio.settings.max_disk_bytes
    while True:
        try:
            await asyncio.to_thread(disk.keep_below, studio.database, studio.settings, limit_bytes=limit_bytes)
        except Exception:
            log.exception("the disk is measured at the next turn")
        if limit_bytes is None:
            return
        await wait(POLL_S)
