"""One recipe for many jobs over REST: counted first, queued together."""

from typing import Any

from fastapi import APIRouter

from studio.api.routes.jobs import PresetId, of_preset, prepare
from studio.api.visit import Visit, Visitor
from studio.jobs import queue
from studio.jobs.costs import estimates
from studio.jobs.many.sweep import Expanded, Sweep, expand
from studio.library.wildcards import read_wildcard

router = APIRouter(tags=["jobs"])


@router.post("/expand")
def count_sweep(sweep: Sweep, visit: Visitor) -> dict[str, Any]:
    """What a prompt with choices (`{red|blue} boat`, `__animals__`) and several seeds would queue, without queueing it.

    `count` jobs are `prompts` (of all `combinations`, unless `draws` asks for fewer at random) times `seeds`; more than
    `limit` are refused. `examples` are the first prompts, `seconds` what all of it takes by past measurements (null:
    never measured). `is_plain`: there is nothing to choose in the prompt.
    """
    expanded = _expand(sweep, visit)
    example = sweep.recipe.model_copy(update={"prompt": expanded.template.list_prompts(1)[0]})
    wanted = prepare(example, visit)
    seconds = estimates.estimate_many_s(visit.database, wanted.recipe, programs=wanted.programs, count=expanded.count)
    return {**expanded.describe(), "seconds": seconds}


@router.post("/jobs/many", status_code=201)
def create_jobs(sweep: Sweep, visit: Visitor, preset: PresetId = None) -> dict[str, list[str]]:
    """Queues a job for every prompt and seed of a sweep, in order, or none of them; answers with their ids."""
    wanted = [of_preset(prepare(recipe, visit), preset, visit) for recipe in _expand(sweep, visit).list_recipes()]
    visit.admit([one.recipe for one in wanted])
    quota = visit.studio.settings.queue_quota
    return {"ids": [job.id for job in queue.submit_all(visit.database, wanted, owner=visit.owner, quota=quota)]}


def _expand(sweep: Sweep, visit: Visit) -> Expanded:
    folder = visit.studio.settings.wildcards_dir
    return expand(sweep, lambda name: read_wildcard(folder, name))
