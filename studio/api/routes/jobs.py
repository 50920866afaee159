"""Jobs over REST: submit, list, edit, duplicate, cancel, retry.

Reads that a page starts from carry `last_event_id`: the stream after that id has every later change.
Not here: the whole line (queue.py).
"""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict

from pipelines.recipes.recipe import Recipe
from studio import asking, events
from studio.api.answers import jobs as jobs_answers
from studio.api.visitor import Visitor
from studio.jobs import arrange, queue
from studio.jobs.costs import offers
from studio.jobs.states import JobState

PresetId = Annotated[str | None, Query(max_length=100, description="the preset that the settings came from")]

router = APIRouter(tags=["jobs"])


class Copy(BaseModel):
    """Options for duplicating a job."""

    model_config = ConfigDict(extra="forbid")
    keep_seed: bool = False


class Many(BaseModel):
    """Selects the visitor's jobs: `waiting` excludes running ones, `all` includes them."""

    model_config = ConfigDict(extra="forbid")
    scope: arrange.Scope


@router.post("/jobs", status_code=201, response_model=jobs_answers.Id)
def create_job(recipe: Recipe, visit: Visitor, preset: PresetId = None) -> dict[str, str]:
    """Queues a recipe. Only `model` and `prompt` are required; 422 names every invalid field.

    429 when your quota of waiting jobs is used up.
    """
    [job] = asking.submit(visit, [asking.prepare(visit, recipe, preset=preset)])
    return {"id": job.id}


@router.post("/estimate", response_model=jobs_answers.Estimate)
def estimate_job(recipe: Recipe, visit: Visitor) -> dict[str, Any]:
    """Estimates what a recipe would cost now, without queueing it.

    `programs` names the compiled programs that it needs, with its input pictures; `state` tells whether they are
    `warm`, `disk` or `cold`; `warm_s` and `seconds` are from measurements (null: never measured).
    """
    wanted = asking.prepare(visit, recipe)
    return offers.describe_recipe(visit.database, wanted.recipe, programs=wanted.programs)


@router.get("/jobs", response_model=jobs_answers.Jobs)
def list_jobs(
    visit: Visitor,
    state: Annotated[JobState | None, Query(description="only jobs in this state")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    everyone: Annotated[bool, Query(description="everybody's jobs, for admins")] = False,  # noqa: FBT002
) -> dict[str, Any]:
    """Lists jobs, newest first; with `state=queued` in the order in which they run.

    Waiting jobs have their `position` (1 is next), the `reason` why they wait, and `eta_s`.
    """
    last_event_id = events.read_last_id(visit.database)
    owner = visit.choose_owner(is_everyone=everyone)
    jobs = queue.list_jobs(visit.database, owner=owner, state=state, limit=limit)
    return {"jobs": [job.to_json() for job in jobs], "last_event_id": last_event_id}


@router.post("/jobs/cancel", response_model=jobs_answers.Cancelled)
def cancel_jobs(many: Many, visit: Visitor) -> dict[str, int]:
    """Cancels your waiting jobs, with scope `all` also the running one; answers how many were asked to end."""
    return {"cancelled": arrange.cancel_many(visit.database, many.scope, owner=visit.owner)}


@router.post("/jobs/clear", response_model=jobs_answers.Cleared)
def clear_jobs(visit: Visitor) -> dict[str, int]:
    """Hides your ended jobs from the queue's list (`is_cleared`). Nothing is deleted: pictures and recipes stay."""
    return {"cleared": arrange.clear_ended(visit.database, owner=visit.owner)}


@router.get("/jobs/{job_id}", response_model=jobs_answers.Job)
def get_job(job_id: str, visit: Visitor) -> dict[str, Any]:
    """Returns a job, with its outputs when it is done and its error card when it failed."""
    return visit.get_job(job_id).to_json()


@router.patch("/jobs/{job_id}", response_model=jobs_answers.Job)
def edit_job(
    job_id: str,
    visit: Visitor,
    changes: Annotated[dict[str, Any], Body(description="fields of a recipe; the others stay", min_length=1)],
) -> dict[str, Any]:
    """Changes the recipe of a waiting job, which keeps its place; 409 when it is no longer waiting.

    With another `model`, fields not given take that model's defaults; prompt, seed, batch size and images stay.
    """
    return asking.edit(visit, job_id, changes).to_json()


@router.delete("/jobs/{job_id}", response_model=jobs_answers.Job)
def cancel_job(job_id: str, visit: Visitor) -> dict[str, Any]:
    """Cancels a waiting job at once, a running one at its next chunk. Answers with the job in its current state."""
    return asking.cancel(visit, job_id).to_json()


@router.post("/jobs/{job_id}/retry", response_model=jobs_answers.Job)
def retry_job(job_id: str, visit: Visitor) -> dict[str, Any]:
    """Queues a failed, cancelled, interrupted or paused job again under its own id; 409 for any other.

    A training goes on from its last state.
    """
    return asking.retry(visit, job_id).to_json()


@router.post("/jobs/{job_id}/duplicate", status_code=201, response_model=jobs_answers.Id)
def duplicate_job(job_id: str, visit: Visitor, copy: Copy | None = None) -> dict[str, str]:
    """Queues a job's recipe once more, with a new seed unless `keep_seed` is true; answers with the new job's id."""
    return {"id": asking.duplicate(visit, job_id, keeps_seed=copy is not None and copy.keep_seed).id}
