"""Claim, run, save, tell: the worker's whole life.

A job that fails ends as a card and the loop goes on; only the process itself can end the loop. While nobody waits, the
default model is loaded and its default shape compiled, so that the first prompt is fast; then the shapes of `--prewarm`
are compiled for whatever model is loaded, until somebody wants something.
"""

import errno
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from pipelines.catalog import Catalog, Model, Shape
from pipelines.errors import Cancelled, LumeshError
from pipelines.generate import generate
from pipelines.stages import OnProgress, Outcome, Progress
from studio.database import Database
from studio.jobs import claims, engine, estimates, events
from studio.jobs.engine import EngineState
from studio.jobs.job import Card, Job
from studio.library import files, inputs, records, uploads
from studio.settings import Settings
from studio.worker.progress import JobProgress
from studio.worker.resident import Resident

POLL_S = 0.05
HEARTBEAT_S = 1.0
ENGINE_INTERVAL_S = 0.1

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Worker:
    """Runs jobs one after the other, as long as its process lives."""

    settings: Settings
    database: Database
    catalog: Catalog
    resident: Resident
    default_model: Model
    is_prepared: bool = False
    given_up: set[tuple[str, Shape]] = field(default_factory=set)
    """Shapes whose compilation failed while idle; a job may still try them."""

    def run(self) -> NoReturn:
        """Never returns: the process ends with the app (__main__.py)."""
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        while True:
            if not self.run_next():
                time.sleep(POLL_S)

    def run_next(self) -> bool:
        """Runs the next job, or else prepares the default model once; False when there was nothing to do."""
        job = claims.claim_next(self.database, resident=self.resident.model_id)
        if job is None and self.is_prepared:
            return self._prewarm()
        self.is_prepared = True  # after a job, what is resident is what people want
        if job is None:
            self._prepare()
        else:
            self._run_job(job)
        return True

    def _beat(self) -> NoReturn:
        while True:
            engine.beat(self.database)
            time.sleep(HEARTBEAT_S)

    def _prepare(self) -> None:
        """Loads and warms the default model, unless somebody wants another one meanwhile."""
        model = self.default_model
        show = self._show_preparing(model, lambda wanted: wanted not in (None, model.id))
        self._describe(EngineState.PREPARING, f"loading {model.title}")
        error = None
        try:
            family, load_s = self.resident.become(model, show)
            compiles_before = family.compile_count()
            warm_s = family.warm(model.default_shape, batch_size=1, uses_cfg=model.guidance_scale > 1, on_progress=show)
        except Cancelled:
            log.info("prepared only in part: somebody asked for another model")
        except Exception as problem:
            log.exception("preparing %s", model.id)
            error = self._explain(problem)
        else:
            self._record_warm(model.default_shape, warm_s, compiles_before=compiles_before, load_s=load_s)
        self._describe(EngineState.READY, "ready", error=error)

    def _prewarm(self) -> bool:
        """Compiles the next shape of `--prewarm` that is not warm; False when there is none, or a job came."""
        family = self.resident.family
        if family is None or not self.settings.prewarm:
            return False
        names = self.settings.prewarm
        shape = next(
            (
                one
                for one in family.model.shapes
                if (names == ("all",) or str(one) in names) and (family.model.id, one) not in self.given_up
                if family.shape_state(one) != "warm"
            ),
            None,
        )
        if shape is None:
            return False
        show = self._show_preparing(family.model, lambda wanted: wanted is not None)
        compiles_before = family.compile_count()
        error = None
        try:
            warm_s = family.warm(shape, batch_size=1, uses_cfg=family.model.guidance_scale > 1, on_progress=show)
        except Cancelled:
            log.info("a job came while %s was being compiled; it goes on in the background", shape)
        except Exception as problem:
            log.exception("prewarming %s %s", family.model.id, shape)
            self.given_up.add((family.model.id, shape))
            error = self._explain(problem)
        else:
            self._record_warm(shape, warm_s, compiles_before=compiles_before, load_s=None)
        self._describe(EngineState.READY, "ready", error=error)
        return True

    def _show_preparing(self, model: Model, ends: Callable[[str | None], bool]) -> OnProgress:
        """An OnProgress that tells what is being prepared, and raises Cancelled when the next job's model `ends` it."""
        phase, reported_s = "", 0.0

        def show(progress: Progress) -> None:
            nonlocal phase, reported_s
            if ends(claims.find_next_model(self.database, resident=model.id)):
                raise Cancelled
            if progress.phase != phase or time.perf_counter() - reported_s >= ENGINE_INTERVAL_S:
                phase, reported_s = progress.phase, time.perf_counter()
                self._describe(EngineState.PREPARING, _say(progress, model), progress=progress)

        return show

    def _record_warm(self, shape: Shape, warm_s: float, *, compiles_before: int, load_s: float | None) -> None:
        family = self.resident.family
        assert family is not None
        measured = estimates.Measured(
            model=family.model.id,
            shape=str(shape),
            batch_size=1,
            load_s=load_s,
            **_name_warm_s(warm_s, compiles=family.compile_count() - compiles_before),
        )
        with self.database.write() as tx:
            estimates.record(tx, measured)

    def _run_job(self, job: Job) -> None:
        self._describe(EngineState.BUSY, f"running job {job.id}")
        started_s = time.perf_counter()
        history = estimates.read_history(self.database)
        try:
            with JobProgress(
                self.database, job, history=history, estimate_s=self._estimate_s(job, history)
            ) as progress:
                load_s, outcome = self._make(job, progress)
                self._save(job, outcome, load_s=load_s, progress=progress)
        except Cancelled:
            claims.end_cancelled(self.database, job.id)
        except Exception as error:
            log.exception("job %s", job.id)
            claims.fail(self.database, job.id, self._explain(error))
        log.info("job %s ended after %.2f s", job.id, time.perf_counter() - started_s)
        self._describe(EngineState.READY, "ready")
        events.forget_old(self.database)
        uploads.forget_unused(self.database, self.settings.uploads_dir)

    def _estimate_s(self, job: Job, history: estimates.History) -> float | None:
        recipe = job.recipe
        is_resident = self.resident.model_id == recipe.model
        shape_state = self.resident.describe_shapes().get(str(recipe.shape), "disk") if is_resident else "disk"
        return estimates.estimate_job_s(history, recipe, shape_state=shape_state, is_resident=is_resident)

    def _make(self, job: Job, progress: JobProgress) -> tuple[float | None, Outcome]:
        """Families read pictures as files; the job and what is saved keep their ids."""
        found = inputs.find_files(self.database, self.settings, job.recipe.images, owner=job.owner)
        recipe = job.recipe.model_copy(update={"images": tuple(map(str, found))})
        family, load_s = self.resident.become(self.catalog.get(recipe.model), progress.report)
        return load_s, generate(family, recipe, on_progress=progress.report)

    def _save(self, job: Job, outcome: Outcome, *, load_s: float | None, progress: JobProgress) -> None:
        """Files first, whole; then outputs, measurements and the job's end in one transaction."""
        timings = outcome.timings
        timings.load_s = load_s or 0.0
        progress.report(Progress(phase="saving", total=len(outcome.pixels)))
        clock = time.perf_counter()
        saved = files.save_outputs(self.settings.outputs_dir, job.id, outcome.pixels, job.recipe)
        save_s = time.perf_counter() - clock
        created_at = time.time()
        with self.database.write() as tx:
            outputs = [
                records.add(tx, file, job_id=job.id, owner=job.owner, number=number, created_at=created_at)
                for number, file in enumerate(saved)
            ]
            estimates.record(
                tx,
                estimates.Measured(
                    model=job.recipe.model,
                    shape=str(job.recipe.parsed_shape),
                    batch_size=job.recipe.batch_size,
                    load_s=load_s,
                    **_name_warm_s(timings.compile_s, compiles=outcome.compiles),
                    step_s=timings.step_ms / 1000,
                    fixed_s=timings.encode_s + timings.decode_s + save_s,
                ),
            )
            claims.finish(
                tx,
                job,
                outputs=[output.link() for output in outputs],
                timings=timings.to_json(),
                compiles=outcome.compiles,
            )

    def _explain(self, error: Exception) -> Card:
        """XLA says RESOURCE_EXHAUSTED when device memory is full."""
        if isinstance(error, LumeshError):
            return Card.of(error)
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            return Card(
                title="Out of memory",
                detail=f"There is no room for this job: {str(error)[:300]}",
                advice="Choose a smaller size or fewer pictures at once.",
            )
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return Card(
                title="The disk is full",
                detail=f"Nothing can be saved in {self.settings.data_dir}.",
                advice="Make room there, then retry.",
            )
        return Card(
            title="Something went wrong",
            detail=f"{type(error).__name__}: {error}"[:600],
            advice=f"Retry once; if it comes back, {self.settings.worker_log} has the details.",
        )

    def _describe(
        self, state: EngineState, activity: str, *, progress: Progress | None = None, error: Card | None = None
    ) -> None:
        with self.database.write() as tx:
            engine.describe(
                tx,
                state,
                activity=activity,
                error=error.to_json() if error else None,
                model=self.resident.model_id or "",
                shapes=self.resident.describe_shapes(),
                phase=progress.phase if progress else "",
                phase_done=progress.done if progress else 0,
                phase_total=progress.total if progress else 0,
            )


def _name_warm_s(seconds: float, *, compiles: int) -> dict[str, float]:
    """Warming compiled, or read the compilation cache, or had nothing to do: three things with three costs."""
    if not seconds:
        return {}
    return {"compile_s" if compiles else "cache_s": seconds}


def _say(progress: Progress, model: Model) -> str:
    if progress.phase == "compiling":
        return f"compiling {progress.detail or model.default_shape}"
    return f"{progress.phase} {model.title}"
