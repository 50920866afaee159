"""The worker process: `python -m studio.worker --data-dir DIR [--model ID] [--mesh M] [--fake] [--idle]`.

It lives as long as its standard input: the app holds the other end, so when the app is gone, however it went, reading
ends and the process exits at once. A lock on the data directory makes sure that there is never a second one.
"""

import faulthandler
import logging
import os
import sys
import threading
from typing import NoReturn

from pipelines import fake
from pipelines.catalog import Model, load_catalog
from pipelines.errors import LumeshError
from pipelines.stages import Family, OnProgress
from studio.database import Database, open_database
from studio.jobs import engine
from studio.jobs.engine import EngineState
from studio.jobs.job import Card
from studio.settings import Settings, read_settings
from studio.worker import CANNOT_START_CODE, IDLE_FLAG
from studio.worker.lock import hold_lock
from studio.worker.loop import Worker
from studio.worker.resident import Loader, Resident

# A worker that was told to go ends within its current chunk; a device call can take this long.
LOCK_TIMEOUT_S = 20.0
ORPHAN_EXIT_CODE = 3


def main() -> int:
    """Returns only when it cannot start: CANNOT_START_CODE, with the reason in the log and in the engine's row."""
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    flags = [flag for flag in sys.argv[1:] if flag != IDLE_FLAG]
    settings = read_settings(flags, os.environ)
    database = open_database(settings.database_file)
    threading.Thread(target=_follow_app, name="app", daemon=True).start()
    try:
        with hold_lock(settings.worker_lock, who="Another worker", timeout_s=LOCK_TIMEOUT_S):
            _work(settings, database, is_prepared=IDLE_FLAG in sys.argv)
    except LumeshError as error:
        logging.getLogger(__name__).error("%s", error)
        with database.write() as tx:
            engine.describe(tx, EngineState.STARTING, activity="cannot start", error=Card.of(error).to_json())
    return CANNOT_START_CODE


def _follow_app() -> None:
    """Ends the process when standard input ends; whatever it was doing, nobody waits for it any more."""
    while sys.stdin.buffer.read(1):
        pass
    os._exit(ORPHAN_EXIT_CODE)


def _work(settings: Settings, database: Database, *, is_prepared: bool) -> NoReturn:
    catalog = load_catalog(settings.models_dir)
    with database.write() as tx:
        engine.describe(tx, EngineState.STARTING, activity="starting", pid=os.getpid(), model="", shapes={})
    device, load = _open_engine(settings)
    with database.write() as tx:
        if is_prepared:
            engine.describe(
                tx, EngineState.READY, activity="ready", device=device, error=_not_prepared(settings).to_json()
            )
        else:
            engine.describe(tx, EngineState.STARTING, activity="starting", device=device)
    worker = Worker(
        settings=settings,
        database=database,
        catalog=catalog,
        resident=Resident(load),
        default_model=catalog.get(settings.model) if settings.model else catalog.default,
        is_prepared=is_prepared,
    )
    worker.run()


def _not_prepared(settings: Settings) -> Card:
    return Card(
        title="The default model is not loaded",
        detail="The worker ended while it was preparing it, so it waits for a job.",
        advice=f"Choose another model, or see why in {settings.worker_log}.",
    )


def _open_engine(settings: Settings) -> tuple[str, Loader]:
    """The device line, and how a model is loaded on these devices."""
    if settings.fake:
        return "No device: --fake draws the pictures", lambda model, on_progress: fake.load(
            model, on_progress=on_progress
        )

    from pipelines import registry  # here, not above: its families import jax, which takes seconds and the devices

    def load(model: Model, on_progress: OnProgress) -> Family:
        return registry.load(
            model,
            mesh=settings.mesh,
            cache_dir=settings.cache_dir,
            on_progress=on_progress,
        )

    registry.start_jax(settings.cache_dir)
    return registry.describe_devices(), load


if __name__ == "__main__":
    sys.exit(main())
