"""Background work goes on whatever goes wrong, and ends with the application."""

import asyncio

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from pipelines.models.catalog import Catalog
from studio.api.application import create_api
from studio.database import Database
from studio.services import background
from studio.services.background import Service
from studio.settings import Settings


async def wait_no_longer(_: float) -> None:
    raise asyncio.CancelledError


def test_work_that_fails_is_done_again_at_its_next_turn() -> None:
    turns: list[int] = []

    async def work() -> None:
        turns.append(len(turns))
        raise OSError("the disk is gone for a moment")

    async def wait(_: float) -> None:
        if len(turns) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Service(name="failing", interval_s=1.0, work=work).run(wait=wait))
    assert turns == [0, 1, 2]


def test_work_without_an_interval_is_done_once() -> None:
    turns: list[str] = []

    async def work() -> None:
        turns.append("done")

    asyncio.run(Service(name="once", interval_s=None, work=work).run(wait=wait_no_longer))
    assert turns == ["done"]


def test_services_run_with_the_application_and_end_with_it(
    settings: Settings, database: Database, catalog: Catalog
) -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append("work")
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("ended")

    def lifespan(_: FastAPI) -> object:
        return background.run([Service(name="long", interval_s=1.0, work=work)])

    with TestClient(create_api(settings, database, catalog, lifespan=lifespan)) as client:
        assert client.get("/api/v1/health").status_code == 200
        assert seen == ["work"]
    assert seen == ["work", "ended"]
