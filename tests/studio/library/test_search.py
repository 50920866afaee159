"""Outputs are found by words, model and owner, newest first."""

from collections.abc import Callable

import pytest

from pipelines.recipe import Recipe
from studio.database import Database
from studio.jobs.job import Job
from studio.library import records
from studio.library.files import SavedFile
from studio.library.search import find_outputs


@pytest.fixture
def add_output(database: Database, submit: Callable[..., Job]) -> Callable[..., records.Output]:
    def add(prompt: str, *, owner: str = "local", created_at: float = 0.0, number: int = 0) -> records.Output:
        recipe: Recipe = submit(prompt, owner=owner).recipe
        job_id = database.read("SELECT id FROM jobs ORDER BY rowid DESC")[0]["id"]
        saved = SavedFile(kind="image", file="x.png", thumb="x.webp", width=8, height=8, frames=1, recipe=recipe)
        with database.write() as tx:
            return records.add(tx, saved, job_id=job_id, owner=owner, number=number, created_at=created_at)

    return add


def test_newest_first(database: Database, add_output: Callable[..., records.Output]) -> None:
    old, new = add_output("old", created_at=1.0), add_output("new", created_at=2.0)
    assert [output.id for output in find_outputs(database, owner="local")] == [new.id, old.id]
    assert [output.id for output in find_outputs(database, owner="local", offset=1)] == [old.id]


def test_every_word_must_be_there_in_any_order(database: Database, add_output: Callable[..., records.Output]) -> None:
    found = add_output("A red Sailboat at sunset")
    add_output("A blue house")
    assert find_outputs(database, owner="local", words="sunset sailboat") == [found]
    assert find_outputs(database, owner="local", words="sunset house") == []


def test_wildcards_are_only_letters(database: Database, add_output: Callable[..., records.Output]) -> None:
    found = add_output("100% wool")
    add_output("100 sheep")
    assert find_outputs(database, owner="local", words="100%") == [found]


def test_other_owners_outputs_are_not_found(database: Database, add_output: Callable[..., records.Output]) -> None:
    add_output("hers", owner="her")
    assert find_outputs(database, owner="local") == []
