"""Starts the studio: settings, database, worker, then page and REST on one port.

`python app.py` is also the entry point on Hugging Face Spaces. The worker starts first, because it takes longest; the
port opens before any model is loaded. This process never imports jax or torch.
"""

import pipelines  # noqa: F401, I001 - first of all: it says so when this Python is too old

import asyncio
import functools
import os
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from types import FrameType

import uvicorn
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from rich.console import Console
from starlette.middleware import Middleware

from pipelines.models.catalog import Catalog
from pipelines.errors import LumeshError
from pipelines.messages import english
from pipelines.runtime.devices.platform import collect_garbage_seldom
from studio.access import commands, safety, sessions
from studio.access.identify import is_loopback
from studio.access_settings import Mode
from studio.api.application import create_api
from studio.api.connections import Connection
from studio.context import Studio
from studio.api.middleware.gradio import NeededRoutesOnly
from studio.api.middleware.hosts import OwnNamesOnly
from studio.services import background, housekeeping, leftovers
from studio.services.condition import Condition
from studio.database import Database, open_database
from studio.database.care import require_sound
from studio.hosting import backup
from studio.jobs.workers import read_worker
from studio.models import check_prewarm, read_catalog
from studio.flags import read_settings
from studio.settings import Settings
from studio.storage import PRIVATE_UMASK, Reserve, close_to_others, explain
from studio.cluster import commands as worker_commands
from studio.cluster.keeper import Keeper
from studio.worker.crew import Crew
from studio.worker.lock import hold_lock

MAX_UPLOAD = "50mb"
LOCK_TIMEOUT_S = 2.0  # time for a studio that is just stopping
DEVICE_TIMEOUT_S = 120.0
INTERRUPTED_CODE = 130  # the shells' code for an interruption: an interrupted backup is incomplete

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """Runs the studio until interrupted; returns 2, after one message that says why, when it cannot start."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops the studio like Ctrl+C
    collect_garbage_seldom()
    os.umask(PRIVATE_UMASK)
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        if command in backup.COMMANDS:
            return backup.run(command, sys.argv[2:], os.environ)
        if command == commands.COMMAND:
            return commands.run(sys.argv[2:], os.environ)
        if command == worker_commands.COMMAND:
            return worker_commands.run(sys.argv[2:], os.environ)
        settings = read_settings(sys.argv[1:], os.environ)
        for warning in safety.check(settings):
            Console(stderr=True, highlight=False, soft_wrap=True).print(f"\n  [bold red]WARNING[/]  {warning}")
        _make_data_dir(settings)
        with hold_lock(settings.app_lock, who="Another Lumesh", timeout_s=LOCK_TIMEOUT_S):
            _serve(settings)
    except (LumeshError, OSError, sqlite3.Error) as error:
        said = error if isinstance(error, LumeshError) else explain(error)
        where = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else ""
        if said is None and not where:
            raise
        stderr = Console(stderr=True, highlight=False, soft_wrap=True)
        stderr.print(f"A file cannot be used: {where}" if said is None else f"{said.title}: {said}", markup=False)
        if said is not None and where:
            stderr.print(f"  {where}", markup=False)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED_CODE if command in (*backup.COMMANDS, commands.COMMAND) else 0
    return 0


def _serve(settings: Settings) -> None:
    read = functools.partial(read_catalog, settings)
    catalog = read()
    if settings.model is not None:
        catalog.get(settings.model)
    check_prewarm(settings.prewarm, catalog)
    families = {model.family for model in catalog.models}
    for name in settings.text_encoder_urls.keys() - families:
        catalog.get(name)
    sessions.read_key(settings.secret_file)  # now: a key that is none must refuse the start before anything runs
    require_sound(settings.database_file, settings.outputs_dir)
    reserve, condition = Reserve(settings.data_dir), Condition()
    open_it = functools.partial(open_database, settings.database_file)
    with _open_port(settings) as port, closing(reserve.do(open_it)) as database:
        _warn_of_readable(settings)
        leftovers.sweep(settings, database)
        make_engine = Keeper if settings.engine == "ray" else Crew
        engine = make_engine(settings, database, condition, environment=os.environ)
        reserve.do(engine.start)
        server = None
        try:
            app = create_app(settings, database, catalog, condition, read_catalog=read)
            try:
                server = Server(app, settings, database)
                server.run(sockets=[port])
            finally:
                app.state.studio.planner.close()
        finally:
            finishes = server is not None and server.stop_signal == signal.SIGTERM
            engine.stop(finish_s=settings.finish_s if finishes else None)


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
    # Imported here, as it imports Gradio: that takes more than a second, in which the worker already starts.
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


class Server(uvicorn.Server):
    """A quiet uvicorn server that greets when the port answers, and ends endless streams when it stops."""

    def __init__(self, app: FastAPI, settings: Settings, database: Database) -> None:
        # proxy_headers would trust every process of this machine; trusted proxies are a setting (access/identify.py)
        options = {"log_level": "error", "access_log": False, "timeout_graceful_shutdown": 1, "proxy_headers": False}
        options["http"] = Connection
        super().__init__(uvicorn.Config(app, **options))
        self._studio: Studio = app.state.studio
        self._settings = settings
        self._database = database
        self.stop_signal: int | None = None

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
        self.stop_signal = sig
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


def _make_data_dir(settings: Settings) -> None:
    try:
        settings.loras_dir.mkdir(parents=True, exist_ok=True)  # so that people find the folder for their files
    except OSError as error:
        raise LumeshError(
            english(f"{settings.data_dir} cannot be made: {error.strerror}."),
            advice=english("Choose another --data-dir."),
            title=english("No data directory"),
        ) from error


def _warn_of_readable(settings: Settings) -> None:
    """Closes what older versions, or another umask, left readable for other accounts of the machine."""
    for path in close_to_others(settings.private_paths):
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"\n  [bold red]WARNING[/]  Other accounts of this machine may read {path}: it is not this account's."
        )


def _open_port(settings: Settings) -> socket.socket:
    """Binds the port before anything starts, so that a port in use does not cost the start of a worker."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # IPPROTO_TCP is explicit, or asyncio leaves Nagle's algorithm on, and answers wait 40 ms for the client's ACK.
    port = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        port.bind((settings.host, settings.port))
    except OSError as error:
        port.close()
        raise LumeshError(
            english(f"{settings.host}:{settings.port} cannot be used: {error.strerror}."),
            advice=english("Choose another --port or --host."),
            title=english("The port is not free"),
        ) from error
    return port


def _name_host(host: str) -> str:
    """Returns a host name that a browser can open."""
    return "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host


if __name__ == "__main__":
    sys.exit(main())
