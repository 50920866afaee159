"""The worker's side: one claim a job, honest reports, and ends that are never overwritten."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.models.catalog import Catalog
from pipelines.stages import Progress
from studio import events
from studio.database import Database
from studio.jobs import claims, queue, workers
from studio.jobs.job import Card, Job, append_event, move
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerState
from tests.load.choices import measure_claims

Submit = Callable[..., Job]
CARD = Card(title="Broken", detail="It broke.", advice="Mend it.")
STEP = Progress(phase="denoising", done=1, total=2)


def test_a_job_is_claimed_once(database: Database, submit: Submit) -> None:
    job = submit()
    assert claims.claim_next(database, resident=None).id == job.id
    assert claims.claim_next(database, resident=None) is None


def test_a_job_of_the_model_in_memory_overtakes_until_another_one_has_waited_too_long(
    database: Database, submit: Submit, catalog: Catalog
) -> None:
    default = catalog.default.id
    waiting, overtaker, next_one = submit(model=catalog.models[1].id), submit(), submit()
    assert claims.find_next_model(database, resident=default) == default
    assert claims.claim_next(database, resident=default).id == overtaker.id
    with database.write() as tx:
        workers.describe(tx, workers.LOCAL, WorkerState.READY, activity="ready", model=default)
        tx.execute("UPDATE workers SET model_since = 0")
        tx.execute("UPDATE jobs SET queued_at = queued_at - 61 WHERE id = ?", (waiting.id,))
        append_event(tx, waiting, "job.queued")
    assert claims.claim_next(database, resident=default).id == waiting.id
    assert claims.claim_next(database, resident=default).id == next_one.id


def test_a_draining_worker_gets_nothing_and_counts_for_no_model(
    database: Database, submit: Submit, catalog: Catalog
) -> None:
    default, other = catalog.models[0].id, catalog.models[1].id
    with database.write() as tx:
        workers.describe(tx, "second", WorkerState.READY, activity="ready", model=other, is_draining=True)
        workers.describe(tx, workers.LOCAL, WorkerState.READY, activity="ready", model=default)
    job = submit(model=other)
    assert claims.claim_next(database, "second", resident=other) is None
    assert claims.claim_next(database, resident=default).id == job.id


def test_what_was_rolled_back_is_not_in_the_line(database: Database, submit: Submit) -> None:
    kept = submit("kept")
    assert claims.find_next_model(database, resident=None) == kept.recipe.model

    with pytest.raises(ZeroDivisionError), database.write() as tx:
        queue.ask_to_end(tx, kept.id)
        raise ZeroDivisionError
    assert claims.claim_next(database, resident=None).id == kept.id
    assert claims.claim_next(database, resident=None) is None


def test_a_line_longer_than_the_log_of_events_is_read_anew(database: Database, submit: Submit) -> None:
    first = submit()
    assert claims.find_next_model(database, resident=None)
    second = submit()
    queue.cancel(database, first.id)
    with database.write() as tx:
        tx.execute("DELETE FROM events WHERE id < (SELECT max(id) FROM events)")
    assert claims.claim_next(database, resident=None).id == second.id


def test_a_report_is_stored_and_told(database: Database, submit: Submit) -> None:
    submit()
    job = claims.claim_next(database, resident=None)
    assert claims.report(database, job, STEP, eta_s=3.0)
    found = queue.read_job(database, job.id)
    assert (found.phase, found.step, found.eta_s) == ("denoising", 1, 3.0)
    told = events.read_after(database, 0)[-1].to_json()
    assert (told["kind"], told["step"], told["steps"], told["eta_s"]) == ("job.step", 1, 2, 3.0)


def test_a_report_of_a_cancelled_job_says_stop(database: Database, submit: Submit) -> None:
    submit()
    job = claims.claim_next(database, resident=None)
    queue.cancel(database, job.id)
    assert not claims.report(database, job, STEP, eta_s=None)


def test_a_worker_that_lost_its_job_cannot_change_it(database: Database, submit: Submit) -> None:
    submit()
    job = claims.claim_next(database, resident=None)
    claims.interrupt_running(database)
    before = queue.read_job(database, job.id)
    assert before.state is JobState.INTERRUPTED
    assert before.error["advice"]
    last_id = events.read_last_id(database)

    write_everything(database, job)
    assert queue.read_job(database, job.id) == before
    assert events.read_last_id(database) == last_id


def write_everything(database: Database, job: Job) -> None:
    """All that a worker writes of a job that it believes to hold, none of which may be taken."""
    assert not claims.report(database, job, STEP, eta_s=None)
    claims.save_preview(database, job, b"late")
    claims.fail(database, job, CARD)
    claims.end_cancelled(database, job)
    with database.write() as tx:
        assert claims.finish(tx, job, outputs=[], timings={}, compiles=0, revision="") is None
    assert claims.claim_others(database, job, room=8) == []


@pytest.fixture
def second(database: Database) -> str:
    """Another worker beside the local one."""
    with database.write() as tx:
        workers.describe(tx, "second", WorkerState.READY, activity="ready")
        workers.equip(tx, "second", chips=4, chip_price=None)
    return "second"


@pytest.mark.parametrize("is_same_worker", [True, False])
def test_an_earlier_attempt_cannot_change_a_job_that_runs_again(
    database: Database, submit: Submit, second: str, *, is_same_worker: bool
) -> None:
    submit()
    zombie = claims.claim_next(database, resident=None)
    claims.requeue_running(database)
    now = claims.claim_next(database, zombie.worker if is_same_worker else second, resident=None)
    assert (now.id, zombie.attempt, now.attempt) == (zombie.id, 1, 2)
    waiting = submit()
    claims.save_preview(database, now, b"mine")
    before, last_id = queue.read_job(database, now.id), events.read_last_id(database)

    write_everything(database, zombie)
    assert queue.read_job(database, now.id) == before
    assert queue.read_job(database, waiting.id).state is JobState.QUEUED
    assert [row["jpeg"] for row in database.read("SELECT jpeg FROM previews")] == [b"mine"]
    assert events.read_last_id(database) == last_id
    assert claims.report(database, now, STEP, eta_s=None)


def test_a_retry_keeps_counting_attempts(database: Database, submit: Submit) -> None:
    job = submit()
    claims.fail(database, claims.claim_next(database, resident=None), CARD)
    waiting = queue.retry(database, job.id)
    assert (waiting.worker, waiting.attempt) == (None, 1)
    assert claims.claim_next(database, resident=None).attempt == 2


def test_what_ends_a_workers_jobs_leaves_those_of_others(database: Database, submit: Submit, second: str) -> None:
    jobs = [submit(seed=number) for number in range(4)]
    mine = claims.claim_next(database, resident=None)
    others = claims.claim_next(database, second, resident=None)
    assert [mine.id, others.id] == [job.id for job in jobs[:2]]
    for end in (claims.interrupt_running, claims.requeue_running):
        end(database)
        assert not claims.has_running(database)
        assert claims.has_running(database, second)
        mine = claims.claim_next(database, resident=None)
    claims.fail_running(database, CARD, second)
    assert queue.read_job(database, others.id).error == CARD.to_json()
    assert claims.report(database, mine, STEP, eta_s=None)


def test_jobs_share_only_the_machine_of_their_own_worker(database: Database, submit: Submit, second: str) -> None:
    with database.write() as tx:
        workers.equip(tx, workers.LOCAL, chips=8, chip_price=None)
    for number in range(3):
        submit(seed=number)
    first = claims.claim_next(database, resident=None)
    (company,) = claims.claim_others(database, first, room=1)
    alone = claims.claim_next(database, second, resident=None)
    with database.write() as tx:
        tx.execute("UPDATE jobs SET held_from_s = held_from_s - 10")
        for job in (first, company, alone):
            move(tx, job.id, JobState.DONE)
    costs = [queue.read_job(database, job.id).chip_seconds for job in (first, company, alone)]
    assert costs == pytest.approx([40, 40, 40], rel=0.01), "half of eight chips, and all of four"


def test_a_sign_of_life_renews_the_leases_of_a_workers_jobs(database: Database, submit: Submit, second: str) -> None:
    submit(), submit()
    jobs = [claims.claim_next(database, worker, resident=None) for worker in (workers.LOCAL, second)]
    with database.write() as tx:
        tx.execute("UPDATE jobs SET lease_until = 0")

    def read_leases() -> list[bool]:
        rows = database.read("SELECT lease_until > started_at AS holds FROM jobs ORDER BY position")
        return [bool(row["holds"]) for row in rows]

    workers.beat(database, second)
    assert read_leases() == [False, True]
    assert claims.report(database, jobs[0], STEP, eta_s=None)
    assert read_leases() == [True, True]
    claims.fail(database, jobs[0], CARD)
    assert database.read_one("SELECT lease_until FROM jobs WHERE id = ?", (jobs[0].id,))["lease_until"] is None


def test_only_the_latest_preview_is_kept_and_none_after_the_end(database: Database, submit: Submit) -> None:
    submit()
    job = claims.claim_next(database, resident=None)
    for jpeg in (b"first", b"second"):
        claims.save_preview(database, job, jpeg)
    assert [(row["version"], row["jpeg"]) for row in database.read("SELECT * FROM previews")] == [(2, b"second")]
    claims.fail(database, job, CARD)
    assert database.read("SELECT * FROM previews") == []


def test_a_dead_workers_job_fails_with_the_card(database: Database, submit: Submit) -> None:
    running, waiting = submit(), submit()
    claims.claim_next(database, resident=None)
    claims.fail_running(database, CARD)
    assert queue.read_job(database, running.id).error == CARD.to_json()
    assert queue.read_job(database, waiting.id).state is JobState.QUEUED


def test_old_events_go_and_the_rest_stay_contiguous(database: Database) -> None:
    with database.write() as tx:
        for _ in range(events.KEPT_EVENTS + 5):
            events.append(tx, kind="engine.state", owner=events.EVERYBODY, job_id=None, data={})
    events.forget_old(database)
    ids = [event.id for event in events.read_after(database, 0, limit=events.KEPT_EVENTS * 2)]
    assert ids == list(range(6, events.KEPT_EVENTS + 6))


def test_a_job_that_was_not_finished_goes_back_in_front_as_if_never_begun(database: Database, submit: Submit) -> None:
    first, second = submit(seed=5), submit()
    claimed = claims.claim_next(database, resident=None)
    assert claimed.id == first.id
    assert claims.has_running(database)
    claims.report(database, claimed, STEP, eta_s=3.0)
    claims.save_preview(database, claimed, b"jpeg")
    claims.requeue_running(database)
    assert not claims.has_running(database)
    found = queue.read_job(database, first.id)
    assert (found.state, found.position, found.step, found.phase) == (JobState.QUEUED, 1, 0, "")
    assert (found.started_at, found.error, found.recipe.seed) == (None, None, 5)
    assert queue.read_job(database, second.id).position == 2
    assert database.read("SELECT * FROM previews") == []
    assert events.read_after(database, 0)[-1].kind == "job.queued"
    assert claims.claim_next(database, resident=None).id == first.id


def test_a_job_that_somebody_cancelled_is_not_put_back(database: Database, submit: Submit) -> None:
    job = submit()
    claims.claim_next(database, resident=None)
    queue.cancel(database, job.id)
    claims.requeue_running(database)
    assert queue.read_job(database, job.id).state is JobState.CANCELLED


def test_jobs_that_were_not_finished_go_back_in_their_order(database: Database, submit: Submit) -> None:
    jobs = [submit(seed=number) for number in range(4)]
    order = [jobs[number].id for number in (2, 0, 1)]
    with database.write() as tx:
        tx.executemany("UPDATE jobs SET position = ? WHERE id = ?", [(n, job) for n, job in enumerate(order)])
    first = claims.claim_next(database, resident=None)
    claims.claim_others(database, first, room=2)
    claims.requeue_running(database)
    claimed = [claims.claim_next(database, resident=None).id for _ in jobs]
    assert claimed == [*order, jobs[3].id]


def test_a_claim_costs_the_same_however_many_jobs_wait(tmp_path: Path) -> None:
    """72 ms with 10 000 jobs in line before the line was kept in memory; `python -m tests.load.choices` measures it."""
    took_s = measure_claims(tmp_path, 600, claimed=60)
    assert sorted(took_s)[len(took_s) // 2] < 0.004
