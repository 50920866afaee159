"""REST in one process: the application without a page, and a worker that runs when a test says so.

An answer with a field that its model does not declare is a failure here, where a server leaves the field out.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from pipelines.models.catalog import Catalog
from studio.api.answers.answer import Answer

Answer.model_config["extra"] = "forbid"  # of every answer that is declared from here on

from studio.api.application import create_api
from studio.database import Database
from studio.settings import Settings


@pytest.fixture
def client(settings: Settings, database: Database, catalog: Catalog) -> Iterator[TestClient]:
    api = create_api(settings, database, replace(catalog, loras_dir=settings.loras_dir))
    with TestClient(api, raise_server_exceptions=False) as client:
        yield client
