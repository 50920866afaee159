"""Random kills in a real cluster: `python -m tests.load.kills [--jobs 200] [--seed 1]`; needs requirements-cluster.txt.

Starts the studio with `--engine ray --fake`, two machines that join it (on this one), and queues jobs. Meanwhile it
kills, one after the other and at random: a worker's process, a machine's raylet, the dispatcher, the app itself, or
freezes a worker for longer than its lease. At the end every job must be done, once: one event of its end, one row of
an output, one file. Prints what was killed, and how long it took until the work went on.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
from rich.console import Console

from tests.places import ROOT

STEPS = 8
RECOVER_S = 300.0
START_S = 120.0
FROZEN_S = 30.0
QUIET_S = 3.0
console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """Returns 0 if nothing was lost and nothing made twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    wanted = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lumesh-kills-"))
    town = Town(folder, random.Random(wanted.seed), steps=wanted.steps)
    try:
        code = town.prove(wanted.jobs)
    finally:
        town.end()
    if code:
        console.print(f"the logs stay in {folder}")
    else:
        shutil.rmtree(folder)
    return code


class Town:
    """A studio and two machines, all of them processes of this one."""

    def __init__(self, folder: Path, draw: random.Random, *, steps: int) -> None:
        self.steps = steps
        self.folder = folder
        self.data_dir = folder / "studio"
        self.draw = draw
        self.port, self.ray_port = find_port(), find_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.app: subprocess.Popen[bytes] | None = None
        self.machines: list[subprocess.Popen[bytes]] = []
        self.killed: Counter[str] = Counter()
        self.recovered_s: dict[str, list[float]] = {}

    def prove(self, jobs: int) -> int:
        began_s = time.monotonic()
        self.start_app()
        for name in ("two", "three"):
            self.join(name)
            # One after the other: two nodes of one machine that start at once choose the same names for their sockets.
            wait_for(name, lambda name=name: self.read(f"SELECT id FROM workers WHERE id = '{name}'"), START_S)
        wait_for("three workers", lambda: self.count_ready() == 3, START_S)
        console.print(f"three workers after {time.monotonic() - began_s:.0f} s")
        ids = self.submit(jobs)
        while self.count_done(ids) < jobs:
            victim = self.draw.choice(["worker", "worker", "raylet", "dispatcher", "frozen", "app"])
            at_s, before = time.monotonic(), self.count_done(ids)
            console.print(f"{at_s - began_s:6.1f} s, {before} done: {victim}")
            getattr(self, f"kill_{victim}")()
            self.killed[victim] += 1
            wait_for(f"work after {victim}", lambda before=before: self.count_done(ids) > before + 1, RECOVER_S)
            self.recovered_s.setdefault(victim, []).append(time.monotonic() - at_s)
            time.sleep(QUIET_S + self.draw.random() * QUIET_S)
            self.retry_failed(ids)
        return self.judge(ids, took_s=time.monotonic() - began_s)

    def judge(self, ids: list[str], *, took_s: float) -> int:
        rows = self.read("SELECT job_id, file FROM outputs")
        outputs = Counter(row["job_id"] for row in rows)
        ends = Counter(row["job_id"] for row in self.read("SELECT job_id FROM events WHERE kind = 'job.done'"))
        files = list((self.data_dir / "outputs").glob("*/*.png"))
        attempts = self.read("SELECT sum(attempt) AS count, sum(attempt > 1) AS again FROM jobs")[0]
        wrong = [job for job in ids if outputs[job] != 1 or ends[job] != 1]
        named = {row["file"] for row in rows}
        stray = [file for file in files if f"{file.parent.name}/{file.name}" not in named]
        console.print(
            f"{len(ids)} jobs in {took_s:.0f} s, {attempts['count']} attempts, {attempts['again']} begun again"
        )
        console.print(f"killed: {dict(self.killed)}")
        for victim, seconds in self.recovered_s.items():
            console.print(f"two more jobs done after {victim}: {', '.join(f'{one:.1f}' for one in seconds)} s")
        console.print(f"lost or twice: {wrong}; files without a row: {len(stray)}; files: {len(files)}")
        console.print(f"load of the machine {os.getloadavg()[0]:.1f}")
        return 1 if wrong or stray or len(files) != len(ids) else 0

    # Who is killed.

    def kill_worker(self) -> None:
        os.kill(self.choose_worker(), signal.SIGKILL)

    def kill_frozen(self) -> None:
        pid = self.choose_worker()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(FROZEN_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def kill_raylet(self) -> None:
        machine = psutil.Process(self.draw.choice(self.machines).pid)
        raylets = [one for one in machine.children(recursive=True) if one.name() == "raylet"]
        for raylet in raylets:
            raylet.kill()

    def kill_dispatcher(self) -> None:
        pid = int((self.data_dir / "worker-dispatcher.lock").read_text("utf-8"))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def kill_app(self) -> None:
        assert self.app is not None
        self.app.kill()
        self.app.wait()
        self.start_app()

    def choose_worker(self) -> int:
        alive = self.read("SELECT pid FROM workers WHERE pid IS NOT NULL AND state IN ('ready', 'busy', 'preparing')")
        pids = [row["pid"] for row in alive if psutil.pid_exists(row["pid"])]
        if not pids:
            wait_for("a worker", lambda: self.count_ready() > 0, START_S)
            return self.choose_worker()
        return self.draw.choice(pids)

    # The town.

    def start_app(self) -> None:
        flags = ["--engine", "ray", "--fake", "--workers", "1", "--port", str(self.port), "--queue-quota", "100000"]
        flags += ["--ray-port", str(self.ray_port), "--data-dir", str(self.data_dir)]
        with (self.folder / "app.log").open("ab") as log:
            command = [sys.executable, "app.py", *flags]
            self.app = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

        def answers() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{self.url}/api/v1/health").is_success
            return False

        wait_for("the studio", answers, START_S)

    def join(self, name: str) -> None:
        address = wait_for("the cluster", self._find_address, START_S)
        file = self.data_dir / "ray.token"
        flags = ["--fake", "--data-dir", str(self.folder / name), "--name", name, "--token-file", str(file)]
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "studio.worker", "join", address, *flags]
            self.machines.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))

    def _find_address(self) -> str | None:
        with contextlib.suppress(OSError, ValueError):
            address = json.loads((self.data_dir / "ray.json").read_text("utf-8"))["address"]
            host, port = address.split(":")
            socket.create_connection((host, int(port)), 1.0).close()
            return address
        return None

    def end(self) -> None:
        for process in (*self.machines, *([self.app] if self.app else [])):
            process.terminate()
        for process in (*self.machines, *([self.app] if self.app else [])):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()

    def submit(self, jobs: int) -> list[str]:
        recipe = {"model": "demo-sdxl", "prompt": "a red boat", "steps": self.steps}
        answers = [httpx.post(f"{self.url}/api/v1/jobs", json={**recipe, "seed": seed}) for seed in range(jobs)]
        return [answer.raise_for_status().json()["id"] for answer in answers]

    def retry_failed(self, ids: list[str]) -> None:
        """Asks for a job again, as people do who read the card of one that lost two machines."""
        for row in self.read("SELECT id, error FROM jobs WHERE state IN ('failed', 'interrupted')"):
            if row["id"] in ids:
                console.print(f"retried: {json.loads(row['error'] or '{}').get('title')}")
                with contextlib.suppress(httpx.HTTPError):
                    httpx.post(f"{self.url}/api/v1/jobs/{row['id']}/retry")

    def count_ready(self) -> int:
        return self.read("SELECT count(*) AS count FROM workers WHERE state IN ('ready', 'busy')")[0]["count"]

    def count_done(self, ids: list[str]) -> int:
        done = self.read("SELECT count(*) AS count FROM jobs WHERE state = 'done'")[0]["count"]
        return len(ids) + 2 if done == len(ids) else done

    def read(self, sql: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self.data_dir / "jobs.db", timeout=20)) as connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(sql).fetchall()


def find_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


def wait_for(what: str, look: Callable[[], Any], timeout_s: float) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {timeout_s:.0f} s")
        time.sleep(0.1)
    return found


if __name__ == "__main__":
    sys.exit(main())
