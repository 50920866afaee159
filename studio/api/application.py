"""The FastAPI application: every REST route, the middleware, and one shape of errors.

Every request is authenticated (middleware/auth.py). Routes check ownership (visit.py), parse untrusted input into
validated types, and call jobs/ and library/. Every error has one shape (errors.py).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.routing import BaseRoute
from starlette.types import Lifespan

from pipelines.models.catalog import Catalog
from pipelines.runtime.weights.hub_pins import use_pins_file
from pipelines.runtime.weights.hub_token import use_token_file
from studio.access.identify import Door
from studio.access_settings import EVERY_ORIGIN
from studio.api import describe, errors
from studio.api.adapters import mcp, openai
from studio.api.answers.errors import refuses
from studio.api.middleware.auth import Gate
from studio.api.middleware.csrf import OwnPagesOnly
from studio.api.middleware.headers import SafeHeaders
from studio.api.middleware.limits import LimitedSize
from studio.api.query import refuse_unknown_query
from studio.api.routes import (
    account,
    clips,
    events,
    grids,
    health,
    hub,
    jobs,
    loras,
    me,
    media,
    model_adding,
    model_files,
    models,
    outputs,
    presets,
    prompts,
    qr,
    queue,
    recipes,
    sweeps,
    system,
    trainings,
    uploads,
    users,
    webhook,
    wildcards,
    workers,
)
from studio.context import Studio
from studio.database import Database
from studio.models import LiveCatalog
from studio.services.condition import Condition
from studio.services.feed import Feed
from studio.services.plans import Planner
from studio.settings import Settings
from studio.storage import Reserve

DESCRIPTION = """Queue a recipe, follow its events, fetch its outputs.

`POST /api/v1/jobs` with `{"model": ..., "prompt": ...}` answers `{"id": ...}`; `GET /api/v1/events` streams what
happens and replays what you missed; a job's `outputs` carry the URLs of the finished files. A recipe's `images` are
ids of uploads (`POST /api/v1/uploads`) or of outputs; its `loras` name files of `GET /api/v1/loras`.
`GET /api/v1/presets` lists recipes to start from; `POST /api/v1/recipes/read` takes a picture or video that was made
here or elsewhere and answers with a recipe for here.

Programs written for OpenAI's API find theirs below `/v1`, language models their tools at `/mcp`.
"""

DOCS_PATH = "/api/docs"
GZIP: dict[str, Any] = {
    "minimum_size": 1000,  # less fits into one packet anyway
    "compresslevel": 6,  # 9 takes twice as long for 0.5 % less of our scripts
    "thread_minimum_size": 32_000,  # takes 1 ms; larger answers would block the event loop and its hundred streams
    # These are compressed already, or streams; partial content (206) and Gradio's compressed answers also pass as is.
    "exclude_content_types": (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream"),
}


def create_api(
    settings: Settings,
    database: Database,
    catalog: Catalog,
    *,
    read_catalog: Callable[[], Catalog] | None = None,
    lifespan: Lifespan[FastAPI] | None = None,
    condition: Condition | None = None,
) -> FastAPI:
    """Creates the application with every REST route; app.py mounts the page onto it.

    `read_catalog` reads the catalogue anew; without it, it stays as it is. `lifespan` runs the background work; without
    it, only requests make anything happen.
    """
    app = FastAPIOffline(
        title="Lumesh",
        description=DESCRIPTION,
        version="1",
        docs_url=DOCS_PATH,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=f"{DOCS_PATH}/oauth2-redirect",
        static_url=f"{DOCS_PATH}-files",
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    use_token_file(settings.hub_token_file)
    use_pins_file(settings.hub_pins_file)
    door = Door(settings, database)
    app.state.studio = Studio(
        settings=settings,
        database=database,
        live_catalog=LiveCatalog(catalog, read_catalog or (lambda: catalog)),
        feed=Feed(database),
        planner=Planner(settings),
        door=door,
        reserve=Reserve(settings.data_dir),
        condition=condition or Condition(),
    )
    app.router.routes.extend(_collect_routes())  # the same objects for every application of this process
    errors.install(app)
    describe.install(app)
    app.add_middleware(GZipMiddleware, **GZIP)
    origins = settings.access.allow_origins
    if not origins:
        app.add_middleware(CORSMiddleware)  # allows no other origin; without it, Gradio adds one that does
    app.add_middleware(LimitedSize)  # the last one added runs first
    app.add_middleware(Gate, door=door)
    app.add_middleware(OwnPagesOnly, allow_origins=origins)
    if origins:  # before the login, which browsers' preflights know nothing of
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_credentials=EVERY_ORIGIN not in origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["Content-Disposition", "Retry-After"],
        )
    app.add_middleware(SafeHeaders, is_space=settings.access.is_space, is_shared=bool(origins))
    return app


@functools.cache
def _collect_routes() -> Sequence[BaseRoute]:
    """Returns all routes; FastAPI works out each one's parameters when it is first asked for, which takes a while."""
    router = APIRouter()
    of_jobs = (sweeps, prompts, wildcards, grids, jobs, queue, trainings, events, webhook)
    of_people = (me, account, users)
    for module in (
        health,
        *of_people,
        model_adding,
        model_files,
        models,
        *of_jobs,
        outputs,
        media,
        uploads,
        clips,
        loras,
        recipes,
        presets,
        hub,
        qr,
        system,
        workers,
    ):
        router.include_router(
            module.router,
            prefix="/api/v1",
            dependencies=[Depends(refuse_unknown_query)],
            responses=refuses(422, "default"),
        )
    router.include_router(openai.router, prefix="/v1")
    router.include_router(mcp.router)
    return router.routes
