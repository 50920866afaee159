"""A disk that is full costs nobody anything but time: it is told, it can be emptied, and everything goes on by itself.

On a small disk of its own (tmpfs), where mounting one is allowed.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pipelines.families.fake import FakeFamily
from pipelines.models.catalog import Catalog
from studio.api.application import create_api
from studio.database import Database, open_database
from studio.jobs import queue
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.workers import read_worker
from studio.settings import Settings
from studio.storage import Reserve, count_free
from studio.worker import insisting, saving
from studio.worker.loop import Worker

SIZE = 48 * 2**20
MNT_DETACH = 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, b"size=%d" % SIZE) != 0:
        pytest.skip(f"no disk can be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        libc.umount2(bytes(folder), MNT_DETACH)


@pytest.fixture
def settings(small_disk: Path) -> Settings:
    return Settings(host="127.0.0.1", port=7860, data_dir=small_disk, fake=True)


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    with closing(open_database(settings.database_file)) as database:
        yield database


@pytest.fixture
def client(settings: Settings, database: Database, catalog: Catalog) -> Iterator[TestClient]:
    api = create_api(settings, database, replace(catalog, loras_dir=settings.loras_dir))
    with TestClient(api, raise_server_exceptions=False) as client:
        yield client


def fill(folder: Path, *, keep: int = 0) -> Path:
    """Fills the disk up to `keep` bytes with one file."""
    filler = folder / "filler"
    for _ in range(10):  # another thread may take a page between asking and taking
        with filler.open("wb") as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, count_free(folder) - keep)
            return filler
    pytest.fail("the disk cannot be filled")


def use_up(database: Database, folder: Path) -> None:
    """Leaves not even room in SQLite's log for one more row."""
    fill(folder)
    with pytest.raises(Exception, match="full|I/O"):
        while True:
            with database.write() as tx:
                tx.execute("INSERT INTO events (kind, owner, at, data) VALUES ('x', '', 0, ?)", (f'"{"x" * 9000}"',))


def test_it_is_told_with_507_it_can_be_emptied_and_then_all_goes_on(
    database: Database,
    client: TestClient,
    worker: Worker,
    submit: Callable[..., Job],
    encode_picture: Callable[..., bytes],
) -> None:
    settings = worker.settings
    job = submit(batch_size=2)
    worker.run_next()
    outputs = [output["id"] for output in queue.read_job(database, job.id).outputs]
    Reserve(settings.data_dir).keep()
    recipe = {"model": worker.default_model.id, "prompt": "A boat"}
    assert client.get("/api/v1/health").json()["status"] == "ok"
    use_up(database, settings.data_dir)

    form = {"file": ("a.png", encode_picture(size=(900, 900)), "image/png")}
    answers = (
        client.post("/api/v1/jobs", json=recipe),
        client.post("/api/v1/uploads", files=form),
        client.post("/api/v1/clips", content=bytes(10_000_000)),
        client.post("/api/v1/loras", params={"name": "a"}, content=bytes(10_000_000)),
    )
    for answer in answers:
        assert answer.status_code == 507, answer.text
        assert answer.json()["error"]["title"] == "The disk is full"
        assert "empty the trash" in answer.json()["error"]["advice"]
    health = client.get("/api/v1/health").json()
    assert (health["status"], [problem["title"] for problem in health["problems"]]) == ("failing", ["The disk is full"])
    assert client.get("/api/v1/outputs").json()["total"] == 2

    assert client.post("/api/v1/outputs/trash", json={"ids": outputs}).json() == {"ids": outputs}
    purged = client.post("/api/v1/outputs/purge", json={"ids": None})
    assert (purged.status_code, sorted(purged.json()["ids"])) == (200, sorted(outputs))

    (settings.data_dir / "filler").unlink()
    assert client.post("/api/v1/jobs", json=recipe).status_code == 201
    assert client.get("/api/v1/health").json()["status"] == "ok"


def test_a_job_that_is_made_waits_for_room_and_the_line_waits_with_it(
    settings: Settings,
    database: Database,
    worker: Worker,
    submit: Callable[..., Job],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Filling(FakeFamily):
        """The disk fills up while it decodes."""

        def decode(self, *given: Any, **named: Any) -> Any:
            use_up(database, settings.data_dir)
            return super().decode(*given, **named)

    worker.resident.family = Filling(worker.default_model, compile_s=0.0, step_s=0.0)
    waited: list[float] = []

    def pause(seconds: float) -> None:
        if seconds != saving.ROOM_PAUSE_S:
            return
        waited.append(seconds)
        assert len(waited) < 20
        if len(waited) == 3:
            (settings.data_dir / "filler").unlink()

    monkeypatch.setattr(saving.time, "sleep", pause)
    first, second = submit(), submit(seed=8)
    worker.run_next()
    assert len(waited) >= 3
    done = queue.read_job(database, first.id)
    assert (done.state, len(done.outputs)) == (JobState.DONE, 1)
    assert [*settings.outputs_dir.rglob(".*")] == []

    filler = fill(settings.data_dir, keep=2**20)
    assert worker.desk.claim_next(resident=None) is None, "what could not be saved is not begun"
    assert queue.read_job(database, second.id).state is JobState.QUEUED
    filler.unlink()
    assert worker.desk.claim_next(resident=None).id == second.id


def test_what_a_worker_must_store_is_repeated_until_there_is_room(
    settings: Settings, database: Database, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_up(database, settings.data_dir)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        (settings.data_dir / "filler").unlink(missing_ok=True)

    monkeypatch.setattr(insisting.time, "sleep", pause)
    worker.desk.equip(chips=8, chip_price=None)
    assert pauses
    assert read_worker(database).chips == 8


def test_a_studio_on_a_disk_that_fills_up_goes_on_when_there_is_room(
    small_disk: Path, start_studio: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    studio = start_studio(small_disk)
    wait_for("the reserve", lambda: (small_disk / "reserve").exists())
    first = studio.submit(steps=12)
    studio.wait_for_step(first, 1)
    filler = fill(small_disk, keep=2**18)
    jobs = [first, *(identity for _ in range(4) if (identity := _try_to_submit(studio)) is not None)]
    health = wait_for("the truth", lambda: (h := studio.read("health"))["status"] == "failing" and h)
    assert "The disk is full" in [problem["title"] for problem in health["problems"]]
    pid = health["engine"]["pid"]
    os.kill(pid, 9)
    wait_for("the worker's end to be noticed", lambda: not Path(f"/proc/{pid}").exists())
    filler.unlink()
    wait_for("another worker", lambda: studio.read("health")["engine"]["pid"] not in (None, pid))
    for job in jobs:
        if studio.wait_for_state(job, "done", "failed")["state"] == "failed":
            assert studio.read(f"jobs/{job}")["error"]["title"] == "The worker was killed"
            studio.client.post(f"/api/v1/jobs/{job}/retry").raise_for_status()
            studio.wait_for_state(job, "done")
    wait_for("the studio to be well", lambda: studio.read("health")["status"] == "ok")
    assert "Traceback" not in studio.stop()


def _try_to_submit(studio: Any) -> str | None:
    answer = studio.client.post("/api/v1/jobs", json={"model": "demo-sdxl", "prompt": "A boat"})
    assert answer.status_code in (201, 507)
    return answer.json().get("id")
