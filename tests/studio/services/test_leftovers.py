"""What a killed worker left goes at the next start; what may be all that is left of a picture stays."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from studio.database import Database
from studio.jobs import claims, queue
from studio.jobs.job import Card, Job
from studio.services import leftovers
from studio.settings import Settings
from studio.worker.loop import Worker

DAY = "2026-01-01"


@pytest.fixture
def leave(settings: Settings) -> Callable[..., list[Path]]:
    """Files of a job's output as a killed worker leaves them, `late_s` after now."""

    def leave(job_id: str, *, late_s: float = 0.0, day: str = DAY) -> list[Path]:
        files = [settings.outputs_dir / day / f"{job_id}-0{suffix}" for suffix in (".png", ".thumb.webp")]
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            os.utime(file, (time.time() + late_s,) * 2)
        return files

    return leave


def exist(files: list[Path]) -> set[bool]:
    return {file.exists() for file in files}


def test_files_of_a_job_whose_worker_or_server_was_killed_are_deleted(
    settings: Settings, database: Database, submit: Callable[..., Job], leave: Callable[..., list[Path]]
) -> None:
    failed, running = submit(), submit()
    for _ in range(2):
        job = claims.claim_next(database, resident=None)
        if job.id == failed.id:
            claims.fail(database, job, Card(title="The worker was killed", detail="", advice=""))
    torn = settings.outputs_dir / DAY / f".{failed.id}-1.part.png"
    files = leave(failed.id) + leave(running.id, late_s=-1)
    torn.touch()
    with database.write() as tx:
        tx.execute("UPDATE workers SET heartbeat_at = ?", (time.time(),))
    assert leftovers.sweep_outputs(settings.outputs_dir, database) == (4, 0)
    assert exist(files) == {False}
    queue.retry(database, failed.id)
    assert leftovers.sweep_outputs(settings.outputs_dir, database) == (0, 0)


def test_what_an_older_database_does_not_know_stays(
    settings: Settings, database: Database, submit: Callable[..., Job], leave: Callable[..., list[Path]]
) -> None:
    waiting = submit()
    files = leave("unknown") + leave(waiting.id, late_s=600)
    assert leftovers.sweep_outputs(settings.outputs_dir, database) == (0, 4)
    assert exist(files) == {True}


def test_outputs_with_rows_stay_and_torn_files_go(
    settings: Settings, database: Database, submit: Callable[..., Job], worker: Worker
) -> None:
    for fields in ({"batch_size": 2}, {"model": "clips"}):
        submit(**fields)
        worker.run_next()
    before = sorted(settings.outputs_dir.rglob("*.*"))
    settings.uploads_dir.mkdir()
    (settings.uploads_dir / ".abc.1234.part.png").touch()
    leftovers.sweep(settings, database)
    assert sorted(settings.outputs_dir.rglob("*.*")) == before
    assert not [*settings.uploads_dir.iterdir()]


def test_an_upload_that_was_never_answered_goes_and_what_a_newer_database_may_know_stays(
    settings: Settings, database: Database, submit: Callable[..., Job], upload: Callable[..., str]
) -> None:
    upload()
    kept = sorted(file.name for file in settings.uploads_dir.iterdir())
    submit()  # from now on the database knows of this moment
    now = time.time()
    for number, at in ((1, now - 60), (2, now + 600)):
        for suffix in (".png", ".thumb.webp"):
            file = settings.uploads_dir / f"{number:064x}{suffix}"
            file.touch()
            os.utime(file, (at, at))
    (settings.uploads_dir / "notes.txt").touch()
    assert leftovers.sweep_uploads(settings.uploads_dir, database) == 2
    names = {file.name for file in settings.uploads_dir.iterdir()}
    assert names == {*kept, "notes.txt", f"{2:064x}.png", f"{2:064x}.thumb.webp"}
