"""The disk space of trainings: what is counted, what goes by itself and in which order, and what never does."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from pipelines.recipes.recipe import Recipe
from studio import events
from studio.database import Database
from studio.jobs import queue, trainings
from studio.jobs.job import TRAIN
from studio.jobs.queue import JobStateError, Wanted
from studio.jobs.states import JobState
from studio.jobs.training import AskedTraining
from studio.library import disk, training_room
from studio.settings import Settings

Make = Callable[..., str]
DAY_S = 24 * 3600.0
SYSTEM = "/api/v1/system"


@pytest.fixture
def make(database: Database, settings: Settings, make_recipe: Callable[..., Recipe]) -> Make:
    """Makes a training that ended so, so many days ago, with 100 bytes to go on from and 10 to show."""

    def make(state: JobState, days: float = 0.0) -> str:
        recipe = make_recipe("A zorb")
        asked = AskedTraining(model=recipe.model, name="zorb", pictures=())
        wanted = Wanted(recipe=recipe, programs="train", kind=TRAIN, title="zorb")
        job_id = trainings.submit(database, wanted, asked, name="zorb", owner="ada", quota=100).id
        with database.write() as tx:
            tx.execute("UPDATE jobs SET state = ?, finished_at = ? WHERE id = ?", (state, 1e9 - days * DAY_S, job_id))
            tx.execute("UPDATE trainings SET saved_step = 7 WHERE job_id = ?", (job_id,))
        for file, size in (("state/7/weights", 100), ("shown/000007-0.webp", 10)):
            (path := settings.training_dir / job_id / file).parent.mkdir(parents=True)
            path.write_bytes(bytes(size))
        return job_id

    return make


def has_state(settings: Settings, job_id: str) -> bool:
    return (settings.training_dir / job_id / "state").exists()


def free(database: Database, settings: Settings) -> str | None:
    freed = training_room.free_oldest(database, settings.training_dir, now_s=1e9)
    return freed and freed[0]


def test_cancelled_ones_go_first_then_old_failures_and_what_may_go_on_never(
    database: Database, settings: Settings, make: Make
) -> None:
    paused, running = make(JobState.PAUSED, 100), make(JobState.RUNNING, 100)
    fresh, old = make(JobState.FAILED, 6), make(JobState.INTERRUPTED, 8)
    later, first = make(JobState.CANCELLED, 0), make(JobState.CANCELLED, 1)
    assert training_room.measure_ended(database, settings.training_dir) == (400, 4)
    assert [free(database, settings) for _ in range(4)] == [first, later, old, None]
    assert {job_id for job_id in (paused, running, fresh) if has_state(settings, job_id)} == {paused, running, fresh}
    assert not any(has_state(settings, job_id) for job_id in (old, later, first))
    assert (settings.training_dir / first / "shown" / "000007-0.webp").is_file()
    assert {entry.name for entry in settings.training_dir.iterdir()} == {paused, running, fresh, old, later, first}


def test_that_it_begins_anew_is_said_and_its_old_curve_goes_then(
    database: Database, settings: Settings, make: Make
) -> None:
    job_id = make(JobState.CANCELLED)
    with database.write() as tx:
        tx.execute("INSERT INTO training_points (job_id, step, loss, learning_rate) VALUES (?, 7, 0.1, 0.1)", (job_id,))
    free(database, settings)
    training = trainings.read_training(database, job_id)
    assert training is not None and training.saved_step == 0
    job = queue.read_job(database, job_id)
    assert job is not None and job.notes == ["What it had learnt was deleted to make room; it begins anew."]
    [told] = [event for event in events.read_after(database, 0) if event.kind == "training.saved"]
    assert (told.owner, json.loads(told.data)) == ("ada", {"step": 0})
    assert len(trainings.read_points(database, job_id)) == 1
    assert queue.retry(database, job_id).notes == []
    assert trainings.read_points(database, job_id) == []


def test_a_done_or_deleted_training_is_not_queued_and_keeps_its_curve(
    database: Database, settings: Settings, make: Make
) -> None:
    done, deleted = make(JobState.DONE), make(JobState.CANCELLED)
    trainings.forget(database, deleted)
    with database.write() as tx:
        tx.execute("UPDATE trainings SET saved_step = 0 WHERE job_id = ?", (done,))
        tx.execute("INSERT INTO training_points (job_id, step, loss, learning_rate) VALUES (?, 7, 0.1, 0.1)", (done,))
    for job_id in (done, deleted):
        with pytest.raises(JobStateError):
            queue.retry(database, job_id)
    assert len(trainings.read_points(database, done)) == 1


def test_what_an_earlier_deletion_left_does_not_stop_the_next(
    database: Database, settings: Settings, make: Make
) -> None:
    job_id = make(JobState.CANCELLED)
    torn = settings.training_dir / f"{training_room.GONE}{job_id}"
    (torn / "state").mkdir(parents=True)
    (torn / "state" / "weights").write_bytes(bytes(5))
    assert free(database, settings) == job_id
    assert {entry.name for entry in settings.training_dir.iterdir()} == {job_id}


def test_trainings_count_for_the_quota_and_make_room_by_themselves(
    database: Database, settings: Settings, make: Make
) -> None:
    make(JobState.CANCELLED)
    paused = make(JobState.PAUSED)
    assert disk.measure(settings) == 220
    disk.keep_below(database, settings, limit_bytes=150)
    assert (disk.measure(settings), has_state(settings, paused)) == (120, True)
    disk.keep_below(database, settings, limit_bytes=50)
    assert has_state(settings, paused)


def test_the_folder_of_a_deleted_training_goes_at_the_next_start_and_a_strangers_stays(
    database: Database, settings: Settings, make: Make
) -> None:
    kept, deleted = make(JobState.CANCELLED), make(JobState.CANCELLED)
    trainings.forget(database, deleted)
    for name in ("of-a-newer-database", f"{training_room.GONE}half"):
        (settings.training_dir / name).mkdir()
    assert training_room.forget_strangers(database, settings.training_dir) == 2
    assert {entry.name for entry in settings.training_dir.iterdir()} == {kept, "of-a-newer-database"}


def test_the_system_page_shows_and_clears_what_ended_trainings_take(
    client: TestClient, database: Database, settings: Settings, make: Make
) -> None:
    ended, paused, runs = make(JobState.FAILED), make(JobState.PAUSED), make(JobState.RUNNING)
    read: Path = settings.training_cache_dir / "ab" / "rows"
    read.parent.mkdir(parents=True)
    read.write_bytes(bytes(5))
    parts = {part["name"]: part["bytes"] for part in client.get(f"{SYSTEM}/disk").json()["parts"]}
    assert (parts["trainings"], parts["training cache"]) == (330, 5)
    assert client.get(f"{SYSTEM}/cache").json()["trainings"] == {"bytes": 105, "files": 2, "is_compiling": False}
    refused = client.post(f"{SYSTEM}/cache/clear", json={"what": "trainings", "anyway": True})
    assert (refused.status_code, has_state(settings, ended)) == (409, True)
    with database.write() as tx:
        tx.execute("UPDATE jobs SET state = 'done' WHERE id = ?", (runs,))
    freed = client.post(f"{SYSTEM}/cache/clear", json={"what": "trainings"}).json()
    assert (freed["bytes"], freed["files"]) == (105, 2)
    assert (has_state(settings, ended), has_state(settings, paused)) == (False, True)
