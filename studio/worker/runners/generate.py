"""Runs a job that makes pictures or videos, together with the jobs that share its batch."""

import contextlib
import functools
import logging

import numpy as np

from pipelines import finite
from pipelines.errors import Cancelled
from pipelines.generate import find_references
from pipelines.messages import say
from pipelines.pictures.reading import open_picture
from pipelines.program_sets import ProgramSet
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices import hosts
from pipelines.stages import Embeddings, Family, Outcome
from studio.jobs.costs.estimates import History, estimate_job_s
from studio.jobs.job import Job
from studio.jobs.workers import WorkerState
from studio.worker.batch import Batch, take_own
from studio.worker.bench import Bench, Trace
from studio.worker.saving import save

PROMPT = "whether a prompt is read"
"""What the hosts of a slice agree on before each prompt of a batch: its job may have left, as the first one knows."""

log = logging.getLogger(__name__)


def run(bench: Bench, job: Job) -> None:
    """Loads the model, lets other jobs join, generates and saves; each job of the batch ends individually."""
    history = bench.desk.read_history()
    with Batch(bench.desk, history) as batch:
        batch.add(job, estimate_s=_estimate_s(bench, job, history))
        try:
            outcome = _make(bench, batch, history)
            _save(bench, batch, outcome)
        except Cancelled:
            batch.cancel()
        except Exception as error:
            log.exception("job %s", job.id)
            batch.fail(bench.explain(error))


def _estimate_s(bench: Bench, job: Job, history: History) -> float | None:
    recipe, programs = job.recipe, job.programs
    is_resident = bench.resident.model_id == recipe.model
    shape_state = bench.resident.describe_shapes().get(programs, "disk") if is_resident else "disk"
    return estimate_job_s(history, recipe, programs=programs, shape_state=shape_state, is_resident=is_resident)


def _make(bench: Bench, batch: Batch, history: History) -> Outcome:
    """Generates the batch. Families get input pictures as files; the job and its outputs keep their ids."""
    (job,) = (member.job for member in batch.members)
    files = bench.desk.find_inputs(job)
    for file in files:
        bench.ask_hook(job, job.recipe, lambda file=file: np.asarray(open_picture(file)))
    recipe = job.recipe.model_copy(update={"images": tuple(map(str, files))})
    family, swap = bench.resident.become(bench.find_model(recipe.model), batch.report)
    if swap:
        bench.announce(WorkerState.BUSY, say("running a job"))
    for other in bench.desk.claim_others(job, room=family.outputs_at_once - recipe.batch_size):
        batch.add(other, estimate_s=_estimate_s(bench, other, history))
    references, text_chunks = find_references(family.model, recipe), family.count_text_chunks(recipe)
    programs = ProgramSet.of(recipe, references=references, text_chunks=text_chunks)
    trace: Trace = contextlib.nullcontext
    if bench.trace is not None and bench.resident.find_state(programs) == "warm":
        trace, bench.trace = bench.trace, None
    recipes = [recipe, *(member.job.recipe for member in batch.members[1:])]
    with trace():
        encode = functools.partial(_encode, bench, family, batch)
        outcome = bench.generate(family, recipes, on_progress=batch.report, encode=encode)
    if programs != ProgramSet.usual(family.model, programs.shape):
        bench.resident.further.add(programs)
    if swap:
        warm_s = outcome.timings.compile_s
        outcome.timings.swap = bench.resident.end_swap(swap, warm_s=warm_s, compiles=outcome.compiles)
    return outcome


def _encode(bench: Bench, family: Family, batch: Batch, number: int, recipe: Recipe) -> Embeddings | None:
    """Encodes one job's prompt; returns None if the job has left or its prompt fails, which ends only that job."""
    member = batch.find(number)
    if not hosts.agree(PROMPT, member is not None) or member is None:
        return None
    try:
        return family.encode(recipe, on_progress=batch.report)
    except Cancelled:
        raise
    except Exception as error:
        log.exception("job %s", member.job.id)
        batch.refuse(number, bench.explain(error))
        return None


def _save(bench: Bench, batch: Batch, outcome: Outcome) -> None:
    """Saves each job's own outputs; an error fails only the job concerned."""
    family = bench.resident.family
    assert family is not None
    load_s = family.load_s if outcome.timings.swap else None
    loras_s = outcome.timings.load_s - family.load_s
    for number, member in enumerate(batch.members):
        waited_s = load_s if member.number == 0 else None
        own = take_own(outcome, member, load_s=loras_s + (waited_s or 0.0))
        try:
            finite.refuse(own.broken, member.job.recipe)
            for count, pixels in enumerate(own.pixels):
                bench.ask_hook(member.job, member.job.recipe.of_picture(count), lambda pixels=pixels: pixels)
            made_together = batch.size if number == 0 else None
            save(bench.desk, bench.settings, family, member, own, load_s=load_s, batch_size=made_together)
        except Cancelled:
            bench.desk.end_cancelled(member.job)
        except Exception as error:
            log.exception("job %s", member.job.id)
            bench.desk.fail(member.job, bench.explain(error))
