"""The endpoints of the page's Gradio app for `gradio_client`; of the page, only this file and generate.py access jobs.

The page itself uses REST; these endpoints offer the same actions (asking.py) under Gradio's own protocol. None of them
but `/generate` (generate.py) waits for a picture: a job belongs to the server, and clients come back for its result.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import gradio as gr

from pipelines.errors import LumeshError
from studio import asking
from studio.access.people import PERSON
from studio.context import Studio
from studio.storage import explain
from studio.ui import generate
from studio.visit import Visit


def offer(studio: Studio) -> None:
    """Adds the endpoints `/submit`, `/status`, `/cancel` and `/generate` to the Blocks under construction."""

    def submit(recipe: dict[str, Any], request: gr.Request) -> str:
        """Queues a recipe, such as {"model": "demo-sdxl", "prompt": "A red sailboat"}, and returns the job's id."""
        visit = open_visit(request)
        with _as_gradio_error():
            return asking.submit(visit, [asking.prepare_fields(visit, recipe)])[0].id

    def status(job_id: str, request: gr.Request) -> dict[str, Any]:
        """Returns the job as in REST: state, phase, step, outputs."""
        with _as_gradio_error():
            return open_visit(request).get_job(job_id).to_json()

    def cancel(job_id: str, request: gr.Request) -> str:
        """Ends a waiting job now, a running one after its current step; returns the job's state."""
        with _as_gradio_error():
            return str(asking.cancel(open_visit(request), job_id).state)

    def open_visit(request: gr.Request) -> Visit:
        """Returns the visit of the person whom api/middleware/auth.py identified."""
        assert request.request is not None, "these endpoints are only reached over HTTP"
        return Visit(person=request.request.scope[PERSON], studio=studio)

    for function in (submit, status, cancel):
        gr.api(function, api_name=function.__name__, queue=False)
    generate.offer(studio, submit, open_visit)


@contextmanager
def _as_gradio_error() -> Generator[None]:
    """Converts expected errors to Gradio's own, which reach the client with their title."""
    try:
        yield
    except (LumeshError, OSError, sqlite3.Error) as error:
        told = error if isinstance(error, LumeshError) else explain(error)
        if told is None:
            raise
        raise gr.Error(str(told), title=told.title, print_exception=False) from error
