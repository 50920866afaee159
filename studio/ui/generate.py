"""The endpoint `/generate` for `gradio_client`: queues a recipe, reports progress, and returns files and recipe.

It waits without holding a thread or one of Gradio's slots: Gradio runs any number of these at once, and our own queue
decides which job is next and how many may wait. A client that disconnects or cancels cancels the job.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import gradio as gr

from studio import asking
from studio.address import name_server
from studio.context import Studio
from studio.jobs import queue
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.jobs.waiting import watch_jobs
from studio.visit import Visit

LOOK_S = 2.0  # between two updates of a waiting job's place; Gradio notices a disconnected client only at an update
Submit = Callable[[dict[str, Any], gr.Request], str]
OpenVisit = Callable[[gr.Request], Visit]
Update = tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]


def offer(studio: Studio, submit: Submit, open_visit: OpenVisit) -> None:
    """Adds the endpoint to the Blocks under construction; `submit` queues a recipe and returns the job's id."""

    async def generate(
        request: gr.Request, prompt: str, model: str | None = None, settings: dict[str, Any] | None = None
    ) -> AsyncGenerator[Update, None]:
        """Makes a prompt's pictures and returns (files, recipe, job); without `model`, the studio's default makes them.

        `settings` are further fields of a recipe, such as {"seed": 7, "steps": 12}. Until the files are there, each
        update has the job's current state, position, phase, step and eta_s.
        """
        assert request.request is not None, "this endpoint is only reached over HTTP"
        base_url = name_server(request.request)
        asked = {**(settings or {}), "model": model or studio.default_model.id, "prompt": prompt}
        job_id = await asyncio.to_thread(submit, asked, request)
        job = None
        try:
            async with aclosing(_watch(studio, job_id)) as updates:
                async for job in updates:
                    yield _list_files(job, base_url), job.recipe.to_json(), job.to_json()
        except (GeneratorExit, asyncio.CancelledError):
            asking.withdraw(open_visit(request), [job_id])
            raise
        _require_done(job)

    # gr.api derives the client's types from the return annotation, but does not support generators.
    generate.__annotations__["return"] = Update
    gr.api(generate, api_name="generate", concurrency_limit=None)


async def _watch(studio: Studio, job_id: str) -> AsyncGenerator[Job, None]:
    """Yields the job whenever it changed, and periodically while it waits."""
    last, told_s = None, 0.0
    async with aclosing(watch_jobs(studio.database, [job_id], studio.feed.follow)) as watched:
        async for [job] in watched:
            if job is last and time.monotonic() - told_s < LOOK_S:
                continue
            last, told_s = job, time.monotonic()
            placed = await asyncio.to_thread(queue.read_job, studio.database, job_id)
            yield placed or job


def _list_files(job: Job, base_url: str) -> list[dict[str, Any]]:
    """Lists the files that the client downloads, with its own cookies and headers, from our route, which checks owners.

    Plain files would be copied into Gradio's cache, which has no owners; files marked as streams are fetched by URL.
    """
    files: list[dict[str, Any]] = []
    for link in job.outputs:
        suffix = "mp4" if link["kind"] == "video" else "png"
        url = f"{base_url}{link['url']}/{link['id']}.{suffix}"
        files.append({"path": url, "url": url, "is_stream": True, "meta": {"_type": "gradio.FileData"}})
    return files


def _require_done(job: Job | None) -> None:
    if job is not None and job.state is JobState.DONE:
        return
    if job is not None and job.error is not None:
        raise gr.Error(f"{job.error['detail']} {job.error['advice']}", title=job.error["title"], print_exception=False)
    if job is not None and job.state is JobState.CANCELLED:
        raise gr.Error("Somebody cancelled the job.", title="Cancelled", print_exception=False)
    raise gr.Error("The server stops; the job stays in its queue.", title="The server stops", print_exception=False)
