"""How long an event takes from a worker of a cluster to the database: `python -m tests.load.cluster_events`.

`[--workers 16] [--seconds 20]`; needs requirements-cluster.txt. Real Ray, real dispatcher, outbox and SQLite; each
worker tells a step every 0.15 s, as the fake family does, with its clock's time in it. The row's time is the
database's, on the same machine, so the difference is all that lies between.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console

from pipelines.messages import say
from pipelines.models.catalog import load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import Progress
from studio.cluster.actor import WorkerActor
from studio.cluster.dispatcher import Dispatcher
from studio.cluster.token import give_ray, make_token
from studio.database import Database, open_database
from studio.jobs import queue
from studio.jobs.workers import WorkerState
from studio.settings import Settings
from tests.load.kills import find_port

STEP_S = 0.15
STEPS = 10_000
START_S = 240.0
console = Console(highlight=False, soft_wrap=True)


class Teller(WorkerActor):
    """A worker that makes nothing, and tells the time at every step."""

    def _run(self) -> None:
        desk = self._desk
        desk.announce(WorkerState.READY, activity=say("ready"), model="demo-sdxl")
        while (job := desk.claim_next(resident=None)) is None:
            desk.wait(STEP_S)
        for step in range(STEPS):
            desk.report(job, Progress(phase="denoising", done=step, total=STEPS, detail=repr(time.time())), eta_s=None)
            time.sleep(STEP_S)


def main() -> int:
    """Prints the percentiles, and the memory of the processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lumesh-events-") as folder:
        settings = Settings(
            host="127.0.0.1", port=0, data_dir=Path(folder), fake=True, workers=wanted.workers, ray_port=find_port()
        )
        settings.dispatcher_log.parent.mkdir(parents=True)
        make_token(settings.ray_token_file)
        os.environ.update(give_ray(settings.ray_token_file))  # before Ray is imported
        database = open_database(settings.database_file)
        with serve(settings) as cluster:
            asyncio.run(measure(settings, database, cluster, wanted.seconds))
    return 0


@contextlib.contextmanager
def serve(settings: Settings) -> Iterator[Any]:
    from studio.cluster.ray_cluster import Head, RayCluster

    head = Head(settings)
    cluster = RayCluster(head.ensure(), studio="load", actor=Teller)
    try:
        yield cluster
    finally:
        cluster.close()
        head.stop()


async def measure(settings: Settings, database: Database, cluster: Any, seconds: float) -> None:
    recipe = resolve(Recipe(model="demo-sdxl", prompt="a red boat"), load_catalog())
    for _ in range(settings.workers):
        queue.submit(database, recipe, owner="local")
    dispatcher = Dispatcher(settings, database, cluster)
    serving = asyncio.create_task(dispatcher.run())
    deadline = time.monotonic() + START_S
    while (count := database.read("SELECT count(*) AS count FROM jobs WHERE step > 0")[0]["count"]) < settings.workers:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} of {settings.workers} workers began within {START_S:.0f} s")
        await asyncio.sleep(0.5)
    began = time.time()
    await asyncio.sleep(seconds)
    serving.cancel()
    rows = database.read(
        "SELECT at - (data ->> '$.phase_detail') AS took FROM events WHERE kind = 'job.step' AND at > ?",
        (began,),
    )
    took = np.array([row["took"] for row in rows]) * 1000
    p50, p95, p99 = np.percentile(took, [50, 95, 99])
    console.print(
        f"{settings.workers} workers, {len(took) / seconds:.0f} events a second: worker to SQLite p50 {p50:.1f}, "
        f"p95 {p95:.1f}, p99 {p99:.1f}, max {took.max():.0f} ms; load of the machine {os.getloadavg()[0]:.1f}"
    )
    console.print(f"this dispatcher: {psutil.Process().memory_info().rss / 1e6:.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
