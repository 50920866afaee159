"""A small crowd: every job ends once with one picture, every viewer sees every event once. Nothing here is timed."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.load.checks import find_mistakes
from tests.load.submitters import Submitted, submit_while
from tests.load.viewers import Crowd, Orders, Seen, describe

VIEWERS, SUBMITTERS, JOBS = 10, 4, 30
RECIPE = {"model": "demo-sdxl", "shape": "128x128", "steps": 1, "prompt": "A red boat"}


def test_a_crowd_loses_nothing_and_gets_nothing_twice(start_studio: Callable[..., Any]) -> None:
    studio = start_studio()
    url, start = str(studio.client.base_url), studio.read("health")["last_event_id"]
    orders = Orders(url=url, after=start, count=VIEWERS, hang_up_after=20, pages=2)

    async def run() -> tuple[Crowd, Submitted, int]:
        crowd = Crowd(orders)
        await crowd.start()
        submitted = await submit_while(url, SUBMITTERS, lambda jobs: jobs < JOBS, RECIPE, look_s=0.1)
        until = await asyncio.to_thread(lambda: studio.read("health")["last_event_id"])
        await crowd.finish(until)
        return crowd, submitted, until

    crowd, submitted, until = asyncio.run(run())
    assert len(submitted.ids) == JOBS
    assert until - start > 5 * JOBS, "jobs tell what happens to them"
    assert [seen.list_mistakes(until) for seen in crowd.seen] == [[]] * VIEWERS
    assert describe(crowd.seen, until)["arrivals"] >= VIEWERS * (until - start)
    assert find_mistakes(studio.data_dir, submitted.ids) == []
    studio.stop()


def test_what_a_viewer_missed_or_saw_twice_is_found() -> None:
    assert Seen(after=3, ids=[4, 5, 6]).list_mistakes(6) == []
    assert Seen(after=3, ids=[4, 6]).list_mistakes(7) == [5, 7]
    assert Seen(after=3, ids=[4, 5, 5, 6]).list_mistakes(6) == [5]
    assert Seen(after=3, ids=[5, 4, 6]).list_mistakes(6) == [4]


def test_lost_repeated_and_unfinished_jobs_are_found(
    tmp_path: Path, submit: Callable[..., Any], worker: Any, database: Any
) -> None:
    done, waiting = submit().id, submit().id
    worker.run_next()
    with database.write() as tx:
        columns = "kind, owner, job_id, at, data"
        tx.execute(f"INSERT INTO events ({columns}) SELECT {columns} FROM events WHERE kind = 'job.done'")
        tx.execute("DELETE FROM events WHERE id = 2")
    (tmp_path / "outputs" / database.read("SELECT file FROM outputs")[0]["file"]).unlink()
    mistakes = "\n".join(find_mistakes(tmp_path, [done, "lost", "lost"]))
    for said in (
        "job lost was answered twice",
        "job lost is unknown",
        f"job {waiting} was never asked for",
        f"job {waiting} is queued",
        f"job {waiting} ended 0 times",
        f"job {done} ended 2 times",
        f"job {waiting} has 0 outputs",
        f"{done}-0.png is missing",
        "gap before event 3",
    ):
        assert said in mistakes
