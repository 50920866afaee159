"""What the page's Gradio app can do for `gradio_client`; no other file of the page but generate.py reaches jobs.

The page itself speaks REST; these endpoints are the same queue under Gradio's own protocol. None of them but
`/generate` (generate.py) waits for a picture: a job belongs to the server, and whoever asked comes back for it.
"""

from typing import Any

import gradio as gr

from pipelines.catalog import Catalog
from pipelines.errors import LumeshError
from pipelines.recipe import read_recipe, resolve
from pipelines.references import name_programs
from studio.access.identify import Door
from studio.access.people import PERSON, Person
from studio.database import Database
from studio.jobs import queue
from studio.jobs.waiting import Follow
from studio.library import inputs
from studio.settings import Settings
from studio.ui import generate


def offer(settings: Settings, database: Database, catalog: Catalog, *, door: Door, follow: Follow) -> None:
    """Adds the endpoints `/submit`, `/status`, `/cancel` and `/generate` to the Blocks under construction."""

    def submit(recipe: dict[str, Any], request: gr.Request) -> str:
        """Queues a recipe, such as {"model": "demo-sdxl", "prompt": "A red sailboat"}, and returns the job's id."""
        person = _who(request)
        try:
            wanted = resolve(read_recipe(recipe), catalog)
            model = catalog.get(wanted.model)
            references = inputs.find_references(database, model, wanted, owner=person.owner)
            programs = name_programs(wanted.parsed_shape, references)
            door.admit(person, [wanted])
            quota = settings.queue_quota
            return queue.submit(database, wanted, owner=person.owner, programs=programs, quota=quota).id
        except LumeshError as error:
            raise gr.Error(str(error), title=error.title, print_exception=False) from error

    def status(job_id: str, request: gr.Request) -> dict[str, Any]:
        """The job as REST gives it: state, phase, step, outputs."""
        return _find(job_id, request).to_json()

    def cancel(job_id: str, request: gr.Request) -> str:
        """Ends a waiting job now, a running one after its current step; returns the job's state."""
        _find(job_id, request)
        queue.cancel(database, job_id)
        return str(_find(job_id, request).state)

    def _find(job_id: str, request: gr.Request) -> queue.Job:
        job, person = queue.read_job(database, job_id), _who(request)
        if job is None or not (job.owner == person.owner or person.is_admin):
            raise gr.Error(f"There is no job {job_id!r}.", title="Unknown job", print_exception=False)
        return job

    for function in (submit, status, cancel):
        gr.api(function, api_name=function.__name__, queue=False)
    generate.offer(database, follow, submit, default_model=catalog.default.id)


def _who(request: gr.Request) -> Person:
    """Whom the gate let in (api/middleware/auth.py)."""
    assert request.request is not None, "these endpoints are only reached over HTTP"
    return request.request.scope[PERSON]
