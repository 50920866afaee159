"""Jobs that run as one: each gets its own outputs, previews and end, and the machine is paid for once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelines.families.fake import FakeFamily
from pipelines.files.metadata import read_recipe_of
from pipelines.recipes.recipe import Recipe
from pipelines.stages import OnProgress, Progress, SwapCost, ignore_progress
from studio import events
from studio.database import Database
from studio.jobs import arrange, queue
from studio.jobs.costs import cost, estimates
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.workers import read_worker
from studio.library.records import read_output
from studio.worker.loop import Worker
from studio.worker.resident import Swap

Submit = Callable[..., Job]


@pytest.fixture
def family(worker: Worker) -> FakeFamily:
    """Makes four at once, and is resident."""
    made = FakeFamily(worker.default_model, compile_s=0, step_s=0, outputs_at_once=4)
    worker.resident.family = made
    return made


def states(database: Database, jobs: list[Job]) -> list[str]:
    return [queue.read_job(database, job.id).state.value for job in jobs]


def test_jobs_that_are_alike_run_together(
    worker: Worker, database: Database, submit: Submit, family: FakeFamily
) -> None:
    jobs = [submit("one"), submit("two", seed=20, batch_size=2), submit("three", seed=30)]
    assert worker.run_next()
    assert states(database, jobs) == ["done"] * 3
    done = [queue.read_job(database, job.id) for job in jobs]
    assert [[output["seed"] for output in job.outputs] for job in done] == [[7], [20, 21], [30]]
    for job in done:
        for output in job.outputs:
            recipe = read_recipe_of(worker.settings.outputs_dir / read_output(database, output["id"]).file)
            assert (recipe.prompt, recipe.seed, recipe.batch_size) == (job.recipe.prompt, output["seed"], 1)
    assert read_worker(database).outputs_at_once == 4


def test_each_gets_the_picture_it_would_get_alone(
    worker: Worker, database: Database, submit: Submit, family: FakeFamily
) -> None:
    def make() -> list[bytes]:
        jobs = [submit("one"), submit("two", seed=20)]
        while worker.run_next():
            pass
        outputs = [read_output(database, queue.read_job(database, job.id).outputs[0]["id"]) for job in jobs]
        return [(worker.settings.outputs_dir / output.file).read_bytes() for output in outputs]

    together = make()
    family.outputs_at_once = 1
    assert make() == together
    assert together[0] != together[1]


def test_values_that_are_no_numbers_end_only_the_job_that_they_belong_to(
    worker: Worker, database: Database, submit: Submit, family: FakeFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    denoise = family.denoise

    def spoil(*arguments: Any, **options: Any) -> np.ndarray:
        latents = denoise(*arguments, **options)
        latents[2] = np.inf
        return latents

    monkeypatch.setattr(family, "denoise", spoil)
    jobs = [submit("one"), submit("two", seed=20, batch_size=2), submit("three", seed=30)]
    worker.run_next()
    assert states(database, jobs) == ["done", "failed", "done"]
    card = queue.read_job(database, jobs[1].id).error
    assert card is not None
    assert (card["title"], "1 of 2 are not finite" in card["detail"]) == ("No picture came out of this", True)
    assert "--verify-weights" in card["advice"]
    assert not list(worker.settings.outputs_dir.rglob(f"{jobs[1].id}*")), "nothing of it is kept"


def test_who_does_not_fit_waits_for_the_next_batch(
    worker: Worker, database: Database, submit: Submit, family: FakeFamily
) -> None:
    jobs = [submit(batch_size=2), submit(steps=9), submit(batch_size=3), submit(batch_size=2), submit()]
    worker.run_next()
    assert states(database, jobs) == ["done", "queued", "queued", "done", "queued"]
    while worker.run_next():
        pass
    assert states(database, jobs) == ["done"] * 5


def test_paused_owners_do_not_join(worker: Worker, database: Database, submit: Submit, family: FakeFamily) -> None:
    jobs = [submit(), submit(owner="her"), submit(owner="him")]
    arrange.pause(database, owner="her")
    worker.run_next()
    assert states(database, jobs) == ["done", "queued", "done"]


class WatchedFamily(FakeFamily):
    """Calls `watch` before each report of a denoising step."""

    watch: Callable[[int], None]

    def denoise(self, recipe: object, embeddings: object, *, seeds: object = None, on_progress: OnProgress) -> object:
        def report(progress: Progress) -> None:
            self.watch(progress.done)
            on_progress(progress)

        return super().denoise(recipe, embeddings, seeds=seeds, on_progress=report)


@pytest.fixture
def watched(worker: Worker) -> WatchedFamily:
    made = WatchedFamily(worker.default_model, compile_s=0, step_s=0, outputs_at_once=4)
    worker.resident.family = made
    return made


@pytest.mark.parametrize("leaving", [0, 1])
def test_one_that_is_cancelled_leaves_at_once_and_the_others_go_on(
    worker: Worker, database: Database, submit: Submit, watched: WatchedFamily, leaving: int
) -> None:
    jobs = [submit(steps=5), submit(steps=5, seed=20), submit(steps=5, seed=30)]
    seen = []

    def watch(done: int) -> None:
        if done == 2:
            queue.cancel(database, jobs[leaving].id)
        if done == 3:
            seen.append(queue.read_job(database, jobs[leaving].id).state)

    watched.watch = watch
    worker.run_next()
    assert seen == [JobState.CANCELLED]
    expected = ["done"] * 3
    expected[leaving] = "cancelled"
    assert states(database, jobs) == expected
    seeds = [[output["seed"] for output in queue.read_job(database, job.id).outputs] for job in jobs]
    assert seeds == [[] if number == leaving else [seed] for number, seed in enumerate((7, 20, 30))]
    assert len(estimates.read_history(database).rows) == 1, "what a batch took is measured once"


def test_when_all_are_cancelled_the_work_ends(
    worker: Worker, database: Database, submit: Submit, watched: WatchedFamily
) -> None:
    jobs = [submit(steps=50), submit(steps=50, seed=20)]
    last = []

    def watch(done: int) -> None:
        last.append(done)
        if done in (2, 4):
            queue.cancel(database, jobs[done // 2 - 1].id)

    watched.watch = watch
    worker.run_next()
    assert states(database, jobs) == ["cancelled"] * 2
    assert last[-1] == 4


def test_each_sees_its_own_preview_and_how_many_run_along(
    worker: Worker, database: Database, submit: Submit, watched: WatchedFamily
) -> None:
    jobs = [submit(steps=3), submit("two", steps=3, seed=20, batch_size=2)]
    watched.watch = lambda _done: None
    worker.run_next()
    told = [event.to_json() for event in events.read_after(database, 0)]
    previews = {event["job_id"] for event in told if event["kind"] == "job.preview"}
    assert previews == {job.id for job in jobs}
    details = {event["phase_detail"] for event in told if event["kind"] == "job.step"}
    assert details == {"together with 1 other job"}


def test_the_machine_is_paid_for_once(worker: Worker, database: Database, submit: Submit, family: FakeFamily) -> None:
    family._step_s = 0.1  # much more than it takes to save each file
    jobs = [submit(), submit(batch_size=3)]
    with database.write() as tx:
        tx.execute("UPDATE workers SET chips = 8, chip_price = 3.6")
    worker.run_next()
    one, three = (queue.read_job(database, job.id) for job in jobs)
    assert three.chip_seconds == pytest.approx(3 * one.chip_seconds, rel=0.5)
    ended = max(one.finished_at, three.finished_at)
    assert one.chip_seconds + three.chip_seconds <= 8 * (ended - one.started_at) * 1.01
    assert sum(usage.chip_seconds for usage in cost.add_up(database)) == pytest.approx(
        one.chip_seconds + three.chip_seconds
    )


def test_what_goes_wrong_for_one_while_saving_is_its_own(
    worker: Worker, database: Database, submit: Submit, family: FakeFamily
) -> None:
    def refuse(*, owner: str, recipe: dict, pixels: np.ndarray) -> str | None:
        return "Not this one." if recipe["seed"] == 20 else None

    worker.image_hook = refuse
    jobs = [submit(), submit(seed=20), submit(seed=30)]
    worker.run_next()
    assert states(database, jobs) == ["done", "failed", "done"]


def test_a_mistake_of_the_whole_batch_is_everybodys_card(
    worker: Worker, database: Database, submit: Submit, family: FakeFamily
) -> None:
    family.decode = lambda *_arguments: (_ for _ in ()).throw(RuntimeError("bolt missing"))
    jobs = [submit(), submit(seed=20)]
    worker.run_next()
    assert [queue.read_job(database, job.id).error["title"] for job in jobs] == ["Something went wrong"] * 2


def test_where_a_run_makes_one_output_nobody_joins(worker: Worker, database: Database, submit: Submit) -> None:
    jobs = [submit(), submit(seed=20)]
    worker.run_next()
    assert states(database, jobs) == ["done", "queued"]


class FussyFamily(FakeFamily):
    """Cannot encode "bad", and calls `watch` before each prompt."""

    watch: Callable[[str], None] = staticmethod(lambda _prompt: None)

    def encode(self, recipe: Recipe, *, on_progress: OnProgress = ignore_progress) -> object:
        self.watch(recipe.prompt)
        on_progress(Progress(phase="encoding", total=1))
        if recipe.prompt == "bad":
            raise RuntimeError("the encoder did not answer")
        return super().encode(recipe, on_progress=on_progress)


@pytest.fixture
def fussy(worker: Worker) -> FussyFamily:
    made = FussyFamily(worker.default_model, compile_s=0, step_s=0, outputs_at_once=4)
    worker.resident.family = made
    return made


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_prompt_that_cannot_be_encoded_fails_its_own_job(
    worker: Worker, database: Database, submit: Submit, fussy: FussyFamily, bad: int
) -> None:
    jobs = [submit("bad" if number == bad else "good", seed=number) for number in range(3)]
    worker.run_next()
    expected = ["done"] * 3
    expected[bad] = "failed"
    assert states(database, jobs) == expected
    assert "did not answer" in queue.read_job(database, jobs[bad].id).error["detail"]
    together = [queue.read_job(database, job.id).outputs for job in jobs]
    assert [[output["seed"] for output in own] for own in together] == [[] if n == bad else [n] for n in range(3)]


def test_when_no_prompt_can_be_encoded_the_work_ends(
    worker: Worker, database: Database, submit: Submit, fussy: FussyFamily
) -> None:
    jobs = [submit("bad"), submit("bad", seed=20)]
    fussy.denoise = lambda *_arguments, **_options: pytest.fail("nobody is left")
    worker.run_next()
    assert states(database, jobs) == ["failed"] * 2


def test_the_prompt_of_a_job_that_has_left_is_not_encoded(
    worker: Worker, database: Database, submit: Submit, fussy: FussyFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studio.worker.progress.SAME_PHASE_INTERVAL_S", 0)
    jobs = [submit("good"), submit("bad", seed=20), submit("good", seed=30)]
    seen = []

    def watch(prompt: str) -> None:
        seen.append(prompt)
        queue.cancel(database, jobs[1].id)

    fussy.watch = watch
    worker.run_next()
    assert states(database, jobs) == ["done", "cancelled", "done"]
    assert seen == ["good", "good"]


def test_who_gives_up_leaves_the_price_to_the_others(
    worker: Worker, database: Database, submit: Submit, watched: WatchedFamily
) -> None:
    jobs = [submit(steps=30), *(submit(steps=30, seed=20 + number) for number in range(3))]
    with database.write() as tx:
        tx.execute("UPDATE workers SET chips = 8")

    def watch(done: int) -> None:
        if done == 1:
            for job in jobs[1:]:
                queue.cancel(database, job.id)

    watched.watch = watch
    watched._step_s = 0.02
    worker.run_next()
    first = queue.read_job(database, jobs[0].id)
    held = 8 * (first.finished_at - first.started_at)
    assert sum(usage.chip_seconds for usage in cost.add_up(database)) == pytest.approx(held, rel=0.02)
    assert first.chip_seconds > 0.7 * held


def test_only_the_first_to_come_waited_for_the_model(
    worker: Worker, database: Database, submit: Submit, watched: WatchedFamily
) -> None:
    watched.load_s = 5.0
    swap = Swap(model=watched.model.id, previous="", cost=SwapCost(load_s=5.0))
    worker.resident.become = lambda *_arguments: (watched, swap)
    jobs = [submit(steps=5), submit(steps=5, seed=20)]
    watched.watch = lambda done: done == 2 and queue.cancel(database, jobs[0].id)
    worker.run_next()
    assert states(database, jobs) == ["cancelled", "done"]
    timings = queue.read_job(database, jobs[1].id).timings
    assert timings["load_s"] == 0 and "swap" not in timings
    assert read_worker(database).swap["load_s"] == 5.0
    assert estimates.read_history(database).rows[0].load_s == 5.0
