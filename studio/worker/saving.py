"""Ends a job: writes its outputs as files and hands them to the desk."""

import time
from typing import TypedDict

from pipelines.prompts.reading import list_notes
from pipelines.stages import Family, Outcome, Progress
from studio.jobs.costs.estimates import Measured
from studio.library import files
from studio.settings import Settings
from studio.worker.batch import Member
from studio.worker.desk import Desk, Made
from studio.worker.provenance import describe_making


class WarmSeconds(TypedDict, total=False):
    """The fields of estimates.Measured that say how a shape became warm."""

    compile_s: float
    cache_s: float


def save(
    desk: Desk,
    settings: Settings,
    family: Family,
    member: Member,
    outcome: Outcome,
    *,
    load_s: float | None,
    batch_size: int | None,
) -> None:
    """Writes complete files, then has the desk store them with the timings and the job's end; all or nothing.

    `batch_size` is the number of outputs made together; None when another job of the batch records the timings.
    """
    job = member.job
    member.progress.report(Progress(phase="saving", total=len(outcome.pixels)))
    clock = time.perf_counter()
    saved = files.save_outputs(settings.outputs_dir, job.id, outcome.pixels, job.recipe.made_with(outcome.revision))
    save_s = time.perf_counter() - clock
    made_at = time.time()
    measured = None
    if batch_size is not None:
        measured = Measured(
            model=job.recipe.model,
            shape=job.programs,
            batch_size=batch_size,
            load_s=load_s,
            **name_warm_s(outcome.timings.compile_s, compiles=outcome.compiles),
            step_s=outcome.timings.step_ms / 1000,
            fixed_s=outcome.timings.encode_s + outcome.timings.decode_s + save_s,
            estimated_s=member.estimate_s,
            took_s=made_at - job.started_at if job.started_at else None,
        )
    made = Made(
        files=saved,
        made_at=made_at,
        made_with=describe_making(desk, settings, family),
        timings=outcome.timings.to_json(),
        compiles=outcome.compiles,
        revision=outcome.revision,
        measured=measured,
        notes=[*outcome.notes, *list_notes(family.model, job.recipe.prompt, job.recipe.negative_prompt)],
    )
    desk.finish(job, made)


def name_warm_s(seconds: float, *, compiles: int) -> WarmSeconds:
    """Assigns the warming seconds to compiling, to reading the compilation cache, or to neither if all was warm."""
    if not seconds:
        return {}
    return {"compile_s": seconds} if compiles else {"cache_s": seconds}
