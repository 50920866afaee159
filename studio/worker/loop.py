"""The worker's main loop: claim a job, run it, save its outputs, report.

A job is run by the runner of its kind (runners/). A job that fails gets an error card and the loop goes on, whatever
goes wrong; only the end of the process ends the loop. While no job waits, the default model is loaded and its default
shape compiled, so that the first prompt is fast; then the shapes of `--prewarm` are compiled for the resident model,
until a job arrives.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from pipelines.errors import Cancelled, LumeshError
from pipelines.messages import Message, say
from pipelines.models.catalog import Model
from pipelines.program_sets import ProgramSet, choose_prewarmed
from pipelines.stages import OnProgress, Progress
from studio.jobs.costs.estimates import Measured
from studio.jobs.job import Job
from studio.jobs.workers import WorkerState
from studio.worker.bench import Bench
from studio.worker.runners import RUNNERS, Runner
from studio.worker.saving import name_warm_s

POLL_S = 0.25  # for jobs that other processes than the app queue, and for what a while of waiting changes
HEARTBEAT_S = 1.0
RETRY_S = 1.0
ENGINE_INTERVAL_S = 0.1
FROM_CACHE = " from the cache"  # how a family ends what it says of programs that are read instead of compiled

log = logging.getLogger(__name__)


class UnknownKindError(LumeshError):
    """The worker has no runner for this kind of job."""

    title = say("The worker cannot run this job")


@dataclass(kw_only=True)
class Worker(Bench):
    """Runs one job after the other, as long as its process lives."""

    default_model: Model
    runners: Mapping[str, Runner] = field(default_factory=lambda: RUNNERS)
    is_prepared: bool = False
    given_up: set[tuple[str, str]] = field(default_factory=set)
    """Models and programs whose compilation failed while idle and is not repeated; a job may still try them."""

    def run(self) -> None:
        """Runs jobs and returns after the last one; usually the process ends with the app before (__main__.py)."""
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        while not self.ending.is_set():
            try:
                is_idle = not self.run_next()
            except Exception:  # of the desk: a full disk, a locked database; the next turn tries again
                log.exception("the worker goes on")
                time.sleep(RETRY_S)
            else:
                if is_idle:
                    self.desk.wait(POLL_S)

    def run_next(self) -> bool:
        """Runs the next job, or else prepares the default model once; returns False when there was nothing to do."""
        job = self.desk.claim_next(resident=self.resident.model_id)
        if job is None and self.is_prepared:
            return self._prewarm()
        self.is_prepared = True  # after a job, its model stays resident and the default one is not loaded
        if job is None:
            self._prepare()
        else:
            self._run_job(job)
        return True

    def _beat(self) -> NoReturn:
        while True:
            try:
                self.desk.beat()
            except Exception:  # a full disk: the supervisor knows that no heartbeat can be stored now
                log.exception("a heartbeat is not stored")
            time.sleep(HEARTBEAT_S)

    def _prepare(self) -> None:
        """Loads and warms the default model, unless a job wants another one meanwhile."""
        model = self.default_model
        show = self._show_preparing(model, lambda wanted: wanted not in (None, model.id))
        self.announce(WorkerState.PREPARING, say("loading {model}", model=model.title))
        error = None
        try:
            family, swap = self.resident.become(model, show)
            compiles_before = family.compile_count()
            warm_s = family.warm(model.default_shape, batch_size=1, uses_cfg=model.guidance_scale > 1, on_progress=show)
        except Cancelled:
            log.info("prepared only in part: somebody asked for another model")
        except Exception as problem:
            log.exception("preparing %s", model.id)
            error = self.explain(problem)
        else:
            load_s = family.load_s if swap else None
            self._record_warm(str(model.default_shape), warm_s, compiles_before=compiles_before, load_s=load_s)
            if swap:
                self.resident.end_swap(swap, warm_s=warm_s, compiles=family.compile_count() - compiles_before)
        self.announce(WorkerState.READY, say("ready"), error=error)

    def _prewarm(self) -> bool:
        """Compiles the next entry of `--prewarm` that is not warm; False when there is none or a job arrived."""
        family = self.resident.family
        if family is None:
            return False
        wanted = next(
            (
                one
                for one in choose_prewarmed(self.settings.prewarm, family.model)
                if (family.model.id, one.name_for(family.model)) not in self.given_up
                and self.resident.find_state(one) != "warm"
            ),
            None,
        )
        if wanted is None:
            return False
        name = wanted.name_for(family.model)
        show = self._show_preparing(family.model, lambda wanted: wanted is not None)
        compiles_before = family.compile_count()
        error = None
        try:
            warm_s = family.warm(
                wanted.shape,
                batch_size=wanted.batch_size,
                uses_cfg=wanted.is_guided,
                references=wanted.references,
                cache_kind=wanted.cache_kind,
                on_progress=show,
            )
        except Cancelled:
            log.info("a job came while %s was being compiled; it goes on in the background", name)
        except Exception as problem:
            log.exception("prewarming %s %s", family.model.id, name)
            self.given_up.add((family.model.id, name))
            error = self.explain(problem)
        else:
            if wanted != ProgramSet.usual(family.model, wanted.shape):
                self.resident.further.add(wanted)
            self._record_warm(name, warm_s, compiles_before=compiles_before, load_s=None, batch_size=wanted.batch_size)
        self.announce(WorkerState.READY, say("ready"), error=error)
        return True

    def _show_preparing(self, model: Model, ends: Callable[[str | None], bool]) -> OnProgress:
        """Returns an OnProgress that reports the preparation; it raises Cancelled if the next job's model `ends` it."""
        phase, reported_s = "", 0.0

        def show(progress: Progress) -> None:
            nonlocal phase, reported_s
            if ends(self.desk.find_next_model(resident=model.id)):
                raise Cancelled
            if progress.phase != phase or time.perf_counter() - reported_s >= ENGINE_INTERVAL_S:
                phase, reported_s = progress.phase, time.perf_counter()
                self.announce(WorkerState.PREPARING, _say(progress, model), progress=progress)

        return show

    def _record_warm(
        self, programs: str, warm_s: float, *, compiles_before: int, load_s: float | None, batch_size: int = 1
    ) -> None:
        family = self.resident.family
        assert family is not None
        self.desk.record(
            Measured(
                model=family.model.id,
                shape=programs,
                batch_size=batch_size,
                load_s=load_s,
                **name_warm_s(warm_s, compiles=family.compile_count() - compiles_before),
            )
        )

    def _run_job(self, job: Job) -> None:
        """Runs a job of any kind to its end."""
        self.trouble = None
        self.announce(WorkerState.BUSY, say("running a job"))
        started_s = time.perf_counter()
        try:
            self._find_runner(job)(self, job)
        except Cancelled:
            self.desk.end_cancelled(job)
        except Exception as error:
            log.exception("job %s", job.id)
            self.desk.fail(job, self.explain(error))
        log.info("job %s ended after %.2f s", job.id, time.perf_counter() - started_s)
        self.announce(WorkerState.READY, say("ready"))
        self.desk.end_turn()

    def _find_runner(self, job: Job) -> Runner:
        """Returns the runner of the job's kind; raises UnknownKindError."""
        runner = self.runners.get(job.kind)
        if runner is None:
            raise UnknownKindError(
                say("It is a job of the kind {kind}, which the worker does not know.", kind=job.kind),
                advice=say("Another version of Lumesh queued it: run it with that one."),
            )
        return runner


def _say(progress: Progress, model: Model) -> Message:
    if progress.phase == "compiling":
        what = progress.detail or str(model.default_shape)
        if what.endswith(FROM_CACHE):
            return say("loading {what} from the cache", what=what.removesuffix(FROM_CACHE).removesuffix(";"))
        return say("compiling {what}", what=what)
    if progress.phase == "loading":
        return say("loading {model}", model=model.title)
    return say("trying {model}", model=model.title)
