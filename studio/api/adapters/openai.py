"""Pictures for programs written for OpenAI's API: `POST /v1/images/generations`, `/v1/images/edits`, `GET /v1/models`.

A request becomes ordinary jobs, queued and counted like all others; the answer waits for them. A client that
disconnects cancels them.
Not here: what a request means (openai_request.py), their form of errors (openai_errors.py).
"""

import asyncio
import base64
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import UploadFile

from pipelines.errors import LumeshError, ModelError, RecipeError
from pipelines.files.still import QUALITY
from pipelines.messages import english
from pipelines.models.catalog import Model
from studio import asking
from studio.address import name_server
from studio.api.adapters.openai_request import Generation, choose_model, read_form
from studio.api.answers import system as system_answers
from studio.api.routes.media import find_output_file, read_still
from studio.api.visitor import Visitor
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.waiting import have_ended, watch_jobs
from studio.library import uploads
from studio.library.uploads import Upload
from studio.visit import NotFoundError, Visit

router = APIRouter(tags=["openai"])

MAX_FILES = 8  # with a mask, which is refused in words
_FILE = {"type": "string", "format": "binary"}
_FORM = {"prompt": {"type": "string"}, "image[]": {"type": "array", "items": _FILE}, "model": {"type": "string"}}
EDIT_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "properties": _FORM, "required": ["prompt", "image[]"]}
            }
        },
    }
}
CLIENT_LEFT = 499  # nobody receives it; logs use this number for a client that disconnected


class JobFailedError(LumeshError):
    """The job failed while the client waited for it."""

    title = english("The job failed")


class JobCancelledError(LumeshError):
    """The job was cancelled while the client waited for it."""

    title = english("The job was cancelled")
    status = 409


class StoppingError(LumeshError):
    """The server stops before the job has ended; the job stays in the queue."""

    title = english("The server stops")
    status = 503


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The jobs of a request, and what its answer depends on."""

    wanted: Generation
    model: Model
    ids: Sequence[str]
    notes: Sequence[str]


@router.post("/images/generations", response_model=system_answers.OpenAiPictures)
async def generate_images(wanted: Generation, request: Request, visit: Visitor) -> dict[str, Any] | Response:
    """Queues the pictures as ordinary jobs, waits for them, and answers as OpenAI does.

    `size` becomes the model's nearest shape, and a model of OpenAI the default one; the answer names both, and `notes`
    what was ignored. Errors have OpenAI's form. A client that hangs up cancels what it asked for; a long wait is better
    asked for with `POST /api/v1/jobs`.
    """
    return await _answer(await asyncio.to_thread(_submit, wanted, visit), request, visit)


@router.post("/images/edits", response_model=system_answers.OpenAiPictures, openapi_extra=EDIT_BODY)
async def edit_images(request: Request, visit: Visitor) -> dict[str, Any] | Response:
    """Makes pictures from pictures: a form with one or more files `image` or `image[]`, `prompt`, and the fields above.

    Without a model that takes pictures, the first one that does is used. A `mask` is refused: there is no inpainting.
    """
    async with request.form(max_files=MAX_FILES) as form:
        files = [file for name, file in form.multi_items() if name in ("image", "image[]")]
        contents = [await file.read() for file in files if isinstance(file, UploadFile)]
        if form.get("mask"):
            raise RecipeError({"mask": english("there is no inpainting here; leave the mask out")})
        fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
    if not contents:
        raise RecipeError({"image": english("send at least one picture as a file")})
    studio = visit.studio
    kept: list[Upload] = []
    async with studio.upload_turn.take(visit.person.client):
        for content in contents:
            options = {"owner": visit.owner, "quota": visit.upload_quota}
            folder = studio.settings.uploads_dir
            kept.append(await asyncio.to_thread(uploads.add, studio.database, folder, content, **options))
    wanted = read_form(fields, [upload.id for upload in kept])
    asked = await asyncio.to_thread(_submit, wanted, visit)
    notes = [f"Picture {number}: {note}" for number, upload in enumerate(kept, 1) for note in upload.notes]
    return await _answer(replace(asked, notes=[*asked.notes, *notes]), request, visit)


async def _answer(asked: Asked, request: Request, visit: Visit) -> dict[str, Any] | Response:
    """Waits for the jobs; cancels them when the client leaves first."""
    waiting = asyncio.create_task(_wait_for_end(visit, asked.ids))
    leaving = asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        leaving.cancel()
    if not waiting.done() or waiting.cancelled():
        await asyncio.to_thread(asking.withdraw, visit, asked.ids)
        return Response(status_code=CLIENT_LEFT)
    jobs = waiting.result()
    if any(job.state is not JobState.DONE for job in jobs):
        await asyncio.to_thread(_give_up, visit, jobs)
    return await asyncio.to_thread(_describe, visit, asked, jobs, name_server(request))


@router.get("/models", response_model=system_answers.OpenAiModels)
def list_models(visit: Visitor) -> dict[str, Any]:
    """Lists the models that make pictures; those that make videos are listed by `GET /api/v1/models`."""
    found = [model for model in visit.studio.catalog.models if not model.is_video]
    return {"object": "list", "data": [_describe_model(model) for model in found]}


@router.get("/models/{model_id}", response_model=system_answers.OpenAiModel)
def get_model(model_id: str, visit: Visitor) -> dict[str, Any]:
    """Describes one model."""
    try:
        return _describe_model(visit.studio.catalog.get(model_id))
    except ModelError as error:
        raise NotFoundError(error.detail, advice=error.advice) from error


def _describe_model(model: Model) -> dict[str, Any]:
    return {"id": model.id, "object": "model", "created": 0, "owned_by": "lumesh"}


def _submit(wanted: Generation, visit: Visit) -> Asked:
    model, notes = choose_model(
        visit.studio.catalog,
        wanted.model,
        default=visit.studio.default_model,
        takes_exact=visit.studio.settings.openai_exact_models,
        has_images=bool(wanted.images),
    )
    recipes = [asking.prepare(visit, recipe) for recipe in wanted.list_recipes(model)]
    ids = [job.id for job in asking.submit(visit, recipes)]
    return Asked(wanted=wanted, model=model, ids=ids, notes=[*notes, *wanted.list_ignored()])


async def _wait_for_end(visit: Visit, ids: Sequence[str]) -> list[Job]:
    """Waits until all jobs are done or one has ended otherwise, and returns them in their current state."""
    jobs: list[Job] = []
    async with aclosing(watch_jobs(visit.database, ids, visit.studio.feed.follow)) as watched:
        async for jobs in watched:
            if any(job.state.is_final and job.state is not JobState.DONE for job in jobs):
                break
    return jobs


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _give_up(visit: Visit, jobs: Sequence[Job]) -> None:
    """Cancels the jobs that still wait, and raises the reason why not all of them are done."""
    failed = next((job for job in jobs if job.error), None)
    if failed is None and not have_ended(jobs) and not any(job.state is JobState.CANCELLED for job in jobs):
        raise StoppingError(
            english(f"Job {jobs[0].id} stays in the queue."), advice=english("Ask for it when the server is back.")
        )
    asking.withdraw(visit, [job.id for job in jobs])
    if failed is None or failed.error is None:
        raise JobCancelledError(english("Somebody cancelled it while it waited or ran."))
    raise JobFailedError(
        english(f"{failed.error['title']}: {failed.error['detail']}"), advice=english(failed.error["advice"])
    )


def _describe(visit: Visit, asked: Asked, jobs: Sequence[Job], base_url: str) -> dict[str, Any]:
    links = [link for job in jobs for link in job.outputs]
    notes = dict.fromkeys((*asked.notes, *(str(note) for job in jobs for note in job.notes)))
    return {
        "created": int(max(job.finished_at or 0 for job in jobs)),
        "model": asked.model.id,
        "size": f"{links[0]['width']}x{links[0]['height']}",
        "output_format": asked.wanted.output_format or "png",
        "background": "opaque",
        "notes": list(notes),
        "data": [_describe_picture(visit, asked.wanted, link, base_url) for link in links],
    }


def _describe_picture(visit: Visit, wanted: Generation, link: dict[str, Any], base_url: str) -> dict[str, Any]:
    picture: dict[str, Any] = {"id": link["id"], "seed": link["seed"]}
    kind = None if wanted.output_format in (None, "png") else wanted.output_format
    quality = QUALITY if wanted.output_compression is None else wanted.output_compression
    if wanted.response_format != "b64_json":
        picture["url"] = f"{base_url}{link['url']}" + (f"?as={kind}&quality={quality}" if kind else "")
    if wanted.response_format != "url":
        output = visit.get_output(link["id"])
        file = find_output_file(visit, output, output.file)
        content = file.read_bytes() if kind is None else read_still(visit, output, kind, quality=quality)
        picture["b64_json"] = base64.b64encode(content).decode()
    return picture
