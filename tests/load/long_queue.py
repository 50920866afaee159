"""How the studio bears a long queue: `python -m tests.load.long_queue [--jobs 1000] [--json]`.

Queues that many jobs behind one that runs, kills the server, starts it again, and asks what a page asks, many times:
medians of what each takes, with how much comes back. At the end everything is cancelled at once.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from tests.load.studios import Studio, start_studio

RUNS = 10
SWEEP = 100  # as many as one request may queue
LOOKS = {
    "the queue's state": "/api/v1/queue",
    "jobs that wait": "/api/v1/jobs?state=queued",
    "500 jobs that wait": "/api/v1/jobs?state=queued&limit=500",
    "the newest jobs": "/api/v1/jobs",
    "health": "/api/v1/health",
    "models": "/api/v1/models",
}


def main() -> None:
    """Prints a table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), wanted.jobs)
    if wanted.json:
        print(json.dumps(found))  # noqa: T201 - for programs
    else:
        show(found)


def measure(data_dir: Path, jobs: int) -> dict[str, Any]:
    """Everything that `show` shows: seconds of starts, and milliseconds and bytes of everything else."""
    found: dict[str, Any] = {"jobs": jobs, "answers": {}}
    with start_studio(data_dir, "--fake") as studio:
        found["empty_up_s"] = studio.up_s
        recipe = {"model": "demo-sdxl", "prompt": "A red boat", "shape": "128x128", "steps": 100}
        _ask(studio, "POST", "/api/v1/jobs", json=recipe)
        sweep = {"recipe": {**recipe, "steps": 1}, "seeds": SWEEP}
        clock = time.perf_counter()
        for _ in range(jobs // SWEEP):
            _ask(studio, "POST", "/api/v1/jobs/many", json=sweep)
        found["queued_s"] = time.perf_counter() - clock
        studio.process.kill()
        studio.process.wait()
    with start_studio(data_dir, "--fake") as studio:
        found["up_s"] = studio.up_s
        found["waiting"] = studio.read("health")["jobs"]["queued"]
        _ask(studio, "POST", "/api/v1/queue/pause")  # the same line for every look
        answers = {title: _time(lambda path=path: _ask(studio, "GET", path)) for title, path in LOOKS.items()}
        answers["all that a page reads first"] = _time(lambda: _read_all(studio))
        answers["one more job"] = _time(lambda: _ask(studio, "POST", "/api/v1/jobs", json=recipe))
        last, first = (_read_waiting(studio)[place]["id"] for place in (-1, 0))
        move = f"/api/v1/jobs/{last}/move"
        answers["the last one moved to the front"] = _time(
            lambda: _ask(studio, "POST", move, json={"before": first}), runs=1
        )
        cancel = {"scope": "waiting"}
        answers["all cancelled"] = _time(lambda: _ask(studio, "POST", "/api/v1/jobs/cancel", json=cancel), runs=1)
        found["answers"] = answers
    return {**found, "load": os.getloadavg()[0]}


def _read_all(studio: Studio) -> list[httpx.Response]:
    """What ui/static/js/core/stream.js asks for before it opens its stream."""
    paths = ("health", "me", "models", "queue", "jobs", "jobs?state=queued", "jobs?state=running")
    return [answer for path in paths for answer in _ask(studio, "GET", f"/api/v1/{path}")]


def _read_waiting(studio: Studio) -> list[dict[str, Any]]:
    return studio.read("jobs", state="queued", limit=500)["jobs"]


def _ask(studio: Studio, method: str, path: str, **options: Any) -> list[httpx.Response]:
    return [studio.client.request(method, path, **options).raise_for_status()]


def _time(act: Callable[[], list[httpx.Response]], *, runs: int = RUNS) -> dict[str, float]:
    passed_s: list[float] = []
    answers: list[httpx.Response] = []
    for _ in range(runs):
        clock = time.perf_counter()
        answers = act()
        passed_s.append(time.perf_counter() - clock)
    return {
        "ms": 1000 * statistics.median(passed_s),
        "most_ms": 1000 * max(passed_s),
        "kb": sum(len(answer.content) for answer in answers) / 1e3,
        "sent_kb": sum(answer.num_bytes_downloaded for answer in answers) / 1e3,
    }


def show(found: dict[str, Any]) -> None:
    """One line of starts, one table of answers."""
    console = Console()
    console.print(
        f"{found['jobs']} jobs queued in {found['queued_s']:.1f} s, {found['waiting']} wait after the restart; "
        f"up after {found['up_s']:.1f} s, with an empty queue after {found['empty_up_s']:.1f} s; "
        f"load of the machine {found['load']:.1f}"
    )
    table = Table("with that queue", "ms, median", "most", "kB", "sent")
    for title, one in found["answers"].items():
        table.add_row(title, f"{one['ms']:.0f}", f"{one['most_ms']:.0f}", f"{one['kb']:.0f}", f"{one['sent_kb']:.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
