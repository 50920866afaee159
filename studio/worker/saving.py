"""Ends a job: writes its outputs as files and hands them to the desk."""

import logging
import sqlite3
import time
from typing import TypedDict

from pipelines.prompts.reading import list_notes
from pipelines.stages import Family, Outcome, Progress
from studio.jobs.costs.estimates import Measured
from studio.library import files
from studio.settings import Settings
from studio.storage import is_full
from studio.worker.batch import Member
from studio.worker.desk import Desk, Made
from studio.worker.provenance import describe_making

NO_ROOM = "waits for room on the disk"
ROOM_PAUSE_S = 2.0

log = logging.getLogger(__name__)


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

    `batch_size` is the number of outputs made together; None when another job of the batch records the timings. On a
    full disk it waits for room, until somebody cancels the job: what was made is not thrown away, and the next could
    not be saved either.
    """
    job = member.job
    member.progress.report(Progress(phase="saving", total=len(outcome.pixels)))
    while True:
        try:
            _save_once(desk, settings, family, member, outcome, load_s=load_s, batch_size=batch_size)
        except (OSError, sqlite3.Error) as error:
            if not is_full(error):
                raise
            log.warning("job %s is made and waits for room on the disk", job.id)
            member.progress.report(Progress(phase="saving", total=len(outcome.pixels), detail=NO_ROOM))
            time.sleep(ROOM_PAUSE_S)
        else:
            return


def _save_once(
    desk: Desk,
    settings: Settings,
    family: Family,
    member: Member,
    outcome: Outcome,
    *,
    load_s: float | None,
    batch_size: int | None,
) -> None:
    job = member.job
    clock = time.perf_counter()
    recipe, is_flushed = job.recipe.made_with(outcome.revision), not desk.sends_files
    saved = files.save_outputs(settings.outputs_dir, job.id, outcome.pixels, recipe, is_flushed=is_flushed)
    save_s = time.perf_counter() - clock
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
            took_s=member.progress.took_s,
        )
    recipe = job.recipe
    read = list_notes(family.model, recipe.prompt, recipe.negative_prompt, has_loras=bool(recipe.loras))
    made = Made(
        files=saved,
        made_at=time.time(),
        made_with=describe_making(desk, settings, family),
        timings=outcome.timings.to_json(),
        compiles=outcome.compiles,
        revision=outcome.revision,
        measured=measured,
        notes=[*outcome.notes, *read],
    )
    desk.finish(job, made)


def name_warm_s(seconds: float, *, compiles: int) -> WarmSeconds:
    """Assigns the warming seconds to compiling, to reading the compilation cache, or to neither if all was warm."""
    if not seconds:
        return {}
    return {"compile_s": seconds} if compiles else {"cache_s": seconds}
