"""The dispatcher's process: `python -m studio.cluster` with the studio's flags, as the app starts it (keeper.py)."""

import asyncio
import faulthandler
import json
import logging
import os
import sys
from contextlib import suppress

from pipelines.errors import LumeshError
from pipelines.files.whole import write_whole
from studio.cluster import head_file
from studio.cluster.dispatcher import Dispatcher
from studio.cluster.joined import QUIET
from studio.cluster.keeper import FINISH, STOP
from studio.cluster.token import give_ray, make_token
from studio.database import open_database
from studio.flags import read_settings
from studio.jobs.job import Card
from studio.settings import Settings
from studio.storage import PRIVATE_UMASK
from studio.worker import CANNOT_START_CODE
from studio.worker.insisting import insist
from studio.worker.lock import hold_lock

LOCK_TIMEOUT_S = 10.0
ORPHAN_EXIT_CODE = 3
WISHES = 4096  # that are read at once; the app writes one after each of its transactions


def main() -> int:
    """Returns 0 when the app wanted it to stop, CANNOT_START_CODE with the reason in the log."""
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = read_settings(sys.argv[1:], os.environ)
    os.umask(PRIVATE_UMASK)
    try:
        with hold_lock(settings.dispatcher_lock, who="Another dispatcher", timeout_s=LOCK_TIMEOUT_S):
            make_token(settings.ray_token_file)
            os.environ.update(give_ray(settings.ray_token_file) | QUIET)  # before Ray is imported
            _dispatch(settings)
            return 0
    except LumeshError as error:
        logging.getLogger(__name__).error("%s %s", error, error.advice)
        write_whole(settings.dispatcher_error_file, json.dumps(Card.of(error).to_json()).encode())
        return CANNOT_START_CODE


def _dispatch(settings: Settings) -> None:
    from studio.cluster.ray_cluster import Head, RayCluster

    head = Head(settings)
    database = insist(lambda: open_database(settings.database_file))
    cluster = RayCluster(settings.ray_address or head.ensure(), studio=head_file.read_studio(settings))
    dispatcher = Dispatcher(settings, database, cluster)
    asyncio.run(_serve(dispatcher))
    for link in dispatcher.links.values():
        link.handle.kill()
    cluster.close()
    if settings.ray_address is None:
        head.stop()


async def _serve(dispatcher: Dispatcher) -> None:
    """Serves until the app says STOP; without an app this process ends at once, and workers go on."""
    serving = asyncio.create_task(dispatcher.run())
    listening = asyncio.create_task(_listen(dispatcher))
    done, _ = await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    for task in done:
        task.result()


async def _listen(dispatcher: Dispatcher) -> None:
    while wishes := await asyncio.to_thread(os.read, sys.stdin.fileno(), WISHES):
        if FINISH in wishes:
            dispatcher.finish()
        if STOP in wishes:
            return
        dispatcher.wake()
    os._exit(ORPHAN_EXIT_CODE)


if __name__ == "__main__":
    sys.exit(main())
