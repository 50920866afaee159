"""Sweeps over REST: one recipe for many jobs, counted first, queued together."""

from typing import Any

from fastapi import APIRouter

from studio import asking
from studio.api.answers import jobs as jobs_answers
from studio.api.routes.jobs import PresetId
from studio.api.visitor import Visitor
from studio.jobs.costs import offers
from studio.jobs.many.sweep import Sweep

router = APIRouter(tags=["jobs"])


@router.post("/expand", response_model=jobs_answers.SweepCount)
def count_sweep(sweep: Sweep, visit: Visitor) -> dict[str, Any]:
    """Counts the jobs of a prompt with choices (`{red|blue} boat`, `__animals__`) and several seeds; queues nothing.

    `count` is `prompts` (all `combinations`, unless `draws` asks for fewer at random) times `seeds`; more than `limit`
    are refused. `examples` are the first prompts, `seconds` estimates all jobs from past measurements (null: never
    measured). `is_plain`: the prompt has no choices.
    """
    expanded = asking.expand_sweep(visit, sweep)
    example = sweep.recipe.model_copy(update={"prompt": expanded.template.list_prompts(1)[0]})
    wanted = asking.prepare(visit, example)
    seconds = offers.estimate_many_s(visit.database, wanted.recipe, programs=wanted.programs, count=expanded.count)
    return {**expanded.describe(), "seconds": seconds}


@router.post("/jobs/many", status_code=201, response_model=jobs_answers.Ids)
def create_jobs(sweep: Sweep, visit: Visitor, preset: PresetId = None) -> dict[str, list[str]]:
    """Queues a job for every prompt and seed of a sweep, in order, or none of them; answers with their ids."""
    return {"ids": [job.id for job in asking.submit_sweep(visit, sweep, preset=preset)]}
