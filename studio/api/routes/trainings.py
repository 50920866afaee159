"""Trainings over REST: ask for one, follow its curve and samples, pause it, let it go on, delete it.

A training is a job of the kind `train`: the jobs' routes list and cancel it, and run it again after an error.
Not here: what may be asked (studio/asking_to_train.py), the work itself (studio/worker/runners/train.py).
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse, Response

from pipelines.loras.files import find_lora_file
from pipelines.messages import say
from studio import asking, asking_to_train, events
from studio.api.answers import trainings as trainings_answers
from studio.api.answers.errors import refuses
from studio.api.routes.media import CHECKED, IfNoneMatch, send_file
from studio.api.visitor import Visitor
from studio.jobs import trainings
from studio.jobs.job import Job
from studio.jobs.training import AskedTraining
from studio.jobs.trainings import Training
from studio.library import training_files
from studio.visit import NotFoundError, Visit

router = APIRouter(tags=["trainings"])


@router.post(
    "/trainings",
    status_code=201,
    response_model=trainings_answers.QueuedTraining,
    responses=refuses(403, 413, 429, 507),
)
def create_training(asked: AskedTraining, visit: Visitor) -> dict[str, str]:
    """Queues a training that ends in a LoRA, which everybody here may then use; 422 names every field at fault.

    `pictures` are your own uploads, clips and outputs, by id; a model of videos learns clips and pictures. Each needs a
    caption, or the training a `trigger` word.
    `prior_prompts` are prompts of other things, of which the model makes pictures first, so as to keep them; `auto`
    stands for its own examples. With `start_from` a LoRA that is here learns on, as a new one. `strength` is `gentle`,
    `usual` or `strong`; `steps`, `rank` and `learning_rate` override its numbers. `name` in the answer is what the LoRA
    will be called, where a file cannot have the name that you asked for. 403 for somebody who may not train
    (`--who-may-train`), 429 when your quota of waiting jobs is used up.
    """
    job = asking_to_train.submit(visit, asked)
    return {"id": job.id, "name": job.title}


@router.get("/trainings", response_model=trainings_answers.Trainings, responses=refuses(403))
def list_trainings(
    visit: Visitor,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    everyone: Annotated[bool, Query(description="everybody's trainings, for admins")] = False,  # noqa: FBT002
) -> dict[str, Any]:
    """Lists trainings, newest first, each with its job."""
    last_event_id = events.read_last_id(visit.database)
    owner = visit.choose_owner(is_everyone=everyone)
    found = trainings.list_trainings(visit.database, owner=owner, limit=limit)
    return {"trainings": [_describe(visit, *one) for one in found], "last_event_id": last_event_id}


@router.get("/trainings/choices", response_model=trainings_answers.TrainingChoices)
def list_choices(visit: Visitor) -> dict[str, Any]:
    """Lists the models that can learn, with the numbers behind each strength, and what each will take.

    `seconds`, `step_s` and `cost_usd` are from trainings on this machine, or where none was measured from plans by the
    TPU compiler (`is_planned`, steps alone; null: neither, or without a price);
    `alone` without twins (`preserve`), `prior.picture` for each picture made first. `is_about` marks what was measured
    only of trainings that are alike.
    """
    return asking_to_train.describe_choices(visit)


@router.get("/trainings/{job_id}", response_model=trainings_answers.Training, responses=refuses(404))
def get_training(job_id: str, visit: Visitor) -> dict[str, Any]:
    """Returns a training with its pictures, its curve (at most some 400 points) and its samples."""
    last_event_id = events.read_last_id(visit.database)
    job, training = visit.get_training(job_id)
    is_video = trainings.find_lessons(visit.database.read, training.asked, owner=job.owner)
    return {
        **_describe(visit, job, training),
        "pictures": [
            {**picture.model_dump(), "is_video": is_video.get(picture.id, False)} for picture in training.asked.pictures
        ],
        "start_from": training.asked.start_from,
        "preserve": training.asked.preserve,
        "prior_prompts": list(training.asked.prior_prompts),
        "sample_prompts": list(training.asked.sample_prompts) or [job.recipe.prompt],
        "points": trainings.read_points(visit.database, job_id),
        "samples": trainings.read_samples(visit.database, job_id),
        "last_event_id": last_event_id,
    }


@router.post("/trainings/{job_id}/pause", response_model=trainings_answers.TrainingLine, responses=refuses(404, 409))
def pause_training(job_id: str, visit: Visitor) -> dict[str, Any]:
    """Pauses a training: after its next step all is saved, and the devices are free. 409 when it has ended."""
    visit.get_training(job_id)
    trainings.pause(visit.database, job_id)
    return _describe(visit, *visit.get_training(job_id))


@router.post(
    "/trainings/{job_id}/continue",
    response_model=trainings_answers.TrainingLine,
    responses=refuses(403, 404, 409, 429, 507),
)
def continue_training(job_id: str, visit: Visitor) -> dict[str, Any]:
    """Queues a paused, failed, cancelled or interrupted training again; it goes on from its last state."""
    visit.get_training(job_id)
    asking.retry(visit, job_id)
    return _describe(visit, *visit.get_training(job_id))


@router.delete("/trainings/{job_id}", status_code=204, responses=refuses(404, 409))
def delete_training(job_id: str, visit: Visitor) -> Response:
    """Deletes a training with its captions, curve, samples, log and the state to go on from; its LoRA stays.

    409 while it waits or runs: cancel its job first. A paused one is cancelled with it.
    """
    visit.get_training(job_id)
    trainings.forget(visit.database, job_id)
    training_files.forget_all(visit.studio.settings.training_dir / job_id)
    visit.note("training.deleted", job=job_id)
    return Response(status_code=204)


@router.get("/trainings/{job_id}/samples/{step}/{number}", response_class=FileResponse, responses=refuses(404))
def get_sample(  # noqa: PLR0917 - parameters of the route
    job_id: str,
    step: int,
    number: int,
    visit: Visitor,
    moving: Annotated[bool, Query(description="of a video all of it, as an endless animation")] = False,  # noqa: FBT002
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Returns a sample, a WebP of at most 768 px; of a video its middle frame, or with `moving` all of it."""
    visit.get_training(job_id)
    folder = visit.studio.settings.training_dir / job_id
    file = training_files.shown_file(folder, step, number, is_moving=moving)
    if moving and not file.is_file():
        file = training_files.shown_file(folder, step, number)
    if not file.is_file():
        raise NotFoundError(say("Training {id} has no such sample.", id=repr(job_id)[:100]))
    return send_file(file, if_none_match=if_none_match, headers=CHECKED)


def _describe(visit: Visit, job: Job, training: Training) -> dict[str, Any]:
    asked, settings = training.asked, visit.studio.settings
    models = {model.id: model for model in visit.studio.catalog.models}
    is_video = job.recipe.model not in models or models[job.recipe.model].is_video  # others learn no clips
    numbers = (
        vars(asked.choose_numbers(models[job.recipe.model]))
        if job.recipe.model in models
        else {"steps": job.steps, "rank": asked.rank or 0, "learning_rate": asked.learning_rate or 0.0}
    )
    return {
        "id": job.id,
        "name": training.name,
        "model": job.recipe.model,
        "trigger": asked.trigger,
        "strength": asked.strength,
        "numbers": numbers,
        "pictures_count": len(asked.pictures),
        "clips_count": _count_clips(visit, job, asked) if is_video else 0,
        "saved_step": training.saved_step,
        "pause_requested": training.pause_requested,
        "loras": [ref for ref in training.loras if find_lora_file(ref, settings.loras_dir) is not None],
        "job": job.to_json(),
    }


def _count_clips(visit: Visit, job: Job, asked: AskedTraining) -> int:
    return sum(trainings.find_lessons(visit.database.read, asked, owner=job.owner).values())
