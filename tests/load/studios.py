"""A studio in a process of its own, for measuring: started, asked, watched, and ended."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.places import ROOT

PORT = 7995
UNLIMITED = "1000000"
START_S = 300.0
STOP_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Studio:
    """The running one; `up_s` is how long it took until it answered."""

    process: subprocess.Popen[bytes]
    client: httpx.Client
    up_s: float

    @property
    def url(self) -> str:
        return str(self.client.base_url)

    def read(self, path: str, **params: Any) -> Any:
        return self.client.get(f"/api/v1/{path}", params=params).raise_for_status().json()

    def measure(self) -> dict[str, "Burden"]:
        """The server's and its worker's."""
        found = {"server": psutil.Process(self.process.pid)}
        if (worker := self.read("health")["engine"]["pid"]) is not None:
            found["worker"] = psutil.Process(worker)
        return {name: Burden.of(process) for name, process in found.items()}


@dataclass(frozen=True, kw_only=True)
class Burden:
    """What a process has taken so far: resident megabytes now, seconds of a processor since its start."""

    memory_mb: float
    cpu_s: float

    @classmethod
    def of(cls, process: psutil.Process) -> "Burden":
        times = process.cpu_times()
        return cls(memory_mb=process.memory_info().rss / 1e6, cpu_s=times.user + times.system)


@contextmanager
def start_studio(data_dir: Path, *flags: str, port: int = PORT) -> Iterator[Studio]:
    """Answers when it is entered, and is gone when it is left."""
    limits = ["--queue-quota", UNLIMITED, "--submits-per-minute", UNLIMITED]
    command = [sys.executable, "app.py", "--port", str(port), "--data-dir", str(data_dir), *limits, *flags]
    clock = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
    try:
        while not _answers(client):
            if process.poll() is not None or time.perf_counter() - clock > START_S:
                raise RuntimeError("the studio did not start")
            time.sleep(0.05)
        yield Studio(process=process, client=client, up_s=time.perf_counter() - clock)
    finally:
        client.close()
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/api/v1/health").is_success
    except httpx.TransportError:
        return False
