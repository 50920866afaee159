"""The studio's one application, REST and page, and the server that answers for it.

Imported when the worker has been started: what is imported here, Gradio above all, takes more than a second, in which
the worker already loads. Commands that only say something do without it.
"""

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from rich.console import Console
from starlette.middleware import Middleware

from pipelines.models.catalog import Catalog
from studio.access.identify import is_loopback
from studio.access_settings import Mode
from studio.api.application import create_api
from studio.api.connections import Connection
from studio.api.middleware.gradio import NeededRoutesOnly
from studio.api.middleware.hosts import OwnNamesOnly
from studio.context import Studio
from studio.database import Database
from studio.jobs.workers import read_worker
from studio.services import background, housekeeping
from studio.services.condition import Condition
from studio.settings import Settings

MAX_UPLOAD = "50mb"
DEVICE_TIMEOUT_S = 120.0

console = Console(highlight=False, soft_wrap=True)


def create_app(
    settings: Settings,
    database: Database,
    catalog: Catalog,
    condition: Condition | None = None,
    *,
    read_catalog: Callable[[], Catalog] | None = None,
) -> FastAPI:
    """Creates one application from REST, static files and the page; `read_catalog` reads the catalogue anew."""
    os.environ.update(GRADIO_ANALYTICS_ENABLED="False", HF_HUB_DISABLE_TELEMETRY="1")  # read when gradio is imported
    from studio.ui import catalogues, first_script, loading_sign, login, manual, page, service_worker

    @asynccontextmanager
    async def work_in_the_background(_: FastAPI) -> AsyncGenerator[None]:
        async with background.run(housekeeping.list_services(settings, database), condition):
            yield

    condition = condition or Condition()
    app = create_api(
        settings, database, catalog, read_catalog=read_catalog, lifespan=work_in_the_background, condition=condition
    )
    if is_loopback(settings.host) and settings.access.mode is Mode.OPEN and not settings.access.is_open:
        app.add_middleware(OwnNamesOnly)
    door = app.state.studio.door
    app.include_router(login.make_router(door))
    app.include_router(catalogues.make_router(page.STATIC_URL))
    app.include_router(page.make_router())
    app.include_router(service_worker.make_router())
    app.include_router(loading_sign.make_router())
    app.include_router(manual.make_router(page.STATIC_URL))
    app.mount(page.STATIC_URL, StaticFiles(directory=page.STATIC_DIR), name="static")
    blocks = page.build(app.state.studio)
    needed = Middleware(NeededRoutesOnly, count_inputs=page.count_inputs(blocks))
    return page.mount(
        app,
        blocks,
        max_file_size=MAX_UPLOAD,
        blocked_paths=[str(settings.data_dir)],
        app_kwargs={"middleware": [needed, Middleware(first_script.FirstScript)]},
    )


def _is_no_cut(record: logging.LogRecord) -> bool:
    """False for a request that the end of the studio cut: no error, and no traceback for whoever pressed Ctrl+C."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


class Server(uvicorn.Server):
    """A quiet uvicorn server that greets when the port answers, and ends endless streams when it stops."""

    def __init__(self, app: FastAPI, settings: Settings, database: Database) -> None:
        # proxy_headers would trust every process of this machine; trusted proxies are a setting (access/identify.py)
        config = uvicorn.Config(
            app,
            http=Connection,
            log_level="error",
            access_log=False,
            timeout_graceful_shutdown=1,
            proxy_headers=False,
        )
        logging.getLogger("uvicorn.error").addFilter(_is_no_cut)
        super().__init__(config)
        self._studio: Studio = app.state.studio
        self._settings = settings
        self._database = database
        self.is_terminated = False
        """Whether SIGTERM ended it, so that what runs may still be finished."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the application's background work and opens the port, then greets."""
        await super().startup(sockets)
        self._greeting = asyncio.create_task(self._greet())

    async def _greet(self) -> None:
        """Prints page and data directory now, the device as soon as the worker knows it."""
        console.print("\n  [bold]Lumesh[/]\n")
        console.print(f"  Page    http://{_name_host(self._settings.host)}:{self._settings.port}", markup=False)
        console.print(f"  Data    {self._settings.data_dir}", markup=False)
        if self._settings.is_ephemeral:
            console.print("  Notice  A restart of this Space deletes what was made: attach storage to keep it")
        if self._settings.engine == "ray":
            console.print(f"  Join    {await self._find_join_line()}", markup=False)
        if self._settings.access.mode is not Mode.OPEN:
            console.print(f"  Access  {self._settings.access.mode}", markup=False)
        deadline = time.monotonic() + DEVICE_TIMEOUT_S
        while not (device := read_worker(self._database).device) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        console.print(f"  Device  {device or f'still starting; see {self._settings.worker_log}'}\n", markup=False)

    async def _find_join_line(self) -> str:
        """Returns what to run on other machines, once the cluster is there."""
        deadline = time.monotonic() + DEVICE_TIMEOUT_S
        while time.monotonic() < deadline:
            address = self._settings.read_ray_address()
            if address is not None and await _answers(address):
                return f"python -m studio.worker join {address}   (token: python app.py workers token)"
            await asyncio.sleep(0.1)
        return f"still starting; see {self._settings.dispatcher_log}"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ends the event streams, which would never end by themselves, and stops the server."""
        self.is_terminated = sig == signal.SIGTERM
        self._studio.feed.close()
        super().handle_exit(sig, frame)


async def _answers(address: str) -> bool:
    """Tells whether somebody listens there."""
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


def _name_host(host: str) -> str:
    """Returns a host name that a browser can open."""
    return "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
