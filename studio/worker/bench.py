"""The bench: what a worker provides to jobs of every kind, and the actions that all runners share."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from pipelines.errors import LumeshError
from pipelines.generate import generate_together
from pipelines.messages import Message, english, say
from pipelines.models.catalog import Catalog, Model
from pipelines.recipes.recipe import Recipe
from pipelines.stages import Outcome, Progress
from studio.access import hooks
from studio.access.audit import Audit
from studio.access.hooks import Hook, ImageRefusedError
from studio.jobs.job import Card, Job
from studio.jobs.workers import WorkerState
from studio.settings import Settings
from studio.storage import explain
from studio.worker.desk import Desk
from studio.worker.learning import Learn, pretend_to_learn
from studio.worker.resident import Resident

Trace = Callable[[], AbstractContextManager[None]]
"""Makes a context manager that traces what the devices do during a job, and logs the trace's location."""

Generate = Callable[..., Outcome]
"""Runs recipes as pipelines.generate.generate_together does."""


@dataclass(kw_only=True)
class Bench:
    """A worker's desk, its catalogue, its resident model, and its operator's settings."""

    settings: Settings
    desk: Desk
    catalog: Catalog
    resident: Resident
    read_catalog: Callable[[], Catalog] | None = None
    """Reads the catalogue anew for every job; without it, it stays as it is."""
    trace: Trace | None = None
    """Traces the first job that compiles nothing, and only that one."""
    generate: Generate = generate_together
    """Runs recipes of one kind as one batch; on a slice of several hosts, on all of them."""
    image_hook: Hook | None = None
    learn: Learn = pretend_to_learn
    """Trains what jobs of the kind `train` ask for."""
    trouble: Card | None = None
    """What the doctor found bad of the devices, shown until the first job (checkup.py)."""
    ending: threading.Event = field(default_factory=threading.Event)
    """Set when the server is stopping: the running job is the last one."""

    def find_model(self, model_id: str) -> Model:
        """Returns a model as the catalogue has it now; raises ModelError for one that is not there any more."""
        if self.read_catalog is not None:
            self.catalog = self.read_catalog()
        return self.catalog.get(model_id)

    def announce(
        self, state: WorkerState, activity: Message, *, progress: Progress | None = None, error: Card | None = None
    ) -> None:
        """Announces the worker's current activity and its resident model."""
        error = error or self.trouble
        self.desk.announce(
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

    def ask_hook(self, job: Job, recipe: Recipe, read: Callable[[], np.ndarray]) -> None:
        """Raises ImageRefusedError when the operator's hook refuses a picture, whether input or output."""
        if self.image_hook is None:
            return
        reason = hooks.ask(self.image_hook, owner=job.owner, recipe=recipe.to_json(), pixels=read())
        if reason is not None:
            about = {"owner": job.owner, "job": job.id, "prompt": recipe.prompt, "seed": recipe.seed}
            Audit(self.settings.audit_log).note("image.refused", reason=reason, **about)
            raise ImageRefusedError(english(reason), advice=say("Nothing of this job is kept."))

    def explain(self, error: Exception) -> Card:
        """Words an error for people. XLA reports full device memory as RESOURCE_EXHAUSTED."""
        if isinstance(error, LumeshError):
            return Card.of(error)
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            return Card(
                title=say("Out of memory"),
                detail=say("There is no room for this job: {error}", error=str(error)[:300]),
                advice=say("Choose a smaller size or fewer pictures at once."),
            )
        if (told := explain(error)) is not None:
            return Card.of(told)
        return Card(
            title=say("Something went wrong"),
            detail=english(f"{type(error).__name__}: {error}"[:600]),
            advice=say("Retry once; if it comes back, {file} has the details.", file=self.settings.worker_log),
        )
