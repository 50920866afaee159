"""A worker knows nothing of the studio but its desk: the same one works for a database, and without any."""

import dataclasses
from collections.abc import Callable

from pipelines.errors import Cancelled
from pipelines.families.fake import FakeFamily
from pipelines.stages import Progress
from studio.database import Database
from studio.jobs import claims, queue, workers
from studio.jobs.job import Card, Job
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerState
from studio.worker.desk import Desk, Made
from studio.worker.local_desk import LocalDesk
from studio.worker.loop import Worker
from studio.worker.resident import Resident
from studio.worker.runners import RUNNERS
from tests.studio.worker.memory_desk import MemoryDesk

Submit = Callable[..., Job]


def sit_down(worker: Worker, desk: Desk) -> Worker:
    """Such a worker at another desk, with a model of its own."""
    resident = Resident(lambda model, _: FakeFamily(model, compile_s=0.0, step_s=0.0))
    return dataclasses.replace(worker, desk=desk, resident=resident)


def test_a_worker_makes_pictures_at_a_desk_without_a_studio(worker: Worker, submit: Submit) -> None:
    made, failing, unwanted = submit(), submit("fail please"), submit()
    desk = MemoryDesk(waiting=[made, failing, unwanted], cancelled={unwanted.id})
    alone = sit_down(worker, desk)
    while alone.run_next():
        pass
    files = [worker.settings.outputs_dir / file.file for file in desk.ended[made.id].files]
    assert [file.is_file() for file in files] == [True]
    assert desk.ended[made.id].made_with["device"] == "nothing"
    assert desk.ended[failing.id].title == "Failed as asked"
    assert desk.ended[unwanted.id] is None
    assert [progress.done for job, progress, _ in desk.told if (job, progress.phase) == (made.id, "denoising")] == [
        0,
        1,
        2,
    ]
    assert desk.states[-1] == (WorkerState.READY, "ready")
    assert len(desk.measured) == 1


def test_a_kind_of_job_is_a_runner_and_nothing_else(worker: Worker, database: Database, submit: Submit) -> None:
    recipe = submit().recipe
    (job,) = queue.submit_all(
        database, [queue.Wanted(recipe=recipe, programs="none", kind="count")], owner="local", quota=9
    )
    counted = []

    def count(bench: Worker, job: Job) -> None:
        bench.desk.report(job, Progress(phase="counting", done=1, total=1), eta_s=None)
        counted.append(job.id)
        nothing = Made(
            files=(), made_at=0.0, made_with={}, timings={"count_s": 1.0}, compiles=0, revision="", measured=None
        )
        bench.desk.finish(job, nothing)

    worker.runners = {**RUNNERS, "count": count}
    while worker.run_next():
        pass
    assert counted == [job.id]
    done = queue.read_job(database, job.id)
    assert (done.kind, done.state, done.phase, done.worker) == ("count", JobState.DONE, "counting", "local")
    assert done.timings == {"count_s": 1.0}


def test_what_a_runner_raises_ends_its_job(worker: Worker, database: Database, submit: Submit) -> None:
    def give_up(_bench: Worker, job: Job) -> None:
        raise Cancelled if job.recipe.seed == 1 else MemoryError

    worker.runners = {"generate": give_up}
    jobs = [submit(seed=seed) for seed in (1, 2)]
    worker.run_next(), worker.run_next()
    cancelled, failed = (queue.read_job(database, job.id) for job in jobs)
    assert (cancelled.state, failed.error["title"]) == (JobState.CANCELLED, "Out of memory")


def test_a_job_of_an_unknown_kind_fails_with_a_card(worker: Worker, database: Database, submit: Submit) -> None:
    recipe = submit().recipe
    (job,) = queue.submit_all(
        database, [queue.Wanted(recipe=recipe, programs="none", kind="juggle")], owner="local", quota=9
    )
    while worker.run_next():
        pass
    failed = queue.read_job(database, job.id)
    assert (failed.state, failed.error["title"]) == (JobState.FAILED, "The worker cannot run this job")
    assert "juggle" in failed.error["detail"]


def test_two_workers_share_one_queue_and_a_death_concerns_one(
    worker: Worker, database: Database, submit: Submit
) -> None:
    desk = LocalDesk(database, worker.settings, "second")
    desk.announce(WorkerState.STARTING, activity="starting", device="other")
    second = sit_down(worker, desk)
    jobs = [submit(seed=number) for number in range(6)]

    def die_while_the_other_works(bench: Worker, job: Job) -> None:
        """The second worker's process ends in the middle of its job; meanwhile the first one does its own."""
        assert bench.desk.report(job, Progress(phase="loading", total=1), eta_s=None)
        assert worker.run_next()
        claims.fail_running(database, Card(title="It died", detail="", advice=""), "second")
        assert not bench.desk.report(job, Progress(phase="loading", total=1), eta_s=None)
        raise Cancelled

    second.runners = {"generate": die_while_the_other_works}
    assert second.run_next()
    second.runners = RUNNERS
    for each in (second, worker, second, worker):
        assert each.run_next()
    ended = [queue.read_job(database, job.id) for job in jobs]
    assert [(job.state.value, job.worker, job.attempt) for job in ended] == [
        ("failed", "second", 1),
        *(("done", name, 1) for name in ("local", "second", "local", "second", "local")),
    ]
    assert [len(job.outputs) for job in ended] == [0, 1, 1, 1, 1, 1]
    assert len({row["id"] for row in database.read("SELECT id FROM outputs")}) == 5
    devices = {row["device"] for row in database.read("SELECT device FROM timings")}
    assert devices == {"", "other"}
    assert [row.model for row in workers.read_workers(database)] == [worker.default_model.id] * 2


def test_what_a_worker_made_of_a_job_that_it_lost_is_not_kept(
    worker: Worker, database: Database, submit: Submit
) -> None:
    """Between its last report and its end the job is taken away; then another attempt makes the same files."""
    lost = submit()

    class LateDesk(LocalDesk):
        def finish(self, job: Job, made: object) -> None:
            claims.requeue_running(database)
            if self.is_redone:
                worker.run_next()
            super().finish(job, made)

    for is_redone in (False, True):
        desk = LateDesk(database, worker.settings)
        desk.is_redone = is_redone
        sit_down(worker, desk).run_next()
        files = list(worker.settings.outputs_dir.rglob("*.png"))
        job = queue.read_job(database, lost.id)
        if is_redone:
            assert (job.state, job.attempt, len(files)) == (JobState.DONE, 3, 1)
            assert len(database.read("SELECT * FROM outputs")) == 1
        else:
            assert (job.state, len(files)) == (JobState.QUEUED, 0)
            assert database.read("SELECT * FROM outputs") == []
