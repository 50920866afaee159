"""REST, on the same port as the page: what the page's scripts use and what scripts of people use, under one contract.

Routes check who asks (access.py), read untrusted input into checked types, and call jobs/ and library/. Every error has
one shape (errors.py).
"""

from fastapi import FastAPI

from pipelines.catalog import Catalog
from studio.api import errors, events, health, jobs, media, models, outputs, uploads
from studio.api.access import Studio
from studio.api.feed import Feed
from studio.api.origin import OwnPagesOnly
from studio.database import Database
from studio.settings import Settings

DESCRIPTION = """Queue a recipe, follow its events, fetch its outputs.

`POST /api/v1/jobs` with `{"model": ..., "prompt": ...}` answers `{"id": ...}`; `GET /api/v1/events` streams what
happens and replays what you missed; a job's `outputs` carry the URLs of the finished files. A recipe's `images` are
ids of uploads (`POST /api/v1/uploads`) or of outputs.
"""


def create_api(settings: Settings, database: Database, catalog: Catalog) -> FastAPI:
    """The application with every REST route; the page is mounted onto it (app.py)."""
    app = FastAPI(
        title="Lumesh", description=DESCRIPTION, version="1", docs_url="/api/docs", openapi_url="/api/openapi.json"
    )
    app.state.studio = Studio(settings=settings, database=database, catalog=catalog, feed=Feed(database))
    for module in (health, models, jobs, events, outputs, media, uploads):
        app.include_router(module.router, prefix="/api/v1")
    errors.install(app)
    app.add_middleware(OwnPagesOnly)
    return app
