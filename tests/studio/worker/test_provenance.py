"""An output says what it was made with, so that one that comes out different can say why."""

from collections.abc import Callable
from dataclasses import replace
from importlib import metadata

import pytest

from pipelines.families.fake import FakeFamily
from pipelines.models.catalog import Catalog
from studio.database import Database
from studio.jobs.job import Job
from studio.library import records
from studio.settings import Settings
from studio.worker.local_desk import LocalDesk
from studio.worker.loop import Worker
from studio.worker.provenance import describe_making


def test_an_output_keeps_what_it_was_made_with(database: Database, worker: Worker, submit: Callable[..., Job]) -> None:
    job = submit()
    worker.run_next()
    output = records.read_output(database, f"{job.id}-0")
    assert output.made_with == {"weights": "none", "device": ""}
    assert output.to_json()["made_with"] == output.made_with


@pytest.mark.parametrize("model", ["demo-sdxl", "wan2.1-14b"])
def test_weights_mesh_and_versions_are_named(
    database: Database, settings: Settings, catalog: Catalog, model: str
) -> None:
    family = FakeFamily(catalog.get(model))
    family.mesh, family.revision = "dp=2", "abc"
    made_with = describe_making(LocalDesk(database, settings), replace(settings, fake=False), family)
    assert (made_with["mesh"], made_with["jax"]) == ("dp=2", metadata.version("jax"))
    assert made_with["weights"] == ("demo-sdxl@abc" if model == "demo-sdxl" else f"{catalog.get(model).repo}@abc")


@pytest.mark.parametrize(("weights", "told"), [("full", None), ("int8", "int8")])
def test_an_output_of_weights_in_int8_says_so(
    database: Database, settings: Settings, catalog: Catalog, weights: str, told: str | None
) -> None:
    family = FakeFamily(replace(catalog.get("demo-sdxl"), weights=weights))
    made_with = describe_making(LocalDesk(database, settings), replace(settings, fake=False), family)
    assert made_with.get("precision") == told


def test_no_output_tells_where_the_server_keeps_its_weights(
    database: Database, worker: Worker, submit: Callable[..., Job]
) -> None:
    """Older outputs were stored with the whole path."""
    job = submit()
    worker.run_next()
    with database.write() as tx:
        tx.execute("UPDATE outputs SET made_with = ?", ('{"weights": "/srv/secret/models/mine@abc", "device": "x"}',))
    output = records.read_output(database, f"{job.id}-0")
    assert output is not None
    assert output.made_with == {"weights": "mine@abc", "device": "x"}
