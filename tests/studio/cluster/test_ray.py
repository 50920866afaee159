"""A studio with `--engine ray` and two machines that join it, all of it real: jobs survive whoever is killed, once."""

import contextlib
import importlib.util
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from pipelines.runtime.devices.platform import with_devices
from studio.cluster.groups import is_alive
from studio.cluster.token import write_token
from studio.database import Database, open_database
from studio.jobs import workers
from studio.jobs.workers import WorkerState
from studio.ray_ports import Ports
from tests.compiling import COMPILE_FAST
from tests.conftest import RunningStudio, find_free_port, wait_for
from tests.forked_python import find_forked_python
from tests.studio_processes import ROOT

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install -r requirements-cluster.txt"
    ),
]

START_S = 240.0  # Ray's servers and three interpreters, on a machine that may be busy
RECOVER_S = 90.0
STEPS = 25  # at 0.15 s
FEW = 8
HOSTS = 2
PORTS = 100  # of each machine
GONE_S = 15.0
SLICE_S = 600.0  # two processes that compile, beside all the others


@dataclass(kw_only=True)
class Town:
    """A studio whose workers are on machines that joined it, which are processes of this one."""

    studio: RunningStudio
    database: Database
    start: Callable[[], RunningStudio]
    """Starts the studio anew, on the same data directory."""
    machines: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])
    ports: dict[int, Ports] = field(default_factory=dict[int, Ports])
    """Those of each machine, by the id of its process."""

    def join(self, name: str, *more: str, **environment: str) -> None:
        """Starts a machine, which pretends unless `more` says otherwise."""
        data_dir = self.studio.data_dir
        address = json.loads((data_dir / "ray.json").read_text("utf-8"))["address"]
        folder = data_dir.parent / f"{data_dir.name}-{name}"
        ports = find_free_ports([*self.ports.values()])
        flags = ["--data-dir", str(folder), "--name", name, "--token-file", str(data_dir / "ray.token")]
        flags += ["--ray-ports", str(ports)]
        with (data_dir / "logs" / f"join-{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "studio.worker", "join", address, *flags, *(more or ["--fake"])]
            environ = os.environ | environment
            self.machines.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=environ))
        self.ports[self.machines[-1].pid] = ports
        # Nodes of one machine choose the names of their sockets one after the other, or both choose the same.
        wait(f"the node of {name}", lambda: not is_free(ports.first))

    def leave(self, *numbers: int) -> None:
        """Ends machines in order, by the number of their start."""
        for machine in (leaving := [self.machines[number] for number in numbers]):
            machine.terminate()
        assert [machine.wait(30.0) for machine in leaving] == [0] * len(leaving)
        self.machines = [machine for machine in self.machines if machine not in leaving]

    def drain(self, *names: str, action: str = "drain") -> None:
        for name in names:
            self.studio.client.post(f"/api/v1/workers/{name}/{action}").raise_for_status()

    def count_ready(self) -> int:
        return sum(row.state is WorkerState.READY for row in workers.read_workers(self.database))

    def submit_two(self, *, steps: int = STEPS) -> list[str]:
        return [self.studio.submit(steps=steps, seed=seed) for seed in range(2)]

    def read_jobs(self, ids: list[str]) -> list[dict[str, Any]]:
        return [self.studio.read(f"jobs/{one}") for one in ids]

    def find_worker(self, job_id: str) -> workers.WorkerRow:
        row = self.database.read_one("SELECT worker FROM jobs WHERE id = ?", (job_id,))
        assert row is not None
        return workers.read_worker(self.database, row["worker"])

    def read_attempts(self, ids: list[str]) -> list[int]:
        rows = [self.database.read_one("SELECT attempt FROM jobs WHERE id = ?", (one,)) for one in ids]
        return [row["attempt"] for row in rows if row]

    def end(self) -> None:
        """Ends the studio in order, or its cluster would live on; then the machines."""
        began_s = time.monotonic()
        self.studio.stop()
        self.database.close()
        assert time.monotonic() - began_s < 30.0
        for machine in self.machines:
            machine.terminate()
        assert {machine.wait(20.0) for machine in self.machines} <= {0}


@pytest.fixture(scope="module")
def town(start_studio: Callable[..., RunningStudio]) -> Iterator[Town]:
    head = find_free_ports([])
    flags = ["--engine", "ray", "--workers", "0", "--ray-port", str(find_free_port()), "--ray-ports", str(head)]
    studio = start_studio(None, *flags)
    with closing(open_database(studio.data_dir / "jobs.db")) as database:
        town = Town(studio=studio, database=database, start=lambda: start_studio(studio.data_dir, *flags))
        town.ports[studio.process.pid] = head
        try:
            wait("the cluster", lambda: "studio.worker join" in studio.printed.read_text("utf-8"))
            town.join("one")
            town.join("two")
            wait("two workers", lambda: town.count_ready() == 2)
            yield town
        finally:
            town.end()


@dataclass(frozen=True, kw_only=True)
class Alone:
    """The command that makes the slice's picture in one process."""

    process: subprocess.Popen[bytes]
    file: Path


@pytest.fixture(name="alone", scope="module")
def make_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    file = tmp_path_factory.mktemp("alone") / "alone.png"
    command = [find_forked_python(), "-m", "pipelines", "generate", "--model", "demo-flux2", "--seed", "5"]
    command += ["--prompt", "A red sailboat", "--num-inference-steps", "1", "--allow-cpu", "--output", str(file)]
    environment = os.environ | {"XLA_FLAGS": with_devices(COMPILE_FAST, HOSTS), "JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    yield Alone(process=process, file=file)
    process.kill()
    process.wait()


def find_followers(machine: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Returns the processes of a slice's further host, among all those of its node."""
    found = psutil.Process(machine.pid).children(recursive=True)
    return [one for one in found if "FollowerActor" in " ".join(one.cmdline())]


def find_free_ports(taken: list[Ports]) -> Ports:
    """A range of ports of which nobody has one."""
    for first in range(21_000, 32_000, PORTS):
        ports = Ports(first=first, last=first + PORTS - 1)
        if ports not in taken and all(is_free(port) for port in range(first, ports.last + 1)):
            return ports
    raise AssertionError("no range of ports is free")


def is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("", port))
        return True
    return False


def list_listening(pid: int) -> set[int]:
    """The ports at which a process and all that it has started listen."""
    family = [leader := psutil.Process(pid), *leader.children(recursive=True)]
    found: set[int] = set()
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {link.laddr.port for link in one.net_connections("tcp") if link.status == psutil.CONN_LISTEN}
    return found


def wait(what: str, look: Callable[[], Any], timeout_s: float = START_S) -> Any:
    return wait_for(what, look, timeout_s=timeout_s)


def wait_until_both_step(town: Town, ids: list[str]) -> None:
    wait("both to step", lambda: all(job["step"] > 0 for job in town.read_jobs(ids)))


def wait_until_done(town: Town, ids: list[str]) -> None:
    wait("all to be done", lambda: all(job["state"] == "done" for job in town.read_jobs(ids)), RECOVER_S)


def test_two_machines_make_two_jobs_at_once_and_send_the_pictures(town: Town) -> None:
    ids = town.submit_two()
    wait_until_both_step(town, ids)
    assert {town.find_worker(one).id for one in ids} == {"one", "two"}
    wait_until_done(town, ids)
    for job in town.read_jobs(ids):
        picture = town.studio.client.get(job["outputs"][0]["url"])
        assert picture.headers["content-type"] == "image/png"
    assert town.read_attempts(ids) == [1, 1]


def test_machines_listen_at_the_ports_that_they_were_told_and_at_no_other(town: Town) -> None:
    head = json.loads((town.studio.data_dir / "ray.json").read_text("utf-8"))
    own = {int(head["address"].rpartition(":")[2]), int(town.studio.client.base_url.port or 0)}
    at_home = list_listening(head["pid"]) | list_listening(town.studio.process.pid)
    assert own < at_home
    assert {port for port in at_home - own if port not in town.ports[town.studio.process.pid]} == set()
    for machine in town.machines:
        assert len(found := list_listening(machine.pid)) > 2
        assert {port for port in found if port not in town.ports[machine.pid]} == set()


def test_a_drained_worker_ends_what_it_runs_and_gets_no_more(town: Town) -> None:
    running = town.submit_two(steps=FEW)
    wait_until_both_step(town, running)
    town.drain("one")
    more = town.submit_two(steps=1)
    wait_until_done(town, [*running, *more])
    assert town.read_attempts([*running, *more]) == [1] * 4
    assert {town.find_worker(one).id for one in running} == {"one", "two"}
    assert {town.find_worker(one).id for one in more} == {"two"}
    town.drain("one", action="undrain")


def test_a_killed_app_is_all_that_ends_and_its_next_start_tells_what_the_workers_made(town: Town) -> None:
    ids = town.submit_two()
    wait_until_both_step(town, ids)
    dispatcher = int((town.studio.data_dir / "worker-dispatcher.lock").read_text("utf-8"))
    pids = [town.find_worker(one).pid for one in ids]
    town.studio.kill()
    wait("the dispatcher to end with the app", lambda: not is_alive(dispatcher), RECOVER_S)
    head = town.ports.pop(town.studio.process.pid)
    town.studio = town.start()
    town.ports[town.studio.process.pid] = head
    wait_until_done(town, ids)
    assert town.read_attempts(ids) == [1, 1]
    assert [town.find_worker(one).pid for one in ids] == pids


def test_another_studio_at_the_same_port_is_told_so_and_with_the_token_shares_the_cluster_without_its_workers(
    town: Town, start_studio: Callable[..., RunningStudio], tmp_path: Path
) -> None:
    address = json.loads((town.studio.data_dir / "ray.json").read_text("utf-8"))["address"]
    flags = ["--engine", "ray", "--workers", "0"]
    refused = start_studio(tmp_path / "refused", *flags, "--ray-port", address.rpartition(":")[2])
    (card,) = wait("the reason", lambda: refused.read("health")["problems"], RECOVER_S)
    assert "Another program listens" in card["detail"]
    refused.stop()

    guest_dir = tmp_path / "guest"
    guest_dir.mkdir()
    write_token(guest_dir / "ray.token", (town.studio.data_dir / "ray.token").read_text("utf-8"))
    guest = start_studio(guest_dir, *flags, "--ray-address", address)
    wait("its dispatcher", lambda: len(list_listening(guest.process.pid)) > 1, RECOVER_S)
    waiting, ids = guest.submit(steps=1), town.submit_two(steps=1)
    wait_until_done(town, ids)
    assert town.read_attempts(ids) == [1, 1]
    assert guest.read(f"jobs/{waiting}")["state"] == "queued"
    assert guest.read("health")["problems"] == []
    guest.stop()
    assert town.count_ready() == 2


def test_a_killed_worker_loses_one_attempt_and_its_machine_works_again(town: Town) -> None:
    ids = town.submit_two()
    wait_until_both_step(town, ids)
    pid = town.find_worker(ids[0]).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until_done(town, ids)
    assert town.read_attempts(ids) == [2, 1]
    wait("both workers again", lambda: town.count_ready() == 2)


def test_a_training_whose_worker_is_killed_goes_on_elsewhere_from_the_last_state_it_sent(
    town: Town, encode_picture: Callable[..., bytes]
) -> None:
    client = town.studio.client
    answer = client.post("/api/v1/uploads", files={"file": encode_picture("red")})
    asked = {"model": "demo-sdxl", "name": "zorb", "trigger": "zorb", "steps": 600}
    asked["pictures"] = [{"id": answer.raise_for_status().json()["id"]}]
    job_id = client.post("/api/v1/trainings", json=asked).raise_for_status().json()["id"]
    wait("a saved step", lambda: town.studio.read(f"trainings/{job_id}")["saved_step"] > 20)
    pid = town.find_worker(job_id).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until_done(town, [job_id])
    training = town.studio.read(f"trainings/{job_id}")
    assert training["loras"] == ["zorb"]
    assert [point["step"] for point in training["points"]][-1] == 600
    assert (town.studio.data_dir / "loras" / "zorb.safetensors").is_file()
    wait("both workers again", lambda: town.count_ready() == 2)


@pytest.mark.usefixtures("alone")  # has time for its picture while the frozen one's lease runs out
def test_a_frozen_worker_and_a_killed_node_cost_one_attempt_each(town: Town) -> None:
    ids = town.submit_two()
    wait_until_both_step(town, ids)
    rows = sorted((town.find_worker(one) for one in ids), key=lambda row: row.id)
    assert [row.id for row in rows] == ["one", "two"] and rows[0].pid
    os.kill(rows[0].pid, signal.SIGSTOP)
    for child in psutil.Process(town.machines[1].pid).children(recursive=True):
        if child.name() == "raylet":
            child.kill()
    wait_until_done(town, ids)
    assert town.read_attempts(ids) == [2, 2]
    wait("both workers again", lambda: town.count_ready() == 2)


def test_a_machine_with_another_token_is_told_so(town: Town, tmp_path: Path) -> None:
    address = json.loads((town.studio.data_dir / "ray.json").read_text("utf-8"))["address"]
    write_token(tmp_path / "ray.token", "0" * 64)
    command = [sys.executable, "-m", "studio.worker", "join", address, "--fake", "--data-dir", str(tmp_path)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=START_S, check=False)
    assert (said.returncode, "refuses this token" in said.stdout) == (2, True), said.stdout


def test_jobs_go_on_without_the_dispatcher_and_the_next_one_tells_all_of_it(town: Town) -> None:
    ids = town.submit_two()
    wait_until_both_step(town, ids)
    os.kill(int((town.studio.data_dir / "worker-dispatcher.lock").read_text("utf-8")), signal.SIGKILL)
    wait_until_done(town, ids)
    assert town.read_attempts(ids) == [1, 1]


def test_a_slice_of_two_hosts_is_one_worker_whose_lost_host_costs_one_attempt(town: Town, alone: Alone) -> None:
    one = {"XLA_FLAGS": with_devices(COMPILE_FAST, 1), "JAX_PLATFORMS": "cpu"}
    for host in range(HOSTS):
        part = ["--slice", "big", "--processes", str(HOSTS), "--process", str(host)]
        town.join(f"host-{host}", "--allow-cpu", "--model", "demo-flux2", *part, **one)
    town.drain("one", "two")
    picture: dict[str, Any] = {"model": "demo-flux2", "prompt": "A red sailboat", "seed": 5, "steps": 1}
    first = town.studio.submit(**picture)
    wait("the slice", lambda: town.count_ready() == 3, SLICE_S)
    assert workers.read_worker(town.database, "big").hosts == HOSTS
    wait("the first picture", lambda: town.studio.read(f"jobs/{first}")["state"] == "done")
    assert town.find_worker(first).id == "big"  # the others are drained
    made = town.studio.client.get(town.studio.read(f"jobs/{first}")["outputs"][0]["url"]).content

    second = town.studio.submit(**{**picture, "steps": 100})
    wait("a step", lambda: town.studio.read(f"jobs/{second}")["step"] > 0)
    leader, (follower,) = town.find_worker(second).pid, find_followers(town.machines[-1])
    assert leader is not None
    follower.kill()
    wait("the other host to end", lambda: not psutil.pid_exists(leader), GONE_S)
    wait("the second attempt", lambda: town.read_attempts([second]) == [2], RECOVER_S)
    assert town.find_worker(second).id == "big"
    town.studio.client.delete(f"/api/v1/jobs/{second}").raise_for_status()
    town.leave(2, 3)  # before it has loaded the model once more
    wait("its end", lambda: town.studio.read(f"jobs/{second}")["state"] == "cancelled")
    town.drain("one", "two", action="undrain")

    assert alone.process.wait(START_S) == 0
    expected, together = (np.asarray(Image.open(file).convert("RGB"), int) for file in (alone.file, io.BytesIO(made)))
    assert np.abs(expected - together).max() <= 1


def test_nothing_was_made_twice(town: Town) -> None:
    done = [row["job_id"] for row in town.database.read("SELECT job_id FROM events WHERE kind = 'job.done'")]
    rows = town.database.read("SELECT job_id, file FROM outputs")
    made = sorted((town.studio.data_dir / "outputs").glob("*/*.png"))
    assert Counter(done) == Counter(row["job_id"] for row in rows) == Counter(dict.fromkeys(done, 1))
    assert {Path(row["file"]).name for row in rows} == {file.name for file in made}
    assert len(made) == len(rows)
