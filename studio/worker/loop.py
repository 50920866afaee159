"""Claim, run, save, tell: the worker's whole life.

A job that fails ends as a card and the loop goes on; only the process itself can end the loop. While nobody waits, the
default model is loaded and its default shape compiled, so that the first prompt is fast; then the shapes of `--prewarm`
are compiled for whatever model is loaded, until somebody wants something.
"""

import contextlib
import errno
import functools
import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from pipelines.catalog import Catalog, Model
from pipelines.errors import Cancelled, LumeshError
from pipelines.generate import find_references, generate_together, uses_cfg
from pipelines.recipe import Recipe
from pipelines.references import References, choose_programs, name_programs
from pipelines.runtime.sampling.pictures import open_picture
from pipelines.stages import Embeddings, Family, OnProgress, Outcome, Progress
from studio import events
from studio.access import hooks
from studio.access.audit import Audit
from studio.access.hooks import Hook, ImageRefusedError
from studio.database import Database
from studio.jobs import claims, workers
from studio.jobs.costs import estimates
from studio.jobs.job import Card, Job
from studio.jobs.workers import LOCAL, WorkerState
from studio.library import inputs
from studio.settings import Settings
from studio.worker.batch import Batch, take_own
from studio.worker.resident import Resident
from studio.worker.saving import name_warm_s, save

POLL_S = 0.05
HEARTBEAT_S = 1.0
ENGINE_INTERVAL_S = 0.1

Trace = Callable[[], AbstractContextManager[None]]
"""Entered around a job it writes down what the devices do, and logs where."""

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
    given_up: set[tuple[str, str]] = field(default_factory=set)
    """Models and programs whose compilation failed while idle; a job may still try them."""
    trace: Trace | None = None
    """Of the first job that compiles nothing; then never again."""
    ending: threading.Event = field(default_factory=threading.Event)
    """Set when the server was told to stop: the job that runs is the last one."""
    image_hook: Hook | None = None

    def run(self) -> None:
        """Returns only after the last job; mostly the process ends with the app (__main__.py)."""
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        while not self.ending.is_set():
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
            workers.beat(self.database, LOCAL)
            time.sleep(HEARTBEAT_S)

    def _prepare(self) -> None:
        """Loads and warms the default model, unless somebody wants another one meanwhile."""
        model = self.default_model
        show = self._show_preparing(model, lambda wanted: wanted not in (None, model.id))
        self._describe(WorkerState.PREPARING, f"loading {model.title}")
        error = None
        try:
            family, swap = self.resident.become(model, show)
            compiles_before = family.compile_count()
            warm_s = family.warm(model.default_shape, batch_size=1, uses_cfg=model.guidance_scale > 1, on_progress=show)
        except Cancelled:
            log.info("prepared only in part: somebody asked for another model")
        except Exception as problem:
            log.exception("preparing %s", model.id)
            error = self._explain(problem)
        else:
            load_s = family.load_s if swap else None
            self._record_warm(str(model.default_shape), warm_s, compiles_before=compiles_before, load_s=load_s)
            if swap:
                self.resident.end_swap(swap, warm_s=warm_s, compiles=family.compile_count() - compiles_before)
        self._describe(WorkerState.READY, "ready", error=error)

    def _prewarm(self) -> bool:
        """Compiles the next entry of `--prewarm` that is not warm; False when there is none, or a job came."""
        family = self.resident.family
        if family is None:
            return False
        wanted = next(
            (
                one
                for one in choose_programs(self.settings.prewarm, family.model)
                if (family.model.id, name_programs(*one)) not in self.given_up and family.shape_state(*one) != "warm"
            ),
            None,
        )
        if wanted is None:
            return False
        shape, references = wanted
        name = name_programs(shape, references)
        show = self._show_preparing(family.model, lambda wanted: wanted is not None)
        compiles_before = family.compile_count()
        error = None
        try:
            is_guided = family.model.guidance_scale > 1
            warm_s = family.warm(shape, batch_size=1, uses_cfg=is_guided, references=references, on_progress=show)
        except Cancelled:
            log.info("a job came while %s was being compiled; it goes on in the background", name)
        except Exception as problem:
            log.exception("prewarming %s %s", family.model.id, name)
            self.given_up.add((family.model.id, name))
            error = self._explain(problem)
        else:
            if references is not None:
                self.resident.references.add((shape, references))
            self._record_warm(name, warm_s, compiles_before=compiles_before, load_s=None)
        self._describe(WorkerState.READY, "ready", error=error)
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
                self._describe(WorkerState.PREPARING, _say(progress, model), progress=progress)

        return show

    def _record_warm(self, programs: str, warm_s: float, *, compiles_before: int, load_s: float | None) -> None:
        family = self.resident.family
        assert family is not None
        measured = estimates.Measured(
            model=family.model.id,
            shape=programs,
            batch_size=1,
            load_s=load_s,
            **name_warm_s(warm_s, compiles=family.compile_count() - compiles_before),
        )
        with self.database.write() as tx:
            estimates.record(tx, measured)

    def _run_job(self, job: Job) -> None:
        """Runs it to its end, and with it those that share its batch."""
        self._describe(WorkerState.BUSY, "running a job")
        started_s = time.perf_counter()
        history = estimates.read_history(self.database)
        with Batch(self.database, history) as batch:
            batch.add(job, estimate_s=self._estimate_s(job, history))
            try:
                outcome = self._make(batch, history)
                self._save(batch, outcome)
            except Cancelled:
                batch.cancel()
            except Exception as error:
                log.exception("job %s", job.id)
                batch.fail(self._explain(error))
        log.info("job %s ended after %.2f s", job.id, time.perf_counter() - started_s)
        self._describe(WorkerState.READY, "ready")
        events.forget_old(self.database)

    def _estimate_s(self, job: Job, history: estimates.History) -> float | None:
        recipe, programs = job.recipe, job.programs
        is_resident = self.resident.model_id == recipe.model
        shape_state = self.resident.describe_shapes().get(programs, "disk") if is_resident else "disk"
        return estimates.estimate_job_s(
            history, recipe, programs=programs, shape_state=shape_state, is_resident=is_resident
        )

    def _make(self, batch: Batch, history: estimates.History) -> Outcome:
        """Families read pictures as files; the job and what is saved keep their ids."""
        (job,) = (member.job for member in batch.members)
        found = inputs.find_files(self.database, self.settings, job.recipe.images, owner=job.owner)
        for file in found:
            self._ask_hook(job, job.recipe, lambda file=file: np.asarray(open_picture(file)))
        recipe = job.recipe.model_copy(update={"images": tuple(map(str, found))})
        family, swap = self.resident.become(self.catalog.get(recipe.model), batch.report)
        if swap:
            self._describe(WorkerState.BUSY, "running a job")
        for other in claims.claim_others(self.database, job, room=family.outputs_at_once - recipe.batch_size):
            batch.add(other, estimate_s=self._estimate_s(other, history))
        references = find_references(family.model, recipe)
        trace: Trace = contextlib.nullcontext
        if self.trace is not None and _is_warm(family, recipe, references):
            trace, self.trace = self.trace, None
        recipes = [recipe, *(member.job.recipe for member in batch.members[1:])]
        with trace():
            encode = functools.partial(self._encode, family, batch)
            outcome = generate_together(family, recipes, on_progress=batch.report, encode=encode)
        if references:
            self.resident.references.add((recipe.parsed_shape, references))
        if swap:
            warm_s = outcome.timings.compile_s
            outcome.timings.swap = self.resident.end_swap(swap, warm_s=warm_s, compiles=outcome.compiles)
        return outcome

    def _encode(self, family: Family, batch: Batch, number: int, recipe: Recipe) -> Embeddings | None:
        """None for a job that has left, and for one whose prompt cannot be encoded, which fails alone."""
        member = batch.find(number)
        if member is None:
            return None
        try:
            return family.encode(recipe, on_progress=batch.report)
        except Cancelled:
            raise
        except Exception as error:
            log.exception("job %s", member.job.id)
            batch.refuse(number, self._explain(error))
            return None

    def _ask_hook(self, job: Job, recipe: Recipe, read: Callable[[], np.ndarray]) -> None:
        """Raises ImageRefusedError when the operator's hook does not want a picture, brought along or made."""
        if self.image_hook is None:
            return
        reason = hooks.ask(self.image_hook, owner=job.owner, recipe=recipe.to_json(), pixels=read())
        if reason is not None:
            about = {"owner": job.owner, "job": job.id, "prompt": recipe.prompt, "seed": recipe.seed}
            Audit(self.settings.audit_log).note("image.refused", reason=reason, **about)
            raise ImageRefusedError(reason, advice="Nothing of this job is kept.")

    def _save(self, batch: Batch, outcome: Outcome) -> None:
        """Everybody's own outputs; what goes wrong with one job's is that job's alone."""
        assert self.resident.family is not None
        load_s = self.resident.family.load_s if outcome.timings.swap else None
        loras_s = outcome.timings.load_s - self.resident.family.load_s
        for number, member in enumerate(batch.members):
            waited_s = load_s if member.number == 0 else None
            own = take_own(outcome, member, load_s=loras_s + (waited_s or 0.0))
            try:
                for count, pixels in enumerate(own.pixels):
                    self._ask_hook(member.job, member.job.recipe.of_picture(count), lambda pixels=pixels: pixels)
                made_together = batch.size if number == 0 else None
                save(
                    self.database,
                    self.settings,
                    self.resident.family,
                    member,
                    own,
                    load_s=load_s,
                    batch_size=made_together,
                )
            except Cancelled:
                claims.end_cancelled(self.database, member.job)
            except Exception as error:
                log.exception("job %s", member.job.id)
                claims.fail(self.database, member.job, self._explain(error))

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
        self, state: WorkerState, activity: str, *, progress: Progress | None = None, error: Card | None = None
    ) -> None:
        with self.database.write() as tx:
            workers.describe(
                tx,
                LOCAL,
                state,
                activity=activity,
                error=error.to_json() if error else None,
                model=self.resident.model_id or "",
                shapes=self.resident.describe_shapes(),
                outputs_at_once=self.resident.family.outputs_at_once if self.resident.family else 1,
                swap=self.resident.swap.to_json() if self.resident.swap else None,
                phase=progress.phase if progress else "",
                phase_done=progress.done if progress else 0,
                phase_total=progress.total if progress else 0,
            )


def _is_warm(family: Family, recipe: Recipe, references: References | None) -> bool:
    """Whether a job of it compiles nothing."""
    state = family.shape_state(recipe.parsed_shape, references, batch_size=recipe.batch_size, uses_cfg=uses_cfg(recipe))
    return state == "warm"


def _say(progress: Progress, model: Model) -> str:
    if progress.phase == "compiling":
        return f"compiling {progress.detail or model.default_shape}"
    return f"{progress.phase} {model.title}"
