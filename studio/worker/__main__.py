"""The worker process: `python -m studio.worker --data-dir DIR [--id ID] [--model ID] [--mesh M] [--fake] [--idle]`.

It lives as long as its standard input: the app holds the other end, so when the app ends, for whatever reason, reading
ends and the process exits at once. A byte on standard input makes the running job the last one. A lock in the data
directory makes sure that there is never a second worker with the same id.
"""

import faulthandler
import functools
import logging
import os
import sys
import threading
from dataclasses import dataclass

from pipelines.catalog import Model
from pipelines.errors import LumeshError
from pipelines.families import fake
from pipelines.mesh_text import asks_for_many
from pipelines.messages import say
from pipelines.stages import Family, OnProgress
from studio.access.hooks import load_hook
from studio.database import Database, open_database
from studio.jobs import claims
from studio.jobs.job import Card
from studio.jobs.workers import LOCAL, WorkerState
from studio.library.files import forget_torn
from studio.models import read_catalog
from studio.services import first_model
from studio.settings import Settings, read_settings
from studio.storage import PRIVATE_UMASK
from studio.worker import CANNOT_START_CODE, ID_FLAG, IDLE_FLAG, gauges
from studio.worker.bench import Trace
from studio.worker.gauges import MeasureDevices
from studio.worker.insisting import insist
from studio.worker.learning import learn_with_jax, pretend_to_learn
from studio.worker.local_desk import LocalDesk
from studio.worker.lock import hold_lock
from studio.worker.loop import Worker
from studio.worker.resident import Finder, Loader, Resident

# A worker that was told to end does so after its current chunk; a device call can take this long.
LOCK_TIMEOUT_S = 20.0
ORPHAN_EXIT_CODE = 3


def main() -> int:
    """Returns 0 after the last job, or CANNOT_START_CODE, with the reason in the log and the worker's row."""
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    worker, flags = _take_id([flag for flag in sys.argv[1:] if flag != IDLE_FLAG])
    settings = read_settings(flags, os.environ)
    os.umask(PRIVATE_UMASK)
    database = insist(lambda: open_database(settings.database_file))
    ending = threading.Event()
    threading.Thread(target=_follow_app, args=(ending,), name="app", daemon=True).start()
    try:
        with hold_lock(settings.find_worker_lock(worker), who="Another worker", timeout_s=LOCK_TIMEOUT_S):
            _work(settings, database, worker, is_prepared=IDLE_FLAG in sys.argv, ending=ending)
            return 0
    except LumeshError as error:
        logging.getLogger(__name__).error("%s", error)
        desk = LocalDesk(database, settings, worker)
        desk.announce(WorkerState.STARTING, activity=say("cannot start"), error=Card.of(error).to_json())
    return CANNOT_START_CODE


def _take_id(flags: list[str]) -> tuple[str, list[str]]:
    """Returns the worker's id, and the flags without it."""
    if ID_FLAG not in flags:
        return LOCAL, flags
    place = flags.index(ID_FLAG)
    return flags[place + 1], flags[:place] + flags[place + 2 :]


def _follow_app(ending: threading.Event) -> None:
    """Ends the process when standard input ends, because nobody waits for its work any more."""
    while os.read(sys.stdin.fileno(), 1):  # unbuffered: a waiting buffer's lock would abort the process at its end
        ending.set()
    os._exit(ORPHAN_EXIT_CODE)


def _work(
    settings: Settings, database: Database, worker_id: str, *, is_prepared: bool, ending: threading.Event
) -> None:
    catalog = read_catalog(settings)
    desk = LocalDesk(database, settings, worker_id)
    desk.announce(WorkerState.STARTING, activity=say("starting"), pid=os.getpid(), model="", shapes={})
    forget_torn(settings.outputs_dir, writing=claims.list_running(database))
    opened = _open_devices(settings)
    if opened.damaged:
        desk.forget_disk()
    desk.equip(chips=opened.chips, chip_price=settings.chip_price)
    if is_prepared:
        error = _not_prepared(settings, worker_id).to_json()
        desk.announce(WorkerState.READY, activity=say("ready"), device=opened.title, error=error)
    else:
        desk.announce(WorkerState.STARTING, activity=say("starting"), device=opened.title)
    resident = Resident(opened.load, find=opened.find)
    threading.Thread(target=gauges.watch, args=(desk, resident, opened.measure), name="gauges", daemon=True).start()
    worker = Worker(
        settings=settings,
        desk=desk,
        catalog=catalog,
        read_catalog=functools.partial(read_catalog, settings),
        resident=resident,
        default_model=first_model.choose(settings, catalog, opened.measure(), chips=opened.chips),
        is_prepared=is_prepared,
        trace=_choose_trace(settings),
        ending=ending,
        image_hook=load_hook(settings.access.image_hook),
        learn=pretend_to_learn if settings.fake else learn_with_jax(settings),
    )
    worker.run()


def _not_prepared(settings: Settings, worker_id: str) -> Card:
    return Card(
        title=say("The default model is not loaded"),
        detail=say("The worker ended while it was preparing it, so it waits for a job."),
        advice=say("Choose another model, or see why in {file}.", file=settings.find_log(worker_id)),
    )


def _choose_trace(settings: Settings) -> Trace | None:
    """Returns what writes the trace for `--profile`; None without it and for the fake family, which has no programs."""
    if settings.profile is None or settings.fake:
        return None
    from pipelines.runtime.programs.profiling import trace_to  # it imports jax

    return functools.partial(trace_to, settings.profile)


@dataclass(frozen=True, kw_only=True)
class _Devices:
    """The devices: a one-line description for people, the number of chips, and what can be done with them.

    `damaged` counts entries of the compilation cache that were deleted when it was opened.
    """

    title: str
    chips: int
    load: Loader
    find: Finder
    measure: MeasureDevices
    damaged: int = 0


def _open_devices(settings: Settings) -> _Devices:
    if settings.fake:
        at_once = fake.AT_ONCE if asks_for_many(settings.mesh) else 1

        def load_fake(model: Model, on_progress: OnProgress) -> Family:
            return fake.load(model, outputs_at_once=min(at_once, model.max_batch_size), on_progress=on_progress)

        return _Devices(
            title=say("No device: --fake draws the pictures"),
            chips=1,
            load=load_fake,
            find=lambda _model, _on_progress: None,
            measure=lambda: [gauges.FAKE_DEVICE],
        )

    from pipelines import registry  # here, not above: its families import jax, which takes seconds and the devices
    from pipelines.families.remote_encoder import RemoteEncoder

    def load(model: Model, on_progress: OnProgress) -> Family:
        url = settings.find_text_encoder(model)
        return registry.load(
            model,
            mesh=settings.mesh,
            cache_dir=settings.cache_dir,
            on_progress=on_progress,
            remote_encoder=RemoteEncoder(url, token=settings.text_encoder_token) if url else None,
            packs=settings.pack_paths,
            verify_weights=settings.verify_weights,
            keep_layouts=settings.keep_layouts,
        )

    def find(model: Model, on_progress: OnProgress) -> object:
        has_remote_encoder = settings.find_text_encoder(model) is not None
        return registry.find(model, on_progress=on_progress, has_remote_encoder=has_remote_encoder)

    damaged = registry.start_jax(settings.cache_dir, allow_cpu=settings.allow_cpu)
    return _Devices(
        title=registry.describe_devices(),
        chips=registry.count_chips(),
        load=load,
        find=find,
        measure=registry.measure_devices,
        damaged=damaged,
    )


if __name__ == "__main__":
    sys.exit(main())
