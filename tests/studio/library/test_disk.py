"""The disk quota: trash goes first, the oldest of it; then the queue takes nothing new."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from studio.api.application import create_api
from studio.database import Database
from studio.jobs.queue import DiskFullError
from studio.library import disk, trash
from studio.library.search import Filters, find_outputs
from studio.settings import Settings
from studio.storage import show_size
from studio.worker.loop import Worker


@pytest.fixture
def outputs(database: Database, submit: Callable[..., Any], worker: Worker) -> list[str]:
    """Ids of three outputs, oldest first."""
    for number in range(3):
        submit(f"Boat {number}")
        worker.run_next()
    return [output.id for output in find_outputs(database, Filters(), owner="local").outputs][::-1]


def list_ids(database: Database, *, is_trashed: bool) -> list[str]:
    found = find_outputs(database, Filters(is_trashed=is_trashed), owner="local").outputs
    return [output.id for output in found][::-1]


def size_of(settings: Settings, output_id: str) -> int:
    return sum(file.stat().st_size for file in settings.outputs_dir.rglob(f"{output_id}*"))


def test_everything_that_grows_is_measured(settings: Settings, outputs: list[str], upload: Callable[..., str]) -> None:
    before = disk.measure(settings)
    assert before == sum(size_of(settings, output) for output in outputs)
    upload("blue")
    assert disk.measure(settings) > before


def test_only_as_much_trash_goes_as_must_the_oldest_first(
    settings: Settings, database: Database, outputs: list[str]
) -> None:
    first, second, third = outputs
    trash.throw_away(database, [second], owner="local")
    trash.throw_away(database, [first], owner="local")
    disk.keep_below(database, settings, limit_bytes=disk.measure(settings) - size_of(settings, second) + 1)
    assert list_ids(database, is_trashed=True) == [first]
    assert list_ids(database, is_trashed=False) == [third]
    assert size_of(settings, second) == 0


def test_without_trash_nothing_new_is_queued_and_the_message_says_why(
    settings: Settings, database: Database, outputs: list[str], submit: Callable[..., Any]
) -> None:
    disk.keep_below(database, settings, limit_bytes=1000)
    assert list_ids(database, is_trashed=False) == outputs, "what is not in the trash stays"
    with pytest.raises(DiskFullError, match=r"[\d.]+ kB more than the 1 kB that are allowed, and the trash is empty"):
        submit("One more")
    disk.keep_below(database, settings, limit_bytes=10**9)
    submit("One more")
    disk.keep_below(database, settings, limit_bytes=1000)
    disk.keep_below(database, settings, limit_bytes=None)
    submit("And one")


def test_rest_answers_that_there_is_no_storage(
    settings: Settings, database: Database, catalog: Any, outputs: list[str]
) -> None:
    disk.keep_below(database, settings, limit_bytes=1000)
    advice = {}
    for host in ("127.0.0.1", "0.0.0.0"):
        with TestClient(create_api(replace(settings, host=host), database, catalog)) as client:
            answer = client.post("/api/v1/jobs", json={"model": "demo-sdxl", "prompt": "A boat"})
        assert answer.status_code == 507
        assert answer.json()["error"]["title"] == "The disk quota is used up"
        advice[host] = answer.json()["error"]["advice"]
    assert "--max-disk" in advice["127.0.0.1"]
    assert "ask whoever runs this studio" in advice["0.0.0.0"] and "--max-disk" not in advice["0.0.0.0"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (300_000, "300 kB"),
        (1_234_567, "1.23 MB"),
        (50 * 10**9, "50 GB"),
        (2 * 10**12, "2 TB"),
    ],
)
def test_a_size_has_the_unit_that_fits_it(count: int, text: str) -> None:
    assert show_size(count) == text
