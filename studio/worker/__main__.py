"""The worker process: `python -m studio.worker --data-dir DIR [--id ID] [--model ID] [--mesh M] [--fake] [--idle]`.

It lives as long as its standard input: the app holds the other end, so when the app ends, for whatever reason, reading
ends and the process exits at once. What it writes there makes the running job the last one, or an idle worker look for
a job. A lock in the data directory makes sure that there is never a second worker with the same id.

`python -m studio.worker join HOST:PORT` works for a studio on another machine instead (studio/cluster/join.py).
"""

import faulthandler
import logging
import os
import sys
import threading

from pipelines.errors import LumeshError
from pipelines.messages import say
from studio.database import Database, open_database
from studio.flags import read_settings
from studio.jobs import claims
from studio.jobs.job import Card
from studio.jobs.workers import LOCAL, WorkerState
from studio.library.files import forget_torn
from studio.settings import Settings
from studio.storage import PRIVATE_UMASK
from studio.worker import CANNOT_START_CODE, ID_FLAG, IDLE_FLAG, LAST_JOB
from studio.worker.checkup import check_up
from studio.worker.insisting import insist
from studio.worker.local_desk import LocalDesk
from studio.worker.lock import hold_lock
from studio.worker.opening import make_worker, open_devices

# A worker that was told to end does so after its current chunk; a device call can take this long.
LOCK_TIMEOUT_S = 20.0
ORPHAN_EXIT_CODE = 3
WISHES = 4096  # that are read at once; the app writes one after each of its transactions
JOIN = "join"


def main() -> int:
    """Returns 0 after the last job, or CANNOT_START_CODE, with the reason in the log and the worker's row."""
    if sys.argv[1:2] == [JOIN]:
        from studio.cluster import join  # here: a machine without a cluster needs nothing of it

        return join.run(sys.argv[2:], os.environ)
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    worker, flags = _take_id([flag for flag in sys.argv[1:] if flag != IDLE_FLAG])
    settings = read_settings(flags, os.environ)
    os.umask(PRIVATE_UMASK)
    database = insist(lambda: open_database(settings.database_file))
    ending, woken = threading.Event(), threading.Event()
    threading.Thread(target=_follow_app, args=(ending, woken), name="app", daemon=True).start()
    try:
        with hold_lock(settings.find_worker_lock(worker), who="Another worker", timeout_s=LOCK_TIMEOUT_S):
            _work(settings, database, worker, is_prepared=IDLE_FLAG in sys.argv, ending=ending, woken=woken)
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


def _follow_app(ending: threading.Event, woken: threading.Event) -> None:
    """Ends the process when standard input ends, because nobody waits for its work any more."""
    # unbuffered: a waiting buffer's lock would abort the process at its end
    while wishes := os.read(sys.stdin.fileno(), WISHES):
        if LAST_JOB in wishes:
            ending.set()
        woken.set()
    os._exit(ORPHAN_EXIT_CODE)


def _work(
    settings: Settings,
    database: Database,
    worker_id: str,
    *,
    is_prepared: bool,
    ending: threading.Event,
    woken: threading.Event,
) -> None:
    desk = LocalDesk(database, settings, worker_id, woken=woken)
    desk.announce(WorkerState.STARTING, activity=say("starting"), pid=os.getpid(), model="", shapes={})
    forget_torn(settings.outputs_dir, writing=claims.list_running(database))
    trouble = check_up(settings, lambda activity: desk.announce(WorkerState.STARTING, activity=activity))
    opened = open_devices(settings)
    if opened.damaged:
        desk.forget_disk()
    desk.equip(chips=opened.chips, chip_price=settings.chip_price)
    if is_prepared:
        error = _not_prepared(settings, worker_id).to_json()
        desk.announce(WorkerState.READY, activity=say("ready"), device=opened.title, error=error)
    else:
        desk.announce(WorkerState.STARTING, activity=say("starting"), device=opened.title)
    worker = make_worker(settings, desk, opened, is_prepared=is_prepared, ending=ending, trouble=trouble)
    worker.run()


def _not_prepared(settings: Settings, worker_id: str) -> Card:
    return Card(
        title=say("The default model is not loaded"),
        detail=say("The worker ended while it was preparing it, so it waits for a job."),
        advice=say("Choose another model, or see why in {file}.", file=settings.find_log(worker_id)),
    )


if __name__ == "__main__":
    sys.exit(main())
