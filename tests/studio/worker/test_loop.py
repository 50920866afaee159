"""The worker's life in one process: every job ends, whatever it does, and the loop goes on."""

import contextlib
import dataclasses
import errno
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.errors import ModelError
from pipelines.families.fake import FakeFamily
from pipelines.files.metadata import read_recipe_of
from pipelines.models.catalog import Model, Shape
from pipelines.stages import Family, OnProgress, Progress
from studio import events
from studio.database import Database
from studio.jobs import claims, queue
from studio.jobs.costs import estimates, offers
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerState, read_worker
from studio.library.records import read_output
from studio.worker.loop import Worker

Submit = Callable[..., Job]


def test_a_job_becomes_a_file_that_carries_its_recipe(worker: Worker, database: Database, submit: Submit) -> None:
    job = submit(batch_size=2)
    assert worker.run_next()
    done = queue.read_job(database, job.id)
    assert (done.state, done.step, done.error, done.eta_s) == (JobState.DONE, 2, None, None)
    assert done.timings["denoise_s"] > 0
    assert [output["seed"] for output in done.outputs] == [7, 8]
    output = read_output(database, done.outputs[1]["id"])
    assert read_recipe_of(worker.settings.outputs_dir / output.file).seed == 8


def test_a_job_and_its_files_say_which_weights_made_them(worker: Worker, database: Database, submit: Submit) -> None:
    def load(model: Model, _on_progress: OnProgress) -> FakeFamily:
        family = FakeFamily(model, compile_s=0, step_s=0)
        family.revision = "local-0123456789abcdef"
        return family

    worker.resident.load = load
    job = submit()
    assert job.revision == ""
    worker.run_next()
    done = queue.read_job(database, job.id)
    assert (done.state, done.revision) == (JobState.DONE, "local-0123456789abcdef")
    output = read_output(database, done.outputs[0]["id"])
    assert output.recipe.revision == done.revision
    assert read_recipe_of(worker.settings.outputs_dir / output.file) == output.recipe


def test_a_job_reads_its_pictures_and_saves_only_their_ids(
    worker: Worker, database: Database, submit: Submit, upload: Callable[..., str]
) -> None:
    jobs = [submit(model="flux2-klein-4b", shape="512x512", images=[upload(colour)]) for colour in ("red", "blue")]
    for _ in jobs:
        worker.run_next()
    colours = []
    for job in jobs:
        output = read_output(database, queue.read_job(database, job.id).outputs[0]["id"])
        file = worker.settings.outputs_dir / output.file
        assert read_recipe_of(file).images == output.recipe.images == job.recipe.images
        assert str(worker.settings.data_dir).encode() not in file.read_bytes()
        with Image.open(file) as picture:
            colours.append(np.asarray(picture).mean((0, 1)))
    red, _, blue = colours[0] - colours[1]
    assert red > 100 and blue < -100


def test_a_job_whose_picture_is_gone_says_what_to_do_and_works_again_with_it(
    worker: Worker, database: Database, submit: Submit, upload: Callable[..., str]
) -> None:
    job = submit(model="flux2-klein-4b", shape="512x512", images=[upload()])
    for file in worker.settings.uploads_dir.iterdir():
        file.unlink()
    worker.run_next()
    failed = queue.read_job(database, job.id)
    assert (failed.state, failed.error["title"]) == (JobState.FAILED, "An input picture is gone")
    assert failed.error["detail"].startswith(f"This job starts from {job.recipe.images[0]}")
    assert "Add the same picture again" in failed.error["advice"]
    assert worker.resident.family is None, "no model was loaded for it"

    upload()
    queue.retry(database, job.id)
    worker.run_next()
    assert queue.read_job(database, job.id).state is JobState.DONE


def test_the_events_of_a_job_come_in_order_and_without_gaps(worker: Worker, database: Database, submit: Submit) -> None:
    job = submit()
    worker.run_next()
    told = events.read_after(database, 0)
    assert [event.id for event in told] == list(range(1, len(told) + 1))
    kinds = [event.kind for event in told if event.job_id == job.id and event.kind != "job.preview"]
    assert kinds[0] == "job.queued"
    assert kinds.count("job.step") == 3  # before the first step, and after each
    assert kinds[-1] == "job.done"


def test_the_second_job_of_a_shape_compiles_nothing(worker: Worker, database: Database, submit: Submit) -> None:
    first, second = submit(), submit("another prompt", seed=1, steps=3)
    worker.run_next()
    worker.run_next()
    assert [queue.read_job(database, job.id).compiles for job in (first, second)] == [1, 0]


def test_what_was_expected_of_a_run_is_kept_beside_what_it_took(
    worker: Worker, database: Database, submit: Submit
) -> None:
    for _ in range(2):
        submit()
        worker.run_next()
    second, first = estimates.read_history(database).rows
    assert (first.estimated_s, first.took_s is None) == (None, False)
    assert second.estimated_s is not None
    assert second.took_s is not None and second.took_s > 0


def test_of_all_jobs_the_first_that_compiles_nothing_is_traced(worker: Worker, submit: Submit) -> None:
    traced = []

    @contextlib.contextmanager
    def trace() -> Iterator[None]:
        traced.append("begins")
        yield
        traced.append("ends")

    worker.trace = trace
    for seen in ([], ["begins", "ends"], ["begins", "ends"]):
        submit()
        worker.run_next()
        assert traced == seen


def test_an_error_on_purpose_becomes_its_card(worker: Worker, database: Database, submit: Submit) -> None:
    failing, next_one = submit("fail please"), submit()
    worker.run_next()
    worker.run_next()
    assert queue.read_job(database, failing.id).error["title"] == "Failed as asked"
    assert queue.read_job(database, next_one.id).state is JobState.DONE


class BrokenFamily(FakeFamily):
    """Raises `error` when it should decode."""

    error: Exception = RuntimeError("bolt missing")

    def decode(self, recipe: object, latents_BCHW: object) -> object:
        raise self.error


@pytest.mark.parametrize(
    ("error", "title"),
    [
        (RuntimeError("bolt missing"), "Something went wrong"),
        (RuntimeError("RESOURCE_EXHAUSTED: 3 GiB"), "Out of memory"),
        (MemoryError(), "Out of memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "The disk is full"),
    ],
)
def test_a_mistake_fails_only_its_job(
    worker: Worker, database: Database, submit: Submit, error: Exception, title: str
) -> None:
    family = BrokenFamily(worker.default_model, compile_s=0.0, step_s=0.0)
    family.error = error
    worker.resident.family = family
    job = submit()
    worker.run_next()
    card = queue.read_job(database, job.id).error
    assert card["title"] == title
    assert card["advice"]
    assert read_worker(database).state is WorkerState.READY


def test_a_cancelled_running_job_ends_after_its_current_step(
    worker: Worker, database: Database, submit: Submit
) -> None:
    job = submit(steps=50)

    class ImpatientFamily(FakeFamily):
        """Somebody cancels its job after step 3."""

        def denoise(
            self, recipe: object, embeddings: object, *, seeds: object = None, on_progress: OnProgress
        ) -> object:
            def report(progress: Progress) -> None:
                if progress.done == 3:
                    queue.cancel(database, job.id)
                on_progress(progress)

            return super().denoise(recipe, embeddings, seeds=seeds, on_progress=report)

    worker.resident.family = ImpatientFamily(worker.default_model, compile_s=0.0, step_s=0.0)
    worker.run_next()
    found = queue.read_job(database, job.id)
    assert found.state is JobState.CANCELLED
    assert found.step == 3
    assert database.read("SELECT * FROM previews") == []


def test_an_idle_worker_warms_the_default_shape_once(worker: Worker, database: Database) -> None:
    assert worker.run_next()
    engine = read_worker(database)
    assert (engine.state, engine.model) == (WorkerState.READY, worker.default_model.id)
    assert engine.shapes[str(worker.default_model.default_shape)] == "warm"
    assert estimates.read_history(database).has_run(engine.model, str(worker.default_model.default_shape))
    assert not worker.run_next()


def test_every_phase_of_preparing_is_told(worker: Worker, database: Database) -> None:
    def load(model: Model, on_progress: OnProgress) -> Family:
        for phase in ("downloading", "loading", "sharding"):
            on_progress(Progress(phase=phase))
        return FakeFamily(model, compile_s=0.0, step_s=0.0)

    worker.resident.load = load
    worker.run_next()
    told = [event.to_json()["engine"]["phase"] for event in events.read_after(database, 0)]
    assert [phase for phase, _ in itertools.groupby(told) if phase] == [
        "downloading",
        "loading",
        "sharding",
        "compiling",
    ]


def test_preparing_stops_when_somebody_wants_another_model(worker: Worker, submit: Submit) -> None:
    other = worker.catalog.models[1]

    def load(model: Model, on_progress: OnProgress) -> Family:
        if model is worker.default_model:
            submit(model=other.id)
        on_progress(Progress(phase="loading"))
        return FakeFamily(model, compile_s=0.0, step_s=0.0)

    worker.resident.load = load
    worker.run_next()
    assert worker.resident.family is None
    worker.run_next()
    assert worker.resident.model_id == other.id


def test_a_default_model_that_cannot_load_is_a_card_and_not_the_end(worker: Worker, database: Database) -> None:
    def load(model: Model, _on_progress: OnProgress) -> Family:
        raise ModelError(f"{model.id} is not here.", advice="Connect to the network.")

    worker.resident.load = load
    worker.run_next()
    engine = read_worker(database)
    assert (engine.state, engine.error["advice"]) == (WorkerState.READY, "Connect to the network.")


def test_a_swap_unloads_before_it_loads(worker: Worker, submit: Submit) -> None:
    order = []

    class NotedFamily(FakeFamily):
        """Says when it is unloaded."""

        def unload(self) -> None:
            order.append(f"unload {self.model.id}")

    def load(model: Model, _on_progress: OnProgress) -> Family:
        order.append(f"load {model.id}")
        return NotedFamily(model, compile_s=0.0, step_s=0.0)

    first, second = (model.id for model in worker.catalog.models[:2])
    worker.resident.load = load
    for model_id in (first, second, first):
        submit(model=model_id)
        worker.run_next()
    assert order == [f"load {first}", f"unload {first}", f"load {second}", f"unload {second}", f"load {first}"]


def test_a_model_that_cannot_be_had_leaves_the_loaded_one(worker: Worker, database: Database, submit: Submit) -> None:
    first, second = (model.id for model in worker.catalog.models[:2])
    submit(model=first)
    worker.run_next()

    def find(model: Model, _on_progress: OnProgress) -> None:
        raise ModelError(f"{model.id} is not on this machine.", advice="Connect to the network.")

    worker.resident.find = find
    failed = submit(model=second)
    worker.run_next()
    error = queue.read_job(database, failed.id).error
    assert (error and error["detail"]) == f"{second} is not on this machine."
    assert worker.resident.model_id == first


def test_a_swap_tells_that_the_old_model_goes_first(worker: Worker, database: Database, submit: Submit) -> None:
    first, second = (model.id for model in worker.catalog.models[:2])
    submit(model=first)
    worker.run_next()
    after = events.read_after(database, 0)[-1].id
    job = submit(model=second)
    worker.run_next()
    told = [event for event in events.read_after(database, after) if event.job_id == job.id]
    first_phase = next(
        event for event in told if event.kind == "job.phase" and '"state":"running","job"' not in event.data
    )
    assert "unloading" in first_phase.data


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pass_by(self, seconds: float) -> None:
        self.now_s += seconds


class CostlyFamily(FakeFamily):
    """Takes seconds of that clock: 1 to unload, and says that its programs took 32."""

    def __init__(self, model: Model, clock: Clock, *, is_cached: bool) -> None:
        super().__init__(model, load_s=24.0, compile_s=0.0, step_s=0.0)
        self._clock = clock
        self._is_cached = is_cached

    def warm(self, *args: Any, **options: Any) -> float:
        return 32.0 if super().warm(*args, **options) else 0.0

    def compile_count(self) -> int:
        return 0 if self._is_cached else super().compile_count()

    def unload(self) -> None:
        self._clock.pass_by(1.0)
        super().unload()


def make_swaps_costly(worker: Worker, *, is_cached: bool) -> None:
    """A switch takes 1 s to unload, 2 + 4 to find and download, 8 to load, 16 to place, 32 until it is warm."""
    clock = Clock()

    def find(_model: Model, on_progress: OnProgress) -> None:
        clock.pass_by(2.0)
        on_progress(Progress(phase="downloading"))
        clock.pass_by(4.0)

    def load(model: Model, on_progress: OnProgress) -> FakeFamily:
        clock.pass_by(3.0)
        on_progress(Progress(phase="loading"))
        clock.pass_by(5.0)
        on_progress(Progress(phase="sharding"))
        clock.pass_by(16.0)
        return CostlyFamily(model, clock, is_cached=is_cached)

    worker.resident.clock, worker.resident.find, worker.resident.load = clock, find, load


@pytest.mark.parametrize("warm", ["compile_s", "cache_s"])
def test_a_swap_is_told_part_by_part_with_nothing_missing(
    worker: Worker, database: Database, submit: Submit, warm: str
) -> None:
    make_swaps_costly(worker, is_cached=warm == "cache_s")
    first, second = (model.id for model in worker.catalog.models[:2])
    jobs = [submit(model=model_id) for model_id in (first, second, second)]
    for _ in jobs:
        worker.run_next()
    arrival, swap, stay = (queue.read_job(database, job.id).timings for job in jobs)
    nothing = {"unload_s": 0.0, "find_s": 0.0, "compile_s": 0.0, "cache_s": 0.0}
    loading = {"load_s": 8.0, "shard_s": 16.0, warm: 32.0}
    assert arrival["swap"] == {**nothing, **loading, "total_s": 56.0}
    told = {**nothing, **loading, "unload_s": 1.0, "find_s": 6.0, "total_s": 63.0}
    assert swap["swap"] == told
    assert (swap["load_s"], swap["compile_s"]) == (24.0, 32.0), "as they always were"
    assert "swap" not in stay

    whole = {"model": second, "previous": first, **told}
    assert read_worker(database).swap == whole
    last = [event for event in events.read_after(database, 0) if event.kind == "engine.state"][-1]
    assert json.loads(last.data)["engine"]["swap"] == whole


def test_the_default_models_arrival_is_a_swap_too(worker: Worker, database: Database) -> None:
    make_swaps_costly(worker, is_cached=False)
    worker.run_next()
    swap = read_worker(database).swap
    assert swap is not None
    assert (swap["model"], swap["previous"], swap["total_s"]) == (worker.default_model.id, "", 56.0)


@pytest.fixture
def prewarmer(worker: Worker) -> Worker:
    """Prepared, with the default model resident, and told to warm all of its shapes."""
    worker.settings = dataclasses.replace(worker.settings, prewarm=("all",))
    worker.run_next()
    return worker


def test_an_idle_worker_warms_the_shapes_it_was_told_to(prewarmer: Worker, database: Database) -> None:
    shapes = prewarmer.default_model.shapes
    assert [prewarmer.run_next() for _ in shapes] == [True] * (len(shapes) - 1) + [False]
    states = read_worker(database).shapes
    assert {states[str(shape)] for shape in shapes} == {"warm"}
    assert all(estimates.read_history(database).has_run(prewarmer.default_model.id, str(shape)) for shape in shapes)


def test_an_idle_worker_warms_for_input_pictures_where_a_model_compiles_for_them(
    worker: Worker, database: Database, submit: Submit, upload: Callable[..., str]
) -> None:
    worker.settings = dataclasses.replace(worker.settings, prewarm=("512x512+2", "1408x1408+1", "832x480x33+1"))
    worker.default_model = worker.catalog.get("flux2-klein-4b")
    assert [worker.run_next() for _ in range(4)] == [True, True, True, False]
    programs = "512x512 with 2 of 512x512"
    shapes = read_worker(database).shapes
    assert shapes[programs] == shapes["1408x1408 with 1 of 1024x1024"] == "warm"
    assert estimates.read_history(database).has_run("flux2-klein-4b", programs)
    images = [upload(colour, size=(600, 600)) for colour in ("red", "blue")]
    job = submit(model="flux2-klein-4b", shape="512x512", images=images, programs=programs)
    worker.run_next()
    assert queue.read_job(database, job.id).compiles == 0


def test_what_is_warm_is_told_for_each_number_of_images_and_guidance(
    worker: Worker, database: Database, submit: Submit
) -> None:
    worker.settings = dataclasses.replace(worker.settings, prewarm=("demo-sdxl:256x256*4", "demo-wan:all"))
    worker.default_model = worker.catalog.get("demo-sdxl")
    assert [worker.run_next() for _ in range(3)] == [True, True, False]
    states = read_worker(database).shapes
    assert (states["256x256"], states["256x256 ×4"], states["256x256 ×2"]) == ("warm", "warm", "cold")
    assert states["256x256 without guidance"] == "warm"  # the guided programs make them, at twice the work
    assert "320x192 ×4" not in states
    fields = {"model": "demo-sdxl", "programs": "256x256 ×2 without guidance", "batch_size": 2, "guidance_scale": 1.0}
    job = submit(**fields)
    worker.run_next()
    assert queue.read_job(database, job.id).compiles == 1
    worker.run_next()
    [shape] = [one for one in describe(worker, database, "demo-sdxl") if one["shape"] == "256x256"]
    found = {(one["batch_size"], one["is_guided"]): one["state"] for one in shape["variants"]}
    assert found == {(1, False): "warm", (2, False): "warm", (4, True): "warm", (4, False): "warm"}
    submit(model="demo-wan")
    worker.run_next()
    [shape] = [one for one in describe(worker, database, "demo-sdxl") if one["shape"] == "256x256"]
    found = {(one["batch_size"], one["is_guided"]): one["state"] for one in shape["variants"]}
    assert found == {(2, False): "disk", (4, True): "disk"}  # what ran here is in the cache


def describe(worker: Worker, database: Database, model_id: str) -> list[dict[str, Any]]:
    return next(one for one in offers.describe_models(worker.catalog, database) if one["id"] == model_id)["shapes"]


def test_what_a_job_compiled_for_its_pictures_is_told_and_forgotten_with_its_model(
    worker: Worker, database: Database, submit: Submit, upload: Callable[..., str]
) -> None:
    programs = "512x512 with 1 of 512x512"
    job = submit(model="flux2-klein-4b", shape="512x512", images=[upload(size=(600, 600))], programs=programs)
    worker.run_next()
    assert queue.read_job(database, job.id).compiles == 1
    engine, history = read_worker(database), estimates.read_history(database)
    assert engine.shapes[programs] == "warm"
    assert estimates.read_shape_state(engine, history, "flux2-klein-4b", programs) == "warm"
    assert engine.shapes["512x512"] == "cold"
    submit()
    worker.run_next()
    engine = read_worker(database)
    assert programs not in engine.shapes
    assert estimates.read_shape_state(engine, history, "flux2-klein-4b", programs) == "disk"


def test_a_job_that_comes_while_prewarming_runs_at_once(prewarmer: Worker, database: Database, submit: Submit) -> None:
    family = prewarmer.resident.family
    jobs = []
    told: list[str] = []

    def warm(shape: Shape, *, on_progress: OnProgress, **_options: object) -> float:
        if not jobs:
            on_progress(Progress(phase="compiling", detail=f"{shape} from the cache"))
            told.append(read_worker(database).activity)
            jobs.append(submit())
        on_progress(Progress(phase="compiling", detail=str(shape)))
        return 0.0

    family.warm = warm
    assert prewarmer.run_next()
    assert re.fullmatch(r"loading \d+x\d+ from the cache", told[0]), "what is read is not compiled"
    assert read_worker(database).error is None
    prewarmer.run_next()
    assert queue.read_job(database, jobs[0].id).state is JobState.DONE


def test_a_shape_that_cannot_be_warmed_is_left_alone(prewarmer: Worker, database: Database) -> None:
    def warm(**_options: object) -> float:
        raise RuntimeError("RESOURCE_EXHAUSTED")

    prewarmer.resident.family.warm = lambda _shape, **_options: warm()
    turns = len(prewarmer.default_model.shapes) - 1
    assert [prewarmer.run_next() for _ in range(turns + 1)] == [True] * turns + [False]
    assert read_worker(database).error["title"] == "Out of memory"


def test_reports_of_an_unbroken_phase_are_thinned(worker: Worker, database: Database, submit: Submit) -> None:
    def load(model: Model, on_progress: OnProgress) -> Family:
        for done in range(1000):
            on_progress(Progress(phase="downloading", done=done, total=1000))
        return FakeFamily(model, compile_s=0.0, step_s=0.0)

    worker.resident.load = load
    submit()
    worker.run_next()
    told = [event for event in events.read_after(database, 0) if '"downloading"' in event.data]
    assert 1 <= len(told) < 100


def test_progress_of_a_job_that_was_taken_away_ends_the_work(
    worker: Worker, database: Database, submit: Submit
) -> None:
    job = submit()

    def load(_model: Model, on_progress: OnProgress) -> Family:
        claims.interrupt_running(database)
        on_progress(Progress(phase="loading", total=1, done=1))
        raise AssertionError("unreachable")

    worker.resident.load = load
    worker.run_next()
    assert queue.read_job(database, job.id).state is JobState.INTERRUPTED


def test_a_picture_that_the_operators_hook_refuses_is_not_kept(
    worker: Worker, database: Database, submit: Submit
) -> None:
    seen = []

    def refuse(*, owner: str, recipe: dict, pixels: np.ndarray) -> str | None:
        seen.append((owner, recipe["seed"], pixels.dtype, pixels.ndim))
        return "Not this one." if recipe["seed"] == 8 else None

    worker.image_hook = refuse
    kept, refused = submit(), submit(batch_size=2)
    worker.run_next()
    worker.run_next()
    assert seen == [("local", seed, np.uint8, 3) for seed in (7, 7, 8)]
    assert queue.read_job(database, kept.id).state is JobState.DONE
    job = queue.read_job(database, refused.id)
    assert (job.state, job.outputs, job.error["detail"]) == (JobState.FAILED, [], "Not this one.")
    assert len(list(worker.settings.outputs_dir.rglob("*.png"))) == 1
    (note,) = map(json.loads, worker.settings.audit_log.read_text().splitlines())
    assert (note["what"], note["job"], note["seed"], note["reason"]) == ("image.refused", job.id, 8, "Not this one.")


def test_a_picture_brought_along_that_the_hook_refuses_makes_nothing(
    worker: Worker, database: Database, submit: Submit, upload: Callable[..., str]
) -> None:
    colours = []

    def refuse(*, owner: str, recipe: dict, pixels: np.ndarray) -> str | None:
        colours.append(tuple(pixels[0, 0]))
        return "No such pictures."

    worker.image_hook = refuse
    job = submit(model="flux2-klein-4b", images=[upload("red")])
    worker.run_next()
    failed = queue.read_job(database, job.id)
    assert (failed.state, failed.error["detail"]) == (JobState.FAILED, "No such pictures.")
    assert colours == [(255, 0, 0)]
    assert worker.resident.family is None, "it was asked before any model was loaded"


def test_files_without_their_rows_do_not_stay(
    worker: Worker, database: Database, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studio.worker.local_desk.claims.finish", lambda *_arguments, **_fields: 1 / 0)
    job = submit(batch_size=2)
    worker.run_next()
    assert queue.read_job(database, job.id).state is JobState.FAILED
    assert database.read("SELECT * FROM outputs") == []
    assert not [file for file in worker.settings.outputs_dir.rglob("*") if file.is_file()]
