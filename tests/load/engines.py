"""What Ray costs a picture: `python -m tests.load.engines [--pictures 20] [--steps 8] [--fake]`.

Needs requirements-cluster.txt. Two studios run at once, `--engine local` and `--engine ray`, each with one worker on
this machine, and make the same pictures in turn, one at a time, so that other work on the machine hits both
alike. Printed are medians: from the request until REST says that it is done, and its parts by the studio's own clock;
and the mean of what each studio's processes took of a processor meanwhile, which other work disturbs least.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from tests.load.kills import find_port, wait_for
from tests.load.studios import Studio, start_studio

READY_S = 600.0
POLL_S = 0.01  # asking takes a processor from the model, of either studio
ENGINES = ("local", "ray")
PARTS = {
    "whole": "request to done",
    "waits": "of which waiting",
    "held": "of which claimed",
    "made": "of which the model's",
}
BURDENS: tuple[str, ...] = ("app", "worker", "dispatcher", "ray")

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=20)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--fake", action="store_true", help="the model without weights: 0.15 s a step, of sleep")
    wanted = parser.parse_args()
    flags = ["--fake"] if wanted.fake else ["--allow-cpu", "--model", "demo-sdxl"]
    recipe = {"model": "demo-sdxl", "prompt": "A red sailboat", "steps": wanted.steps}
    found: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
    with tempfile.TemporaryDirectory(prefix="lumesh-engines-") as folder, ExitStack() as stack:
        studios: dict[str, Studio] = {}
        for engine in ENGINES:
            extra = ["--ray-port", str(find_port())] if engine == "ray" else []
            studio = start_studio(Path(folder) / engine, *flags, "--engine", engine, *extra, port=find_port())
            studios[engine] = stack.enter_context(studio)
            wait_for(f"{engine}'s worker", lambda engine=engine: is_ready(studios[engine]), READY_S)
        for seed in range(wanted.pictures + 1):
            for engine in ENGINES if seed % 2 else reversed(ENGINES):
                data_dir = Path(folder) / engine
                before = read_burdens(studios[engine], data_dir)
                one = make(studios[engine], {**recipe, "seed": seed})
                after = read_burdens(studios[engine], data_dir)
                one |= {name: taken - before.get(name, 0.0) for name, taken in after.items()}
                if seed:  # the first compiles
                    found[engine].append(one)
    show(found)
    return 0


def is_ready(studio: Studio) -> bool:
    return any(row["engine"]["state"] == "ready" for row in studio.read("workers")["workers"])


def make(studio: Studio, recipe: dict[str, Any]) -> dict[str, float]:
    """Makes a picture; returns seconds."""
    began_s = time.perf_counter()
    job = studio.client.post("/api/v1/jobs", json=recipe).raise_for_status().json()
    while (job := studio.read(f"jobs/{job['id']}"))["state"] in ("queued", "running"):
        time.sleep(POLL_S)
    whole_s = time.perf_counter() - began_s
    if job["state"] != "done":
        raise RuntimeError(str(job["error"]))
    return {
        "whole": whole_s,
        "waits": job["started_at"] - job["created_at"],
        "held": job["finished_at"] - job["started_at"],
        "made": job["timings"]["total_s"],
    }


def read_burdens(studio: Studio, data_dir: Path) -> dict[str, float]:
    """Returns the seconds of a processor that each part of a studio has taken since its start."""
    leaders = [studio.process.pid]
    with contextlib.suppress(OSError):
        leaders.append(json.loads((data_dir / "ray.json").read_text("utf-8"))["pid"])
    taken: dict[str, float] = dict.fromkeys(BURDENS, 0.0)
    family = {one.pid: one for pid in leaders if (leader := psutil.Process(pid)) for one in _list_family(leader)}
    for one in family.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            command, times = " ".join(one.cmdline()), one.cpu_times()
            taken[_name_part(command)] += times.user + times.system
    return taken


def _list_family(leader: psutil.Process) -> list[psutil.Process]:
    return [leader, *leader.children(recursive=True)]


def _name_part(command: str) -> str:
    if "app.py" in command:
        return "app"
    if "studio.worker" in command or "WorkerActor" in command:
        return "worker"
    return "dispatcher" if "studio.cluster" in command else "ray"


def show(found: dict[str, list[dict[str, float]]]) -> None:
    table = Table("median, ms", *ENGINES, "difference")
    for part, title in PARTS.items():
        medians = [statistics.median(one[part] for one in found[engine]) * 1000 for engine in ENGINES]
        table.add_row(title, *(f"{one:.1f}" for one in medians), f"{medians[1] - medians[0]:+.1f}")
    console.print(table)
    burdens = Table("of a processor, mean, ms", *ENGINES, "difference")
    for part in BURDENS:
        means = [statistics.mean(one[part] for one in found[engine]) * 1000 for engine in ENGINES]
        burdens.add_row(part, *(f"{one:.1f}" for one in means), f"{means[1] - means[0]:+.1f}")
    console.print(burdens)
    console.print(f"{len(found['ray'])} pictures each, load of the machine {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    sys.exit(main())
