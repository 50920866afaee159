"""How the studio bears a crowd: `python -m tests.load [--seconds 120] [--json]`.

Starts a studio in a temporary folder, opens many event streams in a process of their own, and lets people queue small
pictures over REST. Afterwards every job must have ended once with one picture, every viewer must have seen every event
once and in order, and memory must be what it was in the middle. Ends with code 1 where that is not so; how late events
came, and how much memory was used, is printed and never judged.
Not here: long queues and restarts (long_queue.py).
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.load.checks import find_mistakes
from tests.load.studios import Burden, Studio, start_studio
from tests.load.submitters import submit_while
from tests.load.viewers import QUANTILES, quantile
from tests.places import ROOT

MEASURE_S = 5.0


def main() -> int:
    """Prints a table, or one JSON object; 1 when something was lost or came twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--submitters", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--model", help="a real model instead of the one without weights, such as demo-sdxl")
    parser.add_argument("--shape", default="128x128")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--pages", type=int, default=0, help="so many viewers also read the queue, as pages do")
    parser.add_argument("--hang-up-after", type=int, default=200, help="events, after which 1 of 10 viewers reconnects")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    found = measure(wanted)
    if wanted.json:
        print(json.dumps(found))  # noqa: T201 - for programs
    else:
        show(found)
    return 1 if found["mistakes"] else 0


def measure(wanted: argparse.Namespace) -> dict[str, Any]:
    """Everything that `show` shows."""
    flags = ["--model", wanted.model] if wanted.model else ["--fake"]
    recipe = {
        "model": wanted.model or "demo-sdxl",
        "shape": wanted.shape,
        "steps": wanted.steps,
        "prompt": "A red boat",
    }
    with tempfile.TemporaryDirectory() as folder:
        with start_studio(Path(folder), *flags) as studio:
            _wait_until_ready(studio)
            orders = {
                "url": studio.url,
                "after": studio.read("health")["last_event_id"],
                "count": wanted.viewers,
                "hang_up_after": wanted.hang_up_after,
                "pages": wanted.pages,
            }
            with _watched(studio, orders) as (seen, burdens):
                deadline = time.monotonic() + wanted.seconds
                submitted = asyncio.run(
                    submit_while(studio.url, wanted.submitters, lambda _: time.monotonic() < deadline, recipe)
                )
            load = os.getloadavg()
        mistakes = find_mistakes(Path(folder), submitted.ids)
    mistakes += [f"viewer {number} missed or mixed up events {ids[:5]}" for number, ids in seen["mistakes"].items()]
    answers_s = sorted(submitted.answers_s)
    return {
        "asked": {name: value for name, value in vars(wanted).items() if name != "json"},
        "jobs": len(submitted.ids),
        "events": seen["until"] - orders["after"],
        "arrivals": seen["arrivals"],
        "mistakes": mistakes,
        "delay_ms": seen["delay_ms"],
        "read_ms": seen["read_ms"],
        "submit_ms": {name: 1000 * quantile(answers_s, share) for name, share in QUANTILES.items()},
        "processes": {name: _sum_up(measured) for name, measured in burdens.items()},
        "load": load[0],
    }


def _sum_up(measured: list[Burden]) -> dict[str, float]:
    memory_mb = [one.memory_mb for one in measured]
    places = {"start": memory_mb[0], "middle": memory_mb[len(memory_mb) // 2], "end": memory_mb[-1]}
    return {**places, "most": max(memory_mb), "cpu_s": measured[-1].cpu_s - measured[0].cpu_s}


def _wait_until_ready(studio: Studio) -> None:
    while studio.read("health")["engine"]["state"] != "ready":
        time.sleep(0.2)


@contextmanager
def _watched(studio: Studio, orders: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, list[Burden]]]]:
    """What the viewers saw while the block ran, known after it, and what the processes took, every `MEASURE_S`."""
    seen: dict[str, Any] = {}
    burdens: dict[str, list[Burden]] = {}
    is_over = threading.Event()

    def keep_measuring() -> None:
        is_last = False
        while not is_last:
            is_last = is_over.wait(MEASURE_S if burdens else 0)
            for name, burden in studio.measure().items():
                burdens.setdefault(name, []).append(burden)

    command = [sys.executable, "-m", "tests.load.viewers"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as viewers:
        assert viewers.stdin is not None
        assert viewers.stdout is not None
        viewers.stdin.write(json.dumps(orders) + "\n")
        if viewers.stdout.readline() != "ready\n":
            raise RuntimeError("the viewers could not connect")
        meter = threading.Thread(target=keep_measuring)
        meter.start()
        try:
            yield seen, burdens
        finally:
            is_over.set()
            meter.join()
        until = studio.read("health")["last_event_id"]
        viewers.stdin.write(f"{until}\n")
        seen |= {**json.loads(viewers.stdout.readline()), "until": until}


def show(found: dict[str, Any]) -> None:
    """Two tables and what went wrong."""
    console = Console()
    asked = found["asked"]
    console.print(
        f"{asked['viewers']} viewers ({asked['pages']} of them as pages), {asked['submitters']} submitters for "
        f"{asked['seconds']:.0f} s, {asked['model'] or 'no weights'} at {asked['shape']}: {found['jobs']} jobs, "
        f"{found['events']} events, {found['arrivals']} arrivals; load of the machine {found['load']:.1f}"
    )
    times = Table("ms", *QUANTILES)
    rows = {"event made to arrived": "delay_ms", "job submitted": "submit_ms", "queue read by a page": "read_ms"}
    for title, name in rows.items():
        if name != "read_ms" or asked["pages"]:
            times.add_row(title, *(f"{value:.0f}" for value in found[name].values()))
    console.print(times)
    processes = Table("MB of memory", "start", "middle", "end", "most", "seconds of a processor")
    for name, values in found["processes"].items():
        processes.add_row(name, *(f"{value:.0f}" for value in values.values()))
    console.print(processes)
    for mistake in found["mistakes"][:20]:
        console.print(f"[red]{mistake}")
    console.print(f"{len(found['mistakes'])} mistakes" if found["mistakes"] else "Nothing lost, nothing twice.")


if __name__ == "__main__":
    sys.exit(main())
