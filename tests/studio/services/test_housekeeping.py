"""Files that nobody needs go in time, and the disk stays below its limit."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from studio.database import Database
from studio.library import uploads
from studio.library.uploads import UNUSED_KEPT_S
from studio.services import housekeeping
from studio.services.housekeeping import UPLOADS_INTERVAL_S
from studio.settings import Settings


def test_unused_pictures_go_in_time_whatever_goes_wrong_in_between(
    settings: Settings, database: Database, encode_picture: Callable[..., bytes]
) -> None:
    uploads.add(database, settings.uploads_dir, encode_picture(), owner="local")
    waits: list[float] = []
    clock = iter([time.time(), time.time() + 2 * UNUSED_KEPT_S])

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise asyncio.CancelledError

    def read_clock() -> float:
        if len(waits) == 1:
            assert len(list(settings.uploads_dir.iterdir())) == 2, "too early for it to go"
            raise OSError("the disk is gone for a moment")
        return next(clock)

    service = housekeeping.forget_unused_uploads(settings, database, read_clock=read_clock)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(service.run(wait=wait))
    assert list(settings.uploads_dir.iterdir()) == []
    assert waits == [UPLOADS_INTERVAL_S] * 3


def test_without_a_limit_the_disk_is_not_watched(settings: Settings, database: Database) -> None:
    assert housekeeping.keep_disk_below_limit(settings, database).interval_s is None
    limited = housekeeping.keep_disk_below_limit(replace(settings, max_disk_bytes=10**9), database)
    asyncio.run(limited.work())
    row = database.read_one("SELECT limit_bytes FROM disk")
    assert row is not None
    assert (row["limit_bytes"], limited.interval_s) == (10**9, housekeeping.DISK_INTERVAL_S)
