"""What jobs cost: seconds times chips at the price of that moment, over all attempts, however they end."""

import time
from collections.abc import Callable

import pytest

from studio.database import Database
from studio.jobs import claims, queue, workers
from studio.jobs.costs import cost
from studio.jobs.job import Card, Job, move
from studio.jobs.states import JobState
from studio.jobs.workers import LOCAL

Submit = Callable[..., Job]
CARD = Card(title="No", detail="no", advice="")


@pytest.fixture
def machine_of_8(database: Database) -> None:
    with database.write() as tx:
        workers.equip(tx, LOCAL, chips=8, chip_price=3.6)


def run(database: Database, job: Job, to: JobState, *, seconds: float) -> Job:
    """One attempt that took so long."""
    claimed = claims.claim_next(database, resident=None)
    assert claimed is not None and claimed.id == job.id
    with database.write() as tx:
        tx.execute("UPDATE jobs SET held_from_s = held_from_s - ? WHERE id = ?", (seconds, job.id))
        ended = move(tx, job.id, to)
    assert ended is not None
    return ended


def test_a_job_costs_its_seconds_times_the_chips_and_money_where_a_price_is_set(
    database: Database, submit: Submit, machine_of_8: None
) -> None:
    job = run(database, submit(), JobState.DONE, seconds=1000)
    assert job.chip_seconds == pytest.approx(8000, rel=0.01)
    assert job.cost_usd == pytest.approx(8, rel=0.01)
    assert job.to_json()["cost_usd"] == job.cost_usd
    with database.write() as tx:
        workers.equip(tx, LOCAL, chips=8, chip_price=None)
    assert run(database, submit(), JobState.DONE, seconds=1000).cost_usd is None


def test_a_retry_adds_to_what_the_failed_attempt_cost(database: Database, submit: Submit, machine_of_8: None) -> None:
    job = run(database, submit(), JobState.FAILED, seconds=500)
    assert job.chip_seconds == pytest.approx(4000, rel=0.01)
    queue.retry(database, job.id, quota=10)
    assert run(database, job, JobState.DONE, seconds=1000).chip_seconds == pytest.approx(12_000, rel=0.01)


def test_what_never_started_costs_nothing(database: Database, submit: Submit, machine_of_8: None) -> None:
    job = submit()
    queue.cancel(database, job.id)
    ended = queue.read_job(database, job.id)
    assert ended is not None
    assert (ended.state, ended.chip_seconds, ended.cost_usd) == (JobState.CANCELLED, 0, None)
    assert cost.add_up(database) == []


def test_an_interrupted_job_costs_until_the_workers_last_sign_of_life(
    database: Database, submit: Submit, machine_of_8: None
) -> None:
    job = submit()
    claimed = claims.claim_next(database, resident=None)
    assert claimed is not None
    with database.write() as tx:
        tx.execute("UPDATE jobs SET held_from_s = held_from_s - 3600")
        tx.execute("UPDATE workers SET beat_s = (SELECT held_from_s FROM jobs) + 10")
    claims.interrupt_running(database)
    ended = queue.read_job(database, job.id)
    assert ended is not None
    assert ended.chip_seconds == pytest.approx(80, rel=0.01)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_while_a_job_runs_costs_nobody_an_hour(
    database: Database, submit: Submit, machine_of_8: None, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    jobs = [submit(), submit(batch_size=3)]
    claimed = claims.claim_next(database, resident=None)
    assert claimed is not None
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + jump_s)
    assert len(claims.claim_others(database, claimed, room=3)) == 1
    with database.write() as tx:
        tx.execute("UPDATE jobs SET held_from_s = held_from_s - 400")
        ended = [move(tx, job.id, JobState.DONE) for job in jobs]
    assert [job and job.chip_seconds for job in ended] == pytest.approx([800, 2400], rel=0.01)


def test_totals_are_each_owners(database: Database, submit: Submit, machine_of_8: None) -> None:
    run(database, submit(owner="ann"), JobState.DONE, seconds=100)
    run(database, submit(owner="bob"), JobState.FAILED, seconds=300)
    run(database, submit(owner="ann"), JobState.CANCELLED, seconds=100)
    bob, ann = cost.add_up(database)
    assert (bob.owner, bob.jobs, bob.chip_seconds) == ("bob", 1, pytest.approx(2400, rel=0.01))
    assert (ann.owner, ann.jobs, ann.chip_seconds) == ("ann", 2, pytest.approx(1600, rel=0.01))
    assert ann.cost_usd == pytest.approx(1.6, rel=0.01)


def test_jobs_of_one_batch_share_the_machine_by_their_outputs(
    database: Database, submit: Submit, machine_of_8: None
) -> None:
    first, other = submit(), submit(seed=20, batch_size=3)
    claimed = claims.claim_next(database, resident=None)
    assert claimed is not None
    with database.write() as tx:
        tx.execute(
            "UPDATE jobs SET held_from_s = held_from_s - 1000 WHERE id = ?", (first.id,)
        )  # alone with the machine
    (joined,) = claims.claim_others(database, queue.read_job(database, first.id), room=3)
    assert joined.id == other.id
    with database.write() as tx:
        tx.execute("UPDATE jobs SET held_from_s = held_from_s - 800")
        ended = [move(tx, job.id, JobState.DONE) for job in (first, other)]
    assert [job and job.chip_seconds for job in ended] == pytest.approx([8 * (1000 + 200), 8 * 600], rel=0.01)
    with database.write() as tx:
        tx.execute("UPDATE jobs SET state = 'failed' WHERE id = ?", (other.id,))
    queue.retry(database, other.id, quota=10)
    again = run(database, other, JobState.DONE, seconds=100)
    assert again.chip_seconds == pytest.approx(8 * 700, rel=0.01), "alone it pays for all of it"
