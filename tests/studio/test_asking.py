"""Whoever asks, the same is checked, counted and owned: one way in for every protocol."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import studio
from pipelines.errors import RecipeError
from pipelines.recipes.recipe import Recipe
from studio import asking
from studio.access.people import Person
from studio.context import Studio
from studio.jobs.queue import QueueQuotaError
from studio.visit import NotFoundError, Visit

ROOT = Path(studio.__file__).parent
ASKED = ("submit", "submit_all", "retry", "edit")  # of jobs/queue.py


@pytest.fixture
def visit(client: TestClient) -> Visit:
    return visit_of("ada", client)


def visit_of(name: str, client: TestClient) -> Visit:
    return Visit(person=Person(owner=name, name=name, address="test", is_alone=True), studio=studio_of(client))


def studio_of(client: TestClient) -> Studio:
    return client.app.state.studio


def submit(visit: Visit, prompt: str = "A boat") -> str:
    return asking.submit(visit, [asking.prepare(visit, Recipe(model="demo-sdxl", prompt=prompt))])[0].id


def test_what_is_submitted_belongs_to_who_asked(visit: Visit) -> None:
    job = visit.get_job(submit(visit))
    assert (job.owner, job.recipe.prompt, job.programs) == ("ada", "A boat", job.recipe.shape)


def test_somebody_elses_job_can_neither_be_cancelled_nor_retried(visit: Visit, client: TestClient) -> None:
    job_id, stranger = submit(visit), visit_of("eve", client)
    for act in (asking.cancel, asking.retry):
        with pytest.raises(NotFoundError):
            act(stranger, job_id)
    with pytest.raises(NotFoundError):
        asking.duplicate(stranger, job_id, keeps_seed=True)
    assert asking.cancel(visit, job_id).state == "cancelled"
    assert asking.retry(visit, job_id).state == "queued"


def test_a_preset_that_is_not_there_is_refused_before_anything_is_queued(visit: Visit) -> None:
    with pytest.raises(NotFoundError):
        asking.prepare(visit, Recipe(model="demo-sdxl", prompt="A boat"), preset="none")


def test_somebody_elses_picture_is_unknown(visit: Visit) -> None:
    wanted = asking.prepare(visit, Recipe(model="flux2-klein-4b", prompt="A boat", images=("nobodys",)))
    with pytest.raises(RecipeError, match="there is no picture"):
        asking.submit(visit, [wanted])


def test_the_quota_of_the_settings_holds_for_several_at_once(visit: Visit) -> None:
    few = replace(visit, studio=replace(visit.studio, settings=replace(visit.studio.settings, queue_quota=1)))
    wanted = [asking.prepare(few, Recipe(model="demo-sdxl", prompt=prompt)) for prompt in ("One", "Two")]
    with pytest.raises(QueueQuotaError):
        asking.submit(few, wanted)
    asking.submit(few, wanted[:1])


def test_nobody_else_queues_past_it() -> None:
    """Routes, adapters and the page's endpoints ask here, so no protocol forgets a check."""
    around = [
        f"{file.relative_to(ROOT)} calls queue.{node.func.attr}"
        for folder in ("api", "ui", "services")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "queue"
        and node.func.attr in (*ASKED, "cancel")
    ]
    assert not around
