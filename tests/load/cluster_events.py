"""How long an event takes from a worker of a cluster to the database, and to a browser.

`python -m tests.load.cluster_events [--workers 16] [--seconds 20] [--browser]`; needs requirements-cluster.txt. Real
Ray, real dispatcher, outbox and SQLite; each worker tells a step every 0.15 s, as the fake family does, with its
clock's time in it. The row's time is the database's, on the same machine, so the difference is all that lies between.
With `--browser`, the studio's REST in a process of its own sends the events to Chromium, whose script subtracts too.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import uvicorn
from rich.console import Console

from pipelines.messages import say
from pipelines.models.catalog import load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import Progress
from studio.api.application import create_api
from studio.api.connections import Connection
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
FOLLOW = """() => {
  window.took = [];
  const events = new EventSource("/api/v1/events");
  events.addEventListener("job.step", ({ data }) => {
    const { phase_detail } = JSON.parse(data);
    window.took.push(Date.now() - 1000 * Number(phase_detail));
  });
  return new Promise((resolve, reject) => Object.assign(events, { onopen: () => resolve(), onerror: () => reject() }));
}"""
"""Follows the events as the page does, and notes the milliseconds since a worker told of each."""

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
    parser.add_argument("--browser", action="store_true", help="also until a script in Chromium has the event")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lumesh-events-") as folder:
        places = {"host": "127.0.0.1", "port": find_port(), "data_dir": Path(folder), "ray_port": find_port()}
        settings = Settings(**places, fake=True, workers=wanted.workers)
        settings.dispatcher_log.parent.mkdir(parents=True)
        make_token(settings.ray_token_file)
        os.environ.update(give_ray(settings.ray_token_file))  # before Ray is imported
        database = open_database(settings.database_file)
        with serve(settings) as cluster:
            asyncio.run(measure(settings, database, cluster, wanted.seconds, has_browser=wanted.browser))
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


async def measure(settings: Settings, database: Database, cluster: Any, seconds: float, *, has_browser: bool) -> None:
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
    async with open_page(settings) if has_browser else contextlib.nullcontext() as page:
        began = time.time()
        if page is not None:
            await page.evaluate(FOLLOW)
        await asyncio.sleep(seconds)
        arrived = await page.evaluate("window.took") if page is not None else []
    serving.cancel()
    rows = database.read(
        "SELECT at - (data ->> '$.phase_detail') AS took FROM events WHERE kind = 'job.step' AND at > ?",
        (began,),
    )
    console.print(f"{settings.workers} workers, {len(rows) / seconds:.0f} events a second")
    show("worker to SQLite", [1000 * row["took"] for row in rows])
    if arrived:
        show("worker to Chromium", arrived)
    memory_mb = psutil.Process().memory_info().rss / 1e6
    console.print(f"this dispatcher: {memory_mb:.0f} MB; load of the machine {os.getloadavg()[0]:.1f}")


@contextlib.asynccontextmanager
async def open_page(settings: Settings) -> AsyncIterator[Any]:
    """Opens a page of the studio's REST, which another process serves, in Chromium."""
    from playwright.async_api import async_playwright

    server = multiprocessing.get_context("spawn").Process(target=serve_rest, args=(settings,), daemon=True)
    server.start()
    try:
        async with async_playwright() as playwright:
            executable = shutil.which("chromium-headless-shell") or shutil.which("chromium")
            flags = ["--no-sandbox", "--disable-gpu"]
            browser = await playwright.chromium.launch(executable_path=executable, args=flags)
            page = await browser.new_page(bypass_csp=True)
            deadline = time.monotonic() + START_S
            while not await is_open(page, f"http://127.0.0.1:{settings.port}/api/v1/health"):
                if time.monotonic() > deadline:
                    raise TimeoutError("the studio's REST does not answer")
                await asyncio.sleep(0.5)
            yield page
            await browser.close()
    finally:
        server.kill()
        server.join()


async def is_open(page: Any, url: str) -> bool:
    from playwright.async_api import Error

    try:
        return (await page.goto(url)).ok
    except Error:
        return False


def serve_rest(settings: Settings) -> None:
    """Serves what app.py does, without a page of its own and without workers."""
    app = create_api(settings, open_database(settings.database_file), load_catalog())
    options = {"http": Connection, "log_level": "error", "access_log": False, "proxy_headers": False}
    uvicorn.run(app, host=settings.host, port=settings.port, **options)


def show(title: str, took_ms: Sequence[float]) -> None:
    p50, p95, p99 = np.percentile(took_ms, [50, 95, 99])
    console.print(f"{title}: p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f}, max {max(took_ms):.0f} ms")


if __name__ == "__main__":
    sys.exit(main())
