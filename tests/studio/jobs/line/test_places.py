"""Places in line: those of now, for everybody who looks, in the order in which jobs will run."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelines.models.catalog import Catalog
from pipelines.stages import Progress
from studio.database import Database
from studio.jobs import arrange, claims, queue, workers
from studio.jobs.costs import estimates, offers
from studio.jobs.costs.price import price_line
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.workers import LOCAL, WorkerState

Submit = Callable[..., Job]


def read_places(database: Database, owner: str | None = "local") -> list[tuple[str, int | None]]:
    waiting = queue.list_jobs(database, owner=owner, state=JobState.QUEUED)
    return [(job.recipe.prompt, job.position) for job in waiting]


def test_whoever_runs_next_is_listed_first(database: Database, submit: Submit) -> None:
    for number in range(5):
        submit(str(number))
    assert read_places(database) == [(str(number), number + 1) for number in range(5)]
    first = queue.list_jobs(database, owner="local", state=JobState.QUEUED, limit=2)
    assert [job.recipe.prompt for job in first] == ["0", "1"]


def test_places_are_those_of_the_whole_line_and_the_list_is_ones_own(database: Database, submit: Submit) -> None:
    submit("mine")
    submit("hers", owner="her")
    submit("mine too")
    assert read_places(database) == [("mine", 1), ("mine too", 3)]
    assert read_places(database, None) == [("mine", 1), ("hers", 2), ("mine too", 3)]


def test_every_change_of_the_line_is_seen_at_the_next_look(database: Database, submit: Submit) -> None:
    a, b, c = (submit(name) for name in "abc")
    assert read_places(database) == [("a", 1), ("b", 2), ("c", 3)]
    arrange.place_before(database, c.id, a.id, owner="local")
    assert read_places(database) == [("c", 1), ("a", 2), ("b", 3)]
    queue.cancel(database, a.id)
    assert read_places(database) == [("c", 1), ("b", 2)]
    claimed = claims.claim_next(database, resident=None)
    assert claimed is not None
    assert read_places(database) == [("b", 1)]
    queue.retry(database, a.id)
    assert read_places(database) == [("b", 1), ("a", 2)]
    arrange.pause(database, owner="local")
    assert queue.read_job(database, b.id).reason == "paused"
    arrange.resume(database, owner="local")
    assert queue.read_job(database, b.id).reason == "next, when the running job ends"


def test_the_wait_is_that_of_the_newest_event(database: Database, submit: Submit) -> None:
    running, waiting = submit("runs"), submit("waits")
    recipe = running.recipe
    with database.write() as tx:
        estimates.record(
            tx,
            estimates.Measured(
                model=recipe.model, shape=running.programs, batch_size=1, compile_s=0.0, step_s=1.0, fixed_s=1.0
            ),
        )
    claimed = claims.claim_next(database, resident=None)
    assert claimed.id == running.id
    for eta_s in (9.0, 4.0):
        assert claims.report(database, claimed, Progress(phase="denoising", done=1, total=2), eta_s=eta_s)
        assert queue.read_job(database, waiting.id).eta_s == eta_s + recipe.steps + 1.0


def test_every_wait_says_why(database: Database, submit: Submit) -> None:
    for name in "ab":
        submit(name, owner="her")
    submit("mine")
    submit("mine too")
    waiting = queue.list_jobs(database, owner=None, state=JobState.QUEUED)
    assert [(job.position, job.recipe.prompt, job.reason) for job in waiting] == [
        (1, "a", "next"),
        (2, "mine", "1 job by someone else first"),
        (3, "b", "everybody takes turns: 1 job by someone else first"),
        (4, "mine too", "3 jobs before it, 2 by others"),
    ]
    queue.cancel(database, waiting[0].id)
    queue.cancel(database, waiting[2].id)
    rest = queue.list_jobs(database, owner="local", state=JobState.QUEUED)
    assert [job.reason for job in rest] == ["next", "1 job before it"]


def test_a_wait_is_known_from_the_start_of_the_job_before(database: Database, submit: Submit) -> None:
    running, waiting = submit("runs", owner="her"), submit("waits")
    with database.write() as tx:
        estimates.record(
            tx,
            estimates.Measured(
                model=running.recipe.model, shape=running.programs, batch_size=1, compile_s=0.0, step_s=1.0, fixed_s=1.0
            ),
        )
    assert claims.claim_next(database, resident=None).id == running.id
    found = queue.read_job(database, waiting.id)
    assert (found.position, found.reason) == (1, "next, when the running job ends")
    assert found.eta_s == 2 * (running.recipe.steps + 1.0)


def test_many_who_look_at_once_see_the_same(database: Database, submit: Submit) -> None:
    for number in range(50):
        submit(str(number))
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(lambda _: read_places(database), range(24)))
    assert all(one == seen[0] for one in seen)
    assert [position for _, position in seen[0]] == list(range(1, 51))


def test_who_will_run_together_waits_as_long(database: Database, submit: Submit) -> None:
    jobs = [submit("a"), submit("b", steps=9), submit("c"), submit("d", batch_size=2), submit("e")]
    recipe = jobs[0].recipe
    with database.write() as tx:
        tx.execute("UPDATE workers SET model = ?, outputs_at_once = 3", (recipe.model,))
        estimates.record(
            tx,
            estimates.Measured(
                model=recipe.model, shape=jobs[0].programs, batch_size=1, compile_s=0.0, step_s=1.0, fixed_s=1.0
            ),
        )
    found = {job.recipe.prompt: job for job in queue.list_jobs(database, owner="local", state=JobState.QUEUED)}
    first_s, steps_9_s = recipe.steps + 1.0, 10.0
    assert [found[name].eta_s for name in "abcde"] == [
        first_s,
        first_s + steps_9_s,
        first_s,  # with a
        first_s + steps_9_s + first_s,  # three places were not enough for a, c and these two
        first_s,
    ]
    assert [found[name].position for name in "abcde"] == [1, 4, 2, 5, 3]
    assert found["c"].reason == found["e"].reason == "runs together with job 1 in line"


def test_company_overtakes_nobody(database: Database, submit: Submit, catalog: Catalog) -> None:
    resident, other = catalog.models[0].id, catalog.models[1].id
    with database.write() as tx:
        tx.execute("UPDATE workers SET model = ?, outputs_at_once = 8", (resident,))
    waiting = submit(model=other, owner="her")
    jobs = [submit(seed=number, owner="him") for number in range(32)]
    places = {job.id: job for job in queue.list_jobs(database, owner=None, limit=50)}
    assert places[waiting.id].position == 33
    assert places[waiting.id].reason == f"32 {resident} jobs first: saves a model switch"
    assert places[jobs[9].id].reason == "runs together with job 9 in line"


def test_what_will_run_together_is_promised_so_before_it_is_queued(database: Database, submit: Submit) -> None:
    recipe, programs = (job := submit(steps=10)).recipe, job.programs
    queue.cancel(database, job.id)
    with database.write() as tx:
        tx.execute("UPDATE workers SET model = ?, outputs_at_once = 8", (recipe.model,))
        measured = {"model": recipe.model, "shape": programs, "compile_s": 0.0, "step_s": 0.2, "fixed_s": 0.4}
        estimates.record(tx, estimates.Measured(batch_size=1, **measured))
    wanted = [queue.Wanted(recipe=recipe, programs=programs)] * 16
    promised = [
        offers.estimate_many_s(database, recipe, programs=programs, count=16),
        price_line(database, wanted).seconds,
    ]
    jobs = [submit(steps=10, seed=number) for number in range(16)]
    assert promised == [pytest.approx(max(queue.read_job(database, job.id).eta_s for job in jobs))] * 2
    assert promised[0] == pytest.approx(2 * 2.4)


def test_the_model_that_is_being_loaded_counts(database: Database, submit: Submit, catalog: Catalog) -> None:
    old, new = catalog.models[0].id, catalog.models[1].id
    with database.write() as tx:
        tx.execute("UPDATE workers SET model = ?", (old,))
    submit(model=new)
    assert claims.claim_next(database, resident=old) is not None
    submit("of the old one", model=old)
    submit("of the new one", model=new)
    assert read_places(database) == [("of the new one", 1), ("of the old one", 2)]
    next_one = claims.claim_next(database, resident=new)
    assert next_one is not None and next_one.recipe.prompt == "of the new one"


def test_several_workers_shorten_the_wait_and_each_keeps_its_model(
    database: Database, submit: Submit, catalog: Catalog
) -> None:
    """Two workers with a model each: a job goes to whoever is free first, in seconds of its own device."""
    mine, hers = catalog.models[0].id, catalog.models[1].id
    with database.write() as tx:
        workers.describe(tx, LOCAL, WorkerState.READY, activity="ready", device="slow", model=mine)
        workers.describe(tx, "second", WorkerState.READY, activity="ready", device="fast", model=hers)
        for worker, step_s in ((LOCAL, 10.0), ("second", 1.0)):
            for model in (mine, hers):
                shape = str(catalog.get(model).default_shape)
                estimates.record(
                    tx,
                    estimates.Measured(
                        model=model, shape=shape, batch_size=1, load_s=100.0, step_s=step_s, fixed_s=0.0
                    ),
                    worker,
                )
    for prompt, model in (("a", mine), ("b", hers), ("c", mine), ("d", hers)):
        submit(prompt, model=model)
    waiting = queue.list_jobs(database, owner="local", state=JobState.QUEUED)
    assert [(job.recipe.prompt, job.eta_s) for job in waiting] == [("a", 20.0), ("b", 2.0), ("d", 4.0), ("c", 106.0)]
    assert [job.reason.rpartition("; ")[2] for job in waiting] == ["on local", "on second", "on second", "on second"]

    claimed = [claims.claim_next(database, LOCAL, resident=mine), claims.claim_next(database, "second", resident=hers)]
    assert [job.recipe.prompt for job in claimed] == ["a", "b"]
    waiting = queue.list_jobs(database, owner="local", state=JobState.QUEUED)
    assert [(job.recipe.prompt, job.eta_s) for job in waiting] == [("d", 4.0), ("c", 106.0)], (
        "as whoever is free takes it"
    )
    with database.write() as tx:
        workers.describe(tx, "second", WorkerState.STOPPED, activity="stopped", model="")
    assert [job.recipe.prompt for job in queue.list_jobs(database, owner="local", state=JobState.QUEUED)] == ["c", "d"]
