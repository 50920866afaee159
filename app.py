"""Starts the studio: settings, database, worker, then page and REST on one port.

`python app.py` is also the entry point on Hugging Face Spaces. The worker starts first, because it takes longest; the
port opens before any model is loaded. This process never imports jax or torch.
"""

import pipelines  # noqa: F401, I001 - first of all: it says so when this Python is too old

import functools
import os
import signal
import socket
import sqlite3
import sys
from contextlib import closing

from rich.console import Console

from pipelines.errors import LumeshError
from pipelines.messages import english
from pipelines.runtime.devices.platform import collect_garbage_seldom
from studio.access import commands, safety, sessions
from studio.services import leftovers
from studio.services.condition import Condition
from studio.database import open_database
from studio.database.care import require_sound
from studio.hosting import backup
from studio.models import check_prewarm, read_catalog
from studio.flags import read_settings
from studio.settings import Settings
from studio.storage import PRIVATE_UMASK, Reserve, close_to_others, explain
from studio.cluster import commands as worker_commands
from studio.cluster.keeper import Keeper
from studio.worker.crew import Crew
from studio.worker.lock import hold_lock

LOCK_TIMEOUT_S = 2.0  # time for a studio that is just stopping
INTERRUPTED_CODE = 130  # the shells' code for an interruption: an interrupted backup is incomplete


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
            from studio import serving  # imported now: that takes more than a second, in which the worker starts

            app = serving.create_app(settings, database, catalog, condition, read_catalog=read)
            try:
                server = serving.Server(app, settings, database)
                server.run(sockets=[port])
            finally:
                app.state.studio.planner.close()
        finally:
            finishes = server is not None and server.is_terminated
            engine.stop(finish_s=settings.finish_s if finishes else None)


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


if __name__ == "__main__":
    sys.exit(main())
