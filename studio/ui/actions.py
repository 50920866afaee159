"""What the page's Gradio app can do for `gradio_client`: the only file of the page that reaches jobs.

The page itself speaks REST; these endpoints are the same queue under Gradio's own protocol. None of them waits for a
picture: a job belongs to the server, and whoever asked comes back for it.
"""

from typing import Any

import gradio as gr

from pipelines.catalog import Catalog
from pipelines.errors import LumeshError
from pipelines.recipe import read_recipe, resolve
from studio.database import Database
from studio.jobs import queue
from studio.jobs.job import LOCAL_OWNER


def offer(database: Database, catalog: Catalog) -> None:
    """Adds the endpoints `/submit`, `/status` and `/cancel` to the Blocks under construction."""

    def submit(recipe: dict[str, Any]) -> str:
        """Queues a recipe, such as {"model": "demo-sdxl", "prompt": "A red sailboat"}, and returns the job's id."""
        try:
            return queue.submit(database, resolve(read_recipe(recipe), catalog), owner=LOCAL_OWNER).id
        except LumeshError as error:
            raise gr.Error(str(error), title=error.title, print_exception=False) from error

    def status(job_id: str) -> dict[str, Any]:
        """The job as REST gives it: state, phase, step, outputs."""
        return _find(job_id).to_json()

    def cancel(job_id: str) -> str:
        """Ends a waiting job now, a running one after its current step; returns the job's state."""
        _find(job_id)
        queue.cancel(database, job_id)
        return str(_find(job_id).state)

    def _find(job_id: str) -> queue.Job:
        job = queue.read_job(database, job_id)
        if job is None or job.owner != LOCAL_OWNER:
            raise gr.Error(f"There is no job {job_id!r}.", title="Unknown job", print_exception=False)
        return job

    for function in (submit, status, cancel):
        gr.api(function, api_name=function.__name__, queue=False)
