"""People's side: submitting, cancelling, retrying, and what waiting jobs are told."""

import json
from collections.abc import Callable

import pytest

from pipelines.errors import RecipeError
from pipelines.models.catalog import Catalog
from studio import events
from studio.database import Database
from studio.jobs import claims, queue, workers
from studio.jobs.costs.estimates import Measured, record
from studio.jobs.job import Card, Job
from studio.jobs.queue import JobStateError
from studio.jobs.states import MOVES, JobState
from studio.jobs.workers import LOCAL, WorkerState

Submit = Callable[..., Job]
CARD = Card(title="Broken", detail="It broke.", advice="Mend it.")


def read_kinds(database: Database) -> list[str]:
    return [event.kind for event in events.read_after(database, 0)]


def test_a_submitted_job_waits_and_says_so(database: Database, submit: Submit) -> None:
    job = submit()
    assert queue.read_job(database, job.id).state is JobState.QUEUED
    assert read_kinds(database) == ["job.queued"]


def test_a_recipe_names_the_owners_uploads_by_id(submit: Submit, upload: Callable[..., str]) -> None:
    images = [upload("red"), upload("blue")]
    assert list(submit(model="flux2-klein-4b", images=images).recipe.images) == images


def test_paths_and_other_peoples_pictures_are_refused_and_nothing_is_queued(
    database: Database, submit: Submit, upload: Callable[..., str]
) -> None:
    for image in ("/etc/passwd", "upload-0", upload(owner="her")):
        with pytest.raises(RecipeError, match=f"images: there is no picture '{image}'"):
            submit(model="flux2-klein-4b", images=[image])
    assert queue.list_jobs(database, owner="local") == []
    assert read_kinds(database) == []


def test_every_state_has_a_meaning_and_a_way_in() -> None:
    assert all(state.meaning for state in JobState)
    assert set(MOVES) == set(JobState)


def test_a_waiting_job_is_cancelled_at_once(database: Database, submit: Submit) -> None:
    job = submit()
    queue.cancel(database, job.id)
    assert queue.read_job(database, job.id).state is JobState.CANCELLED
    assert read_kinds(database) == ["job.queued", "job.cancelled"]


def test_a_running_job_is_asked_to_end(database: Database, submit: Submit) -> None:
    job = submit()
    claims.claim_next(database, resident=None)
    queue.cancel(database, job.id)
    found = queue.read_job(database, job.id)
    assert (found.state, found.cancel_requested) == (JobState.RUNNING, True)


def test_cancelling_an_ended_job_changes_nothing(database: Database, submit: Submit) -> None:
    job = submit()
    claims.fail(database, claims.claim_next(database, resident=None), CARD)
    before = queue.read_job(database, job.id)
    queue.cancel(database, job.id)
    assert queue.read_job(database, job.id) == before


def test_a_failed_job_can_run_again_with_the_same_seed(database: Database, submit: Submit) -> None:
    job = submit()
    submit("a later one")
    claims.fail(database, claims.claim_next(database, resident=None), CARD)
    again = queue.retry(database, job.id)
    assert (again.id, again.state, again.error, again.step) == (job.id, JobState.QUEUED, None, 0)
    assert again.recipe == job.recipe
    assert claims.claim_next(database, resident=None).recipe.prompt == "a later one"


@pytest.mark.parametrize("is_running", [False, True])
def test_a_job_that_has_not_ended_cannot_be_retried(database: Database, submit: Submit, *, is_running: bool) -> None:
    job = submit()
    if is_running:
        claims.claim_next(database, resident=None)
    with pytest.raises(JobStateError, match="only a failed, cancelled, interrupted or paused job"):
        queue.retry(database, job.id)


def test_lists_are_newest_first_and_only_ones_own(database: Database, submit: Submit) -> None:
    first, second = submit("first"), submit("second")
    submit("somebody else's", owner="her")
    assert [job.id for job in queue.list_jobs(database, owner="local")] == [second.id, first.id]
    assert queue.list_jobs(database, owner="local", state=JobState.DONE) == []
    assert queue.count_jobs(database)["queued"] == 3


def test_a_waiting_job_knows_its_wait_from_history(database: Database, submit: Submit, catalog: Catalog) -> None:
    shape = str(catalog.default.default_shape)
    with database.write() as tx:
        tx.execute("UPDATE workers SET model = ?, shapes = ?", (catalog.default.id, json.dumps({shape: "warm"})))
        record(tx, Measured(model=catalog.default.id, shape=shape, batch_size=1, step_s=1.0, fixed_s=0.5))
    first, second = submit(steps=4), submit(steps=10)
    assert queue.read_job(database, first.id).eta_s == 4.5
    assert queue.read_job(database, second.id).eta_s == 15.0


def test_a_wait_tells_by_how_much_past_ones_were_wrong(database: Database, submit: Submit, catalog: Catalog) -> None:
    model, shape = catalog.default.id, str(catalog.default.default_shape)
    with database.write() as tx:
        tx.execute("UPDATE workers SET model = ?, shapes = ?", (model, json.dumps({shape: "warm"})))
        for estimated_s, took_s in ((None, 9.0), (10.0, 11.0), (10.0, 8.0), (10.0, 12.0)):
            times = {"step_s": 1.0, "fixed_s": 0.0, "estimated_s": estimated_s, "took_s": took_s}
            record(tx, Measured(model=model, shape=shape, batch_size=1, **times))
    first, second = submit(steps=10), submit(steps=20)
    assert queue.read_job(database, first.id).eta_error_s == 2.0
    assert queue.read_job(database, second.id).eta_error_s == 6.0


def test_without_past_estimates_their_error_is_unknown(database: Database, submit: Submit, catalog: Catalog) -> None:
    shape = str(catalog.default.default_shape)
    with database.write() as tx:
        record(tx, Measured(model=catalog.default.id, shape=shape, batch_size=1, step_s=1.0, fixed_s=0.5))
    found = queue.read_job(database, submit().id)
    assert found.eta_s is not None
    assert found.eta_error_s is None


def test_a_wait_that_was_never_measured_is_unknown(database: Database, submit: Submit) -> None:
    assert queue.read_job(database, submit().id).eta_s is None


def test_a_waiting_job_that_will_be_overtaken_is_told_why(database: Database, submit: Submit, catalog: Catalog) -> None:
    other = catalog.models[1]
    waiting = submit(model=other.id)
    submit()
    with database.write() as tx:
        tx.execute("UPDATE workers SET model = ?", (catalog.default.id,))
    assert queue.read_job(database, waiting.id).reason == f"1 {catalog.default.id} job first: saves a model switch"


def test_a_job_that_waits_for_the_engine_is_told_what_it_does(database: Database, submit: Submit) -> None:
    job = submit()
    with database.write() as tx:
        workers.describe(tx, LOCAL, WorkerState.PREPARING, activity="compiling 256x256")
    assert queue.read_job(database, job.id).reason == "compiling 256x256"
