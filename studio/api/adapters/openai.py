"""Pictures for programs written for OpenAI's API: `POST /v1/images/generations` and `GET /v1/models`.

A request becomes ordinary jobs, queued and counted like all others; the answer waits for them. A client that
disconnects cancels them. Parameters of OpenAI that no model here supports (quality, style, user) are accepted and
ignored.
Not here: their form of errors (openai_errors.py).
"""

import asyncio
import base64
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from pipelines.catalog import Model, Shape
from pipelines.errors import LumeshError, ModelError, RecipeError
from pipelines.messages import english
from pipelines.recipe import Lora, Recipe
from studio import asking
from studio.address import name_server
from studio.api.answers import system as system_answers
from studio.api.routes.media import find_output_file
from studio.api.visitor import Visitor
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.waiting import have_ended, watch_jobs
from studio.visit import NotFoundError, Visit

router = APIRouter(tags=["openai"])

MAX_PICTURES = 10
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


class Generation(BaseModel):
    """The request of OpenAI's clients; from `negative_prompt` on, additional fields of a recipe (`extra_body`)."""

    model_config = ConfigDict(extra="forbid")

    prompt: str
    model: Annotated[str | None, Field(description="an id of GET /v1/models; left out: the default model")] = None
    n: Annotated[int | None, Field(ge=1, le=MAX_PICTURES)] = None
    size: Annotated[str | None, Field(description="WIDTHxHEIGHT, of which the model's nearest size is taken")] = None
    response_format: Annotated[Literal["url", "b64_json"] | None, Field(description="left out: both")] = None
    output_format: Literal["png"] | None = None
    background: Literal["opaque", "auto"] | None = None
    stream: Literal[False] | None = None
    partial_images: Literal[0] | None = None
    quality: Annotated[Any, Field(description="means nothing here, like the next six")] = None
    style: Any = None
    complexity: Any = None
    moderation: Any = None
    output_compression: Any = None
    user: Any = None
    safety_identifier: Any = None
    negative_prompt: str | None = None
    seed: int | None = None
    steps: int | None = None
    guidance_scale: float | None = None
    scheduler: str | None = None
    loras: tuple[Lora, ...] = ()
    images: tuple[str, ...] = ()

    def list_recipes(self, model: Model) -> list[Recipe]:
        """Splits the request into jobs of as many pictures as the model makes at once; picture i has seed + i."""
        count = self.n or 1
        starts = range(0, count, model.max_batch_size)
        return [
            Recipe(
                model=model.id,
                prompt=self.prompt,
                shape=_choose_shape(self.size, model),
                batch_size=min(model.max_batch_size, count - start),
                seed=None if self.seed is None else self.seed + start,
                negative_prompt=self.negative_prompt,
                steps=self.steps,
                guidance_scale=self.guidance_scale,
                scheduler=self.scheduler,
                loras=self.loras,
                images=self.images,
            )
            for start in starts
        ]


@router.post("/images/generations", response_model=system_answers.OpenAiPictures)
async def generate_images(wanted: Generation, request: Request, visit: Visitor) -> dict[str, Any] | Response:
    """Queues the pictures as ordinary jobs, waits for them, and answers as OpenAI does.

    `size` becomes the model's nearest shape, which the answer names. Errors have OpenAI's form. A client that hangs up
    cancels what it asked for; a long wait is better asked for with `POST /api/v1/jobs`.
    """
    ids = await asyncio.to_thread(_submit, wanted, visit)
    waiting = asyncio.create_task(_wait_for_end(visit, ids))
    leaving = asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        leaving.cancel()
    if not waiting.done() or waiting.cancelled():
        await asyncio.to_thread(asking.withdraw, visit, ids)
        return Response(status_code=CLIENT_LEFT)
    jobs = waiting.result()
    if any(job.state is not JobState.DONE for job in jobs):
        await asyncio.to_thread(_give_up, visit, jobs)
    return await asyncio.to_thread(_describe, visit, jobs, wanted.response_format, name_server(request))


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


def _submit(wanted: Generation, visit: Visit) -> list[str]:
    catalog = visit.studio.catalog
    try:
        model = catalog.get(wanted.model) if wanted.model else catalog.default
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error
    if model.is_video:
        raise RecipeError({"model": english(f"{model.id} makes videos; queue them with POST /api/v1/jobs")})
    recipes = [asking.prepare(visit, recipe) for recipe in wanted.list_recipes(model)]
    return [job.id for job in asking.submit(visit, recipes)]


def _choose_shape(size: str | None, model: Model) -> str | None:
    if size is None or size == "auto":
        return None
    try:
        wished = Shape.parse(size)
    except ValueError as error:
        raise RecipeError({"shape": english(f"{error}; {model.id} makes {model.shape_list()}")}) from error
    if not wished.width or not wished.height:
        raise RecipeError({"shape": english(f"{size} has no pixels; {model.id} makes {model.shape_list()}")})
    return str(model.find_nearest_shape(wished.width, wished.height, 1))


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


def _describe(visit: Visit, jobs: Sequence[Job], form: str | None, base_url: str) -> dict[str, Any]:
    links = [link for job in jobs for link in job.outputs]
    return {
        "created": int(max(job.finished_at or 0 for job in jobs)),
        "size": f"{links[0]['width']}x{links[0]['height']}",
        "output_format": "png",
        "background": "opaque",
        "data": [_describe_picture(visit, link, form, base_url) for link in links],
    }


def _describe_picture(visit: Visit, link: dict[str, Any], form: str | None, base_url: str) -> dict[str, Any]:
    picture: dict[str, Any] = {"id": link["id"], "seed": link["seed"]}
    if form != "b64_json":
        picture["url"] = f"{base_url}{link['url']}"
    if form != "url":
        picture["b64_json"] = base64.b64encode(_read_file(visit, link["id"])).decode()
    return picture


def _read_file(visit: Visit, output_id: str) -> bytes:
    output = visit.get_output(output_id)
    return find_output_file(visit, output, output.file).read_bytes()
