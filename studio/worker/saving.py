"""What a job made becomes files, outputs and the job's end."""

import time
from typing import TypedDict

from pipelines.stages import Family, Outcome, Progress
from studio.database import Database, Transaction
from studio.jobs import claims
from studio.jobs.costs import cost, estimates
from studio.library import files, records
from studio.settings import Settings
from studio.worker.batch import Member
from studio.worker.provenance import describe_making


class WarmSeconds(TypedDict, total=False):
    """Of estimates.Measured."""

    compile_s: float
    cache_s: float


def save(
    database: Database,
    settings: Settings,
    family: Family,
    member: Member,
    outcome: Outcome,
    *,
    load_s: float | None,
    batch_size: int | None,
) -> None:
    """Files first, whole; then outputs, measurements and the job's end in one transaction; or neither.

    `batch_size` is how many outputs were made together; None when another job of the batch has recorded its seconds.
    """
    job = member.job
    member.progress.report(Progress(phase="saving", total=len(outcome.pixels)))
    clock = time.perf_counter()
    saved = files.save_outputs(settings.outputs_dir, job.id, outcome.pixels, job.recipe.made_with(outcome.revision))
    save_s = time.perf_counter() - clock
    created_at = time.time()
    made_with = describe_making(database, settings, family)
    try:
        with database.write() as tx:
            share = cost.measure(tx, job.id, ended_at=created_at).share(len(saved))
            outputs = [
                records.add(
                    tx,
                    file,
                    job_id=job.id,
                    owner=job.owner,
                    number=number,
                    created_at=created_at,
                    made_with=made_with,
                    chip_seconds=share.chip_seconds,
                    cost_usd=share.usd,
                )
                for number, file in enumerate(saved)
            ]
            if batch_size is not None:
                _record(tx, member, outcome, load_s=load_s, save_s=save_s, ended_at=created_at, batch_size=batch_size)
            claims.finish(
                tx,
                job,
                outputs=[output.link() for output in outputs],
                timings=outcome.timings.to_json(),
                compiles=outcome.compiles,
                revision=outcome.revision,
            )
    except BaseException:
        files.discard(settings.outputs_dir, saved)
        raise


def _record(
    tx: Transaction,
    member: Member,
    outcome: Outcome,
    *,
    load_s: float | None,
    save_s: float,
    ended_at: float,
    batch_size: int,
) -> None:
    job, timings = member.job, outcome.timings
    estimates.record(
        tx,
        estimates.Measured(
            model=job.recipe.model,
            shape=job.programs,
            batch_size=batch_size,
            load_s=load_s,
            **name_warm_s(timings.compile_s, compiles=outcome.compiles),
            step_s=timings.step_ms / 1000,
            fixed_s=timings.encode_s + timings.decode_s + save_s,
            estimated_s=member.estimate_s,
            took_s=ended_at - job.started_at if job.started_at else None,
        ),
    )


def name_warm_s(seconds: float, *, compiles: int) -> WarmSeconds:
    """Warming compiled, or read the compilation cache, or had nothing to do: three things with three costs."""
    if not seconds:
        return {}
    return {"compile_s": seconds} if compiles else {"cache_s": seconds}
