"""The dispatcher against machines in this process: jobs end once, whoever is lost, silent, late or drained."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pipelines.messages import english, say
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.stages import Progress
from studio.cluster import dispatcher, giving, storing
from studio.cluster.dispatcher import Dispatcher
from studio.cluster.link import WorkerSilentError
from studio.cluster.protocol import Attachment
from studio.database import Database
from studio.events import read_after
from studio.jobs import claims, queue, workers
from studio.jobs.job import Card, Job
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerState
from studio.settings import Settings
from tests.studio.cluster.machines import Machine, Machines, until

Submit = Callable[..., Job]
STEP = Progress(phase="denoising", done=1, total=2)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        *((dispatcher, name) for name in ("PLACE_S", "RETRY_S")),
        *((giving, name) for name in ("GIVE_S", "IDLE_S", "AGAIN_S")),
        (storing, "RETRY_S"),
    ):
        monkeypatch.setattr(module, name, 0.02)


@asynccontextmanager
async def serve(
    settings: Settings, database: Database, cluster: Machines, *, lease_s: float = 20.0
) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(settings, database, cluster, lease_s=lease_s)
    serving = asyncio.create_task(dispatcher.run())
    try:
        yield dispatcher
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


def read(database: Database, job: Job) -> Job:
    found = queue.read_job(database, job.id)
    assert found is not None
    return found


def find_row(database: Database, worker: str = "two") -> workers.WorkerRow | None:
    return next((row for row in workers.read_workers(database) if row.id == worker), None)


def count_ends(database: Database, job: Job) -> int:
    return sum(event.kind == "job.done" and event.job_id == job.id for event in read_after(database, 0))


def is_done(database: Database, job: Job) -> Callable[[], Any]:
    return lambda: read(database, job).state is JobState.DONE


def test_a_job_goes_out_and_its_result_is_stored_as_a_local_workers_is(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    job, two = submit(), Machine(tmp_path / "two")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            taken = await until("the job", two.take)
            assert (taken.id, taken.attempt, taken.recipe) == (job.id, 1, job.recipe)
            assert two.desk.report(taken, STEP, eta_s=3.0)
            two.desk.save_preview(taken, b"jpeg")
            await until("a step", lambda: read(database, job).step == 1)
            assert (read(database, job).worker, read(database, job).eta_s) == ("two", 3.0)
            two.finish(taken)
            await until("its end", is_done(database, job))

    asyncio.run(work())
    (row,) = database.read("SELECT file, thumb FROM outputs")
    assert all((settings.outputs_dir / name).is_file() for name in row)
    assert not list((two.settings.outputs_dir).glob("*/*"))
    assert "ready" in read(database, job).notes
    worker = workers.read_worker(database, "two")
    assert (worker.node, worker.epoch, worker.state) == ("10.0.0.9", "first", WorkerState.READY)


def test_two_machines_run_two_jobs_at_once(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    for _ in range(2):
        submit()
    two, three = Machine(tmp_path / "two"), Machine(tmp_path / "three")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two, three=three)):
            first, second = await until("one", two.take), await until("the other", three.take)
            assert first.id != second.id

    asyncio.run(work())


def test_the_next_dispatcher_pulls_what_its_predecessor_did_not_store_and_nothing_twice(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    job, two = submit(), Machine(tmp_path / "two")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            taken = await until("the job", two.take)
            two.desk.report(taken, STEP, eta_s=None)
            await until("a step", lambda: read(database, job).step == 1)
        two.desk.report(taken, Progress(phase="denoising", done=2, total=2), eta_s=None)
        two.finish(taken)
        assert read(database, job).step == 1
        async with serve(settings, database, Machines(two=two)):
            await until("its end", is_done(database, job))
        with database.write() as tx:  # as if the last number had not been stored before the end
            tx.execute("UPDATE workers SET seen = 0 WHERE id = 'two'")
        two.desk.announce(WorkerState.BUSY, activity=read(database, job).notes[0])
        async with serve(settings, database, Machines(two=two)):
            await until("the worker", lambda: workers.read_worker(database, "two").state is WorkerState.BUSY)

    asyncio.run(work())
    assert (read(database, job).attempt, count_ends(database, job)) == (1, 1)
    assert len(database.read("SELECT 1 FROM outputs")) == 1


def test_a_job_that_was_claimed_but_never_arrived_goes_back_to_the_front(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    job, later, two = submit(), submit(), Machine(tmp_path / "two")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            await until("the worker", lambda: find_row(database))
            taken = await until("the job", two.take)
            two.finish(taken)
            await until("its end", is_done(database, job))
            await until("the next", two.take)

    asyncio.run(work())
    with database.write() as tx:
        tx.execute("UPDATE jobs SET attempt = attempt + 1 WHERE id = ?", (later.id,))  # claimed by who was killed then

    async def again() -> None:
        async with serve(settings, database, Machines(two=two)):
            await until("it to be cancelled there", lambda: [*two.desk._unwanted])
            assert read(database, later).state is JobState.QUEUED  # the zombie is still at it
            two.desk.end_cancelled(dataclasses.replace(read(database, later), attempt=1))
            taken = await until("it again", two.take)
            assert (taken.id, taken.attempt) == (later.id, 3)

    asyncio.run(again())


def test_a_worker_that_is_silent_for_a_moment_as_files_are_sent_gets_its_job_all_the_same(
    settings: Settings,
    database: Database,
    upload: Callable[..., str],
    make_recipe: Callable[..., Recipe],
    tmp_path: Path,
) -> None:
    two, silences = Machine(tmp_path / "two"), iter([True])
    store = two.store

    def store_later(one: Attachment, content: bytes) -> None:
        if next(silences, False):
            raise WorkerSilentError("away")
        store(one, content)

    two.store = store_later
    job = queue.submit(database, make_recipe(model="demo-sdxl", images=(upload("green"),)), owner="local")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            two.finish(await until("the job", two.take))
            await until("its end", is_done(database, job))

    asyncio.run(work())


def test_a_silent_worker_loses_its_job_after_the_lease_and_what_it_says_later_is_nothing(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    job, two, three = submit(), Machine(tmp_path / "two"), Machine(tmp_path / "three")

    async def work() -> None:
        cluster = Machines(two=two)
        async with serve(settings, database, cluster, lease_s=0.3):
            old = await until("the job", two.take)
            two.is_silent = True
            await until("it to be lost", lambda: read(database, job).state is JobState.QUEUED)
            assert two.was_ended
            assert workers.read_worker(database, "two").state is WorkerState.RESTARTING
            cluster.machines["three"] = three
            new = await until("the second attempt", three.take)
            assert (old.attempt, new.attempt) == (1, 2)
            two.finish(old)
            two.is_silent = False
            await until("the lost one to be back", lambda: workers.read_worker(database, "two").pid)
            await asyncio.sleep(0.1)
            assert read(database, job).state is JobState.RUNNING
            assert not database.read("SELECT 1 FROM outputs")
            three.finish(new)
            await until("its end", is_done(database, job))

    asyncio.run(work())
    assert (read(database, job).worker, count_ends(database, job)) == ("three", 1)


def test_a_worker_that_ends_is_noticed_at_once_and_its_next_process_works(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    job, first = submit(), Machine(tmp_path / "two")

    async def work() -> None:
        cluster = Machines(two=first)
        async with serve(settings, database, cluster):
            await until("the job", first.take)
            first.is_gone = True
            cluster.machines["two"] = second = Machine(tmp_path / "two", epoch="second")
            taken = await until("the second attempt", second.take)
            assert taken.attempt == 2
            second.finish(taken)
            await until("its end", is_done(database, job))

    asyncio.run(work())
    assert workers.read_worker(database, "two").epoch == "second"


def test_a_job_that_ends_two_machines_fails(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    job, first = submit(), Machine(tmp_path / "two")

    async def work() -> None:
        cluster = Machines(two=first)
        async with serve(settings, database, cluster):
            await until("the job", first.take)
            first.is_gone = True
            cluster.machines["two"] = second = Machine(tmp_path / "two", epoch="second")
            await until("the second attempt", second.take)
            second.is_gone = True
            await until("its end", lambda: read(database, job).state is JobState.FAILED)

    asyncio.run(work())
    assert (read(database, job).error or {})["title"] == "Two machines were lost while making this"


def test_who_cancels_is_heard_on_the_machine(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    job, two = submit(), Machine(tmp_path / "two")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            taken = await until("the job", two.take)
            with database.write() as tx:
                queue.ask_to_end(tx, job.id)
            await until("the wish to arrive", lambda: not two.desk.report(taken, STEP, eta_s=None))
            two.desk.end_cancelled(taken)
            await until("its end", lambda: read(database, job).state is JobState.CANCELLED)

    asyncio.run(work())


def test_a_card_of_a_failure_arrives_whole(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    job, two = submit(), Machine(tmp_path / "two")
    card = Card(title=english("Broken"), detail=english("It broke."), advice=english("Mend it."))

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            two.desk.fail(await until("the job", two.take), card)
            await until("its end", lambda: read(database, job).state is JobState.FAILED)

    asyncio.run(work())
    assert Card.from_json(read(database, job).error or {}) == card


def test_a_drained_worker_finishes_and_gets_no_more(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    job, waiting, two = submit(), submit(), Machine(tmp_path / "two")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            taken = await until("the job", two.take)
            with database.write() as tx:
                assert workers.set_draining(tx, "two")
                assert not workers.set_draining(tx, "nobody")
            two.finish(taken)
            await until("its end", is_done(database, job))
            await asyncio.sleep(0.2)
            assert two.take() is None

    asyncio.run(work())
    assert read(database, waiting).state is JobState.QUEUED


def test_a_pinned_worker_keeps_its_model_whatever_waits(
    settings: Settings, database: Database, submit: Submit, catalog: Any, tmp_path: Path
) -> None:
    mine, other = catalog.models[0].id, catalog.models[1].id
    submit(model=other)
    two = Machine(tmp_path / "two")
    two.is_pinned = True
    two.desk.announce(WorkerState.READY, activity=say("ready"), model=mine)

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            await until("the worker", lambda: (row := find_row(database)) and row.model == mine)
            await asyncio.sleep(0.2)
            assert two.take() is None
            own = submit(model=mine)
            taken = await until("its own", two.take)
            assert taken.id == own.id

    asyncio.run(work())
    assert workers.read_worker(database, "two").is_pinned


@pytest.mark.parametrize(("eta_s", "stays"), [(5.0, True), (60.0, False), (None, False)])
def test_a_machine_that_goes_away_finishes_what_it_can_in_its_notice(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path, *, eta_s: float | None, stays: bool
) -> None:
    job, two = submit(), Machine(tmp_path / "two")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            taken = await until("the job", two.take)
            two.desk.report(taken, STEP, eta_s=eta_s)
            two.outbox.put("leaving", None, {"notice_s": 25.0})
            await until("the notice", lambda: workers.read_worker(database, "two").is_draining)
            await asyncio.sleep(0.1)
            assert two.desk.report(taken, STEP, eta_s=eta_s) is stays

    asyncio.run(work())
    assert read(database, job).state is (JobState.RUNNING if stays else JobState.QUEUED)


def test_a_worker_of_another_version_gets_a_card_and_no_job(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    job, two = submit(), Machine(tmp_path / "two", version="0.0.1")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            found = await until("its card", lambda: [row for row in workers.read_workers(database) if row.id == "two"])
            assert "0.0.1" in found[0].error["detail"]

    asyncio.run(work())
    assert read(database, job).state is JobState.QUEUED


def test_pictures_and_loras_are_sent_once(
    settings: Settings,
    database: Database,
    make_recipe: Callable[..., Recipe],
    upload: Callable[..., str],
    add_lora: Callable[..., Path],
) -> None:
    add_lora("pixel", "sdxl")
    recipe = make_recipe(model="demo-sdxl", images=(upload("green"),)).model_copy(
        update={"loras": (Lora(ref="pixel"),)}
    )
    jobs = [queue.submit(database, recipe, owner="local") for _ in range(2)]
    two = Machine(settings.data_dir / "elsewhere")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            for job in jobs:
                taken = await until("the job", two.take)
                (picture,) = two.desk.find_inputs(taken)
                assert picture.is_file()
                assert (two.settings.loras_dir / "pixel.safetensors").is_file()
                two.finish(taken)
                await until("its end", is_done(database, job))

    asyncio.run(work())
    assert len(two.stored) == 2


def test_a_result_that_names_a_file_outside_is_not_written(
    settings: Settings, database: Database, submit: Submit, tmp_path: Path
) -> None:
    submit()
    two = Machine(tmp_path / "two")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            taken = await until("the job", two.take)
            two.finish(taken)
            (done,) = [told for told in two.outbox.pull(0, wait_s=0.0) if told.kind == "done"]
            done.blobs["../evil.png"] = b"evil"
            await until("it to be given up", lambda: two.was_ended)

    asyncio.run(work())
    assert not (settings.data_dir / "evil.png").exists()
    assert not database.read("SELECT 1 FROM outputs")


def test_nobody_holds_what_a_vanished_machine_held(settings: Settings, database: Database, submit: Submit) -> None:
    job = submit()
    with database.write() as tx:
        workers.describe(tx, "two", WorkerState.BUSY, activity=job.reason, epoch="old")
    assert claims.claim_next(database, "two", resident=None)
    with database.write() as tx:
        tx.execute("UPDATE jobs SET lease_until = 1")

    async def work() -> None:
        async with serve(settings, database, Machines()):
            await until("it to be back", lambda: read(database, job).state is JobState.QUEUED)
            await until("its row", lambda: workers.read_worker(database, "two").state is WorkerState.STOPPED)

    asyncio.run(work())
