"""What people do with their whole line, and that it never touches somebody else's."""

from collections.abc import Callable

import pytest

from pipelines.models.catalog import Catalog
from studio import events
from studio.database import Database
from studio.jobs import arrange, claims, queue
from studio.jobs.arrange import Scope
from studio.jobs.job import Card, Job
from studio.jobs.line.plan import PAUSED
from studio.jobs.queue import JobStateError, QueueQuotaError, Wanted
from studio.jobs.states import JobState

Submit = Callable[..., Job]
CARD = Card(title="Broken", detail="It broke.", advice="Mend it.")


def read_order(database: Database, owner: str = "local") -> list[str]:
    """Prompts as they will run."""
    waiting = queue.list_jobs(database, owner=owner, state=JobState.QUEUED)
    return [job.recipe.prompt for job in sorted(waiting, key=lambda job: job.position or 0)]


def run_next(database: Database, resident: str | None = None) -> Job:
    """Claims the next job and ends it."""
    job = claims.claim_next(database, resident=resident)
    assert job is not None
    claims.fail(database, job, CARD)
    return job


def test_a_moved_job_runs_where_it_was_put(database: Database, submit: Submit) -> None:
    first, second, third = (submit(name) for name in ("first", "second", "third"))
    arrange.place_before(database, third.id, first.id, owner="local")
    arrange.place_before(database, first.id, None, owner="local")
    assert read_order(database) == ["third", "second", "first"]
    assert [run_next(database).id for _ in range(3)] == [third.id, second.id, first.id]


def test_a_later_job_comes_after_the_moved_ones(database: Database, submit: Submit) -> None:
    first, _ = submit("first"), submit("second")
    arrange.place_before(database, first.id, None, owner="local")
    submit("third")
    assert read_order(database) == ["second", "first", "third"]


def test_the_order_that_was_shown_is_the_one_that_is_changed(
    database: Database, submit: Submit, catalog: Catalog
) -> None:
    """The resident model's jobs were shown first; moving one of them does not bring the other ones back."""
    resident, other = catalog.models[0].id, catalog.models[1].id
    with database.write() as tx:
        tx.execute("UPDATE workers SET model = ?", (resident,))
    submit("other", model=other)
    for name in ("a", "b", "c"):
        submit(name, model=resident)
    assert read_order(database) == ["a", "b", "c", "other"]
    by_prompt = {job.recipe.prompt: job for job in queue.list_jobs(database, owner="local")}
    arrange.place_before(database, by_prompt["c"].id, by_prompt["a"].id, owner="local")
    assert read_order(database) == ["c", "a", "b", "other"]
    arrange.place_before(database, by_prompt["other"].id, by_prompt["a"].id, owner="local")
    assert read_order(database) == ["c", "other", "a", "b"]
    assert [run_next(database, resident).recipe.prompt for _ in range(2)] == ["c", "other"]


def test_a_move_touches_only_ones_own_places(database: Database, submit: Submit) -> None:
    submit("hers 1", owner="her")
    mine = [submit("mine 1"), submit("mine 2")]
    submit("hers 2", owner="her")
    arrange.place_before(database, mine[1].id, mine[0].id, owner="local")
    assert (read_order(database), read_order(database, "her")) == (["mine 2", "mine 1"], ["hers 1", "hers 2"])


def test_a_job_that_waits_no_longer_cannot_be_moved_nor_moved_to(database: Database, submit: Submit) -> None:
    started, waiting, hers = submit(), submit(), submit(owner="her")
    claims.claim_next(database, resident=None)
    for job, before in ((started, waiting.id), (waiting, started.id), (waiting, hers.id)):
        with pytest.raises(JobStateError, match="does not wait any more"):
            arrange.place_before(database, job.id, before, owner="local")


def test_a_retried_job_goes_to_the_end_without_its_old_place(database: Database, submit: Submit) -> None:
    first, _, third = (submit(name) for name in ("first", "second", "third"))
    arrange.place_before(database, third.id, first.id, owner="local")
    assert run_next(database).id == third.id
    again = queue.retry(database, third.id)
    assert not again.is_placed
    assert read_order(database) == ["first", "second", "third"]


def test_paused_jobs_wait_and_the_others_go_on(database: Database, submit: Submit) -> None:
    mine, hers = submit(), submit(owner="her")
    arrange.pause(database, owner="local")
    arrange.pause(database, owner="local")
    found = queue.read_job(database, mine.id)
    assert (found.reason, found.eta_s, found.position) == (PAUSED, None, 2)
    assert run_next(database).id == hers.id
    assert claims.claim_next(database, resident=None) is None
    arrange.resume(database, owner="local")
    assert not arrange.is_paused(database, owner="local")
    assert run_next(database).id == mine.id


def test_owners_take_turns_in_what_the_worker_claims(database: Database, submit: Submit) -> None:
    for number in range(3):
        submit(f"hers {number}", owner="her")
    submit("his", owner="his")
    assert [run_next(database).recipe.prompt for _ in range(4)] == ["hers 0", "his", "hers 1", "hers 2"]


def test_many_are_cancelled_and_only_ones_own(database: Database, submit: Submit) -> None:
    running, hers = submit(), submit(owner="her")
    claims.claim_next(database, resident=None)
    waiting = [submit(), submit()]
    assert arrange.cancel_many(database, Scope.WAITING, owner="local") == 2
    assert {queue.read_job(database, job.id).state for job in waiting} == {JobState.CANCELLED}
    assert not queue.read_job(database, running.id).cancel_requested
    assert arrange.cancel_many(database, Scope.ALL, owner="local") == 1
    assert queue.read_job(database, running.id).cancel_requested
    assert queue.read_job(database, hers.id).state is JobState.QUEUED


def test_clearing_takes_ended_jobs_off_the_list_and_keeps_them(database: Database, submit: Submit) -> None:
    ended, waiting = submit(), submit()
    claims.fail(database, claims.claim_next(database, resident=None), CARD)
    assert arrange.clear_ended(database, owner="her") == 0
    assert arrange.clear_ended(database, owner="local") == 1
    assert arrange.clear_ended(database, owner="local") == 0
    assert queue.read_job(database, ended.id).is_cleared
    assert not queue.read_job(database, waiting.id).is_cleared
    assert not queue.retry(database, ended.id).is_cleared


def test_every_change_of_the_line_is_told_to_its_owner(database: Database, submit: Submit) -> None:
    job = submit()
    arrange.pause(database, owner="local")
    arrange.place_before(database, job.id, None, owner="local")
    arrange.resume(database, owner="local")
    told = [event.to_json() for event in events.read_after(database, 1)]
    assert [(event["kind"], event["is_paused"]) for event in told] == [
        ("queue.changed", True),
        ("queue.changed", True),
        ("queue.changed", False),
    ]


def test_an_edited_job_keeps_its_place(database: Database, submit: Submit, make_recipe: Callable[..., object]) -> None:
    first, _ = submit("first"), submit("second")
    queue.edit(database, first.id, Wanted(recipe=make_recipe("edited", steps=9), programs="256x256"))
    assert read_order(database) == ["edited", "second"]
    assert claims.claim_next(database, resident=None).steps == 9
    with pytest.raises(JobStateError, match="does not wait any more"):
        queue.edit(database, first.id, Wanted(recipe=make_recipe("too late"), programs="256x256"))


def test_a_full_line_takes_nobody_else(database: Database, submit: Submit, make_recipe: Callable[..., object]) -> None:
    failed = submit()
    run_next(database)
    wanted = [Wanted(recipe=make_recipe(name), programs="256x256") for name in ("a", "b")]
    assert len(queue.submit_all(database, wanted, owner="local", quota=3)) == 2
    with pytest.raises(QueueQuotaError, match="2 of your jobs wait already, 2 more do not fit; 3 may wait"):
        queue.submit_all(database, wanted, owner="local", quota=3)
    assert read_order(database) == ["a", "b"]
    with pytest.raises(QueueQuotaError):
        queue.retry(database, failed.id, quota=2)
    assert queue.read_job(database, failed.id).state is JobState.FAILED
    assert queue.submit_all(database, wanted, owner="her", quota=2)
