"""Who joins a batch: one rule, so that what places foretell is what claiming takes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from studio.database import Database, open_database
from studio.jobs import claims, queue
from studio.jobs.job import GENERATE, move
from studio.jobs.line.batch_join import LOOK_AHEAD, Company, Share, choose_company
from studio.jobs.line.order import Waiting
from studio.jobs.states import JobState

FIRST = Waiting(id="first", model="a")


def take(*shares: tuple[str, int], room: int) -> list[str]:
    """Who joins a job of the kind "same", of those that wait as kind and outputs."""
    turns = [Waiting(id=str(number), model="a") for number in range(len(shares))]

    def look(job: Waiting) -> Share:
        kind, outputs = shares[int(job.id)]
        return Share(kind=kind, outputs=outputs)

    return [job.id for job in choose_company(FIRST, "same", turns, room=room, look=look)]


def test_jobs_of_the_kind_join_in_turn_as_long_as_they_fit() -> None:
    assert take(("same", 2), ("other", 1), ("same", 2), ("same", 1), ("same", 1), room=3) == ["0", "3"]
    assert take(("same", 1), room=0) == []


def test_nobody_joins_what_runs_alone() -> None:
    look = {"x": Share(kind=None, outputs=1)}
    assert choose_company(FIRST, None, [Waiting(id="x", model="a")], room=8, look=lambda job: look[job.id]) == []


def test_only_so_many_jobs_of_the_model_are_looked_at() -> None:
    alone = ("other", 1)
    assert take(*[alone] * (LOOK_AHEAD - 1), ("same", 1), ("same", 1), room=8) == [str(LOOK_AHEAD - 1)]
    turns = [*(Waiting(id=str(n), model="b") for n in range(LOOK_AHEAD)), Waiting(id="x", model="a")]
    assert choose_company(FIRST, "same", turns, room=1, look=lambda _: Share(kind="same", outputs=1)) == turns[-1:]


def test_a_job_that_has_its_place_already_is_not_foretold_again(make_recipe: Callable[..., Recipe]) -> None:
    share = Share.of(GENERATE, make_recipe(), "256x256")
    first, second, third = (Waiting(id=name, model="a") for name in "abc")
    company = Company({"a": share, "b": share, "c": share})
    assert company.choose(first, [second, third], room=2) == [second]
    assert company.choose(third, [], room=2) == []


@pytest.fixture(scope="module")
def shared_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """One for all examples, which leave no job waiting or running."""
    folder: Path = tmp_path_factory.mktemp("company")
    database = open_database(folder / "jobs.db")
    yield database
    database.close()


JOBS = st.fixed_dictionaries(
    {
        "is_other_model": st.sampled_from([False, False, True]),
        "owner": st.sampled_from("abc"),
        "steps": st.sampled_from([2, 2, 2, 3]),
        "batch_size": st.sampled_from([1, 1, 2]),
    }
)


@settings(derandomize=True, deadline=None, max_examples=100, database=None)
@given(jobs=st.lists(JOBS, min_size=1, max_size=30), at_once=st.integers(1, 5))
def test_what_places_foretell_is_what_claiming_takes(
    shared_database: Database, catalog: Catalog, jobs: list[dict], at_once: int
) -> None:
    database = shared_database
    resident, other = catalog.models[0].id, catalog.models[1].id
    with database.write() as tx:
        tx.execute("UPDATE workers SET model = ?, outputs_at_once = ?", (resident, at_once))
    for job in jobs:
        fields = {"model": other if job["is_other_model"] else resident, "steps": job["steps"], "seed": 7}
        recipe = resolve(Recipe(prompt="A boat", batch_size=job["batch_size"], **fields), catalog)
        queue.submit(database, recipe, owner=job["owner"])
    shown = sorted(queue.list_jobs(database, owner=None, state=JobState.QUEUED), key=lambda job: job.position)
    foretold: list[list[str]] = []
    for job in shown:
        if job.reason.startswith("runs together with job "):
            foretold[-1].append(job.id)
        else:
            foretold.append([job.id])

    ran: list[list[str]] = []
    loaded = resident
    while (first := claims.claim_next(database, resident=loaded)) is not None:
        loaded = first.recipe.model
        room = at_once - first.recipe.batch_size if loaded == resident else 0
        batch = [first, *claims.claim_others(database, first, room=room)]
        ran.append([job.id for job in batch])
        with database.write() as tx:
            for job in batch:
                move(tx, job.id, JobState.DONE)
    assert ran == foretold


def test_jobs_of_other_numbers_of_outputs_share_a_batch_and_those_of_longer_prompts_do_not(
    make_recipe: Callable[..., Recipe],
) -> None:
    one, two = Share.of(GENERATE, make_recipe(), "256x256"), Share.of(GENERATE, make_recipe(batch_size=2), "256x256 ×2")
    assert one.kind == two.kind
    assert one.kind != Share.of(GENERATE, make_recipe(), "256x256 for 2 texts").kind
