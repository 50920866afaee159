"""`python -m studio.worker join HOST:PORT`: this machine works for a studio on another one.

It checks what would go wrong later (Ray, the address, the token, versions), then keeps a Ray node of the studio's
cluster running: the studio starts the workers on it. When the cluster goes away, it tries to join again. SIGTERM tells
the workers first, which finish what they can in the notice (`--spot`), and give the rest back.
"""

import argparse
import importlib.util
import json
import os
import platform
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console

from pipelines.errors import LumeshError
from pipelines.files.whole import write_whole
from pipelines.messages import english
from pipelines.runtime.devices import pods
from studio.cluster import token
from studio.cluster.actor import DRAIN_FILE, DRAINED_PREFIX
from studio.cluster.groups import end_group
from studio.cluster.joined import NOTHING_MORE, RESOURCE, Joined, SliceHost
from studio.cluster.keeper import NoRayError
from studio.flags import read_settings
from studio.ray_ports import LABEL, Ports
from studio.worker.shares import divide

CONNECT_S = 5.0
AGAIN_S = 5.0
NOTICE_S = 25.0  # of the 30 s that a spot VM has after SIGTERM
END_S = 3.0
LEAVE_S = 3.0  # for workers that look once a second, and what they tell
POLL_S = 0.2
MAX_NAME = 63  # of a label's value
TOKEN_VARIABLE = "LUMESH_RAY_TOKEN"

EXAMPLES = """examples:
  python -m studio.worker join 10.0.0.2:6379
  python -m studio.worker join 10.0.0.2:6379 --model sdxl-base --pin     keeps this model, and makes nothing else
  python -m studio.worker join 10.0.0.2:6379 --spot                      a machine that may be taken away
  python -m studio.worker join 10.0.0.2:6379 --workers 2                 two GPUs, a worker on each
  python -m studio.worker join 10.0.0.2:6379 --slice big --processes 4 --process 0    one of four hosts, one worker
A host of a TPU pod finds these three by itself.
further flags are the studio's: --data-dir, --mesh, --prewarm, --chip-price, --ray-ports, --allow-cpu, --fake
"""

console = Console(highlight=False, soft_wrap=True)


class JoinError(LumeshError):
    """This machine cannot join."""

    title = english("This machine cannot join")


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Joins until it is told to end; returns 2, after one message that says why, when it cannot."""
    parser = argparse.ArgumentParser(
        prog="python -m studio.worker join",
        description="Lets this machine work for a studio on another one.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("address", metavar="HOST:PORT", help="as the studio prints it at its start")
    parser.add_argument("--pin", action="store_true", help="keep --model whatever waits")
    parser.add_argument("--spot", action="store_true", help="use all of a spot machine's notice to finish (25 s)")
    parser.add_argument("--name", help="this machine's name in the studio (default: its host name)")
    parser.add_argument("--slice", metavar="NAME", help="the worker that this host is a part of, with others")
    parser.add_argument("--processes", type=int, metavar="N", help="how many hosts the slice has")
    parser.add_argument("--process", type=int, metavar="I", help="which of them this is, counted from 0")
    parser.add_argument("--token-file", type=Path, help="the token (default: ray.token in the data directory)")
    found, rest = parser.parse_known_args(arguments)
    if found.pin and "--model" not in rest:
        parser.error("--pin needs the --model to keep")
    settings = read_settings(rest, environment)
    try:
        file = found.token_file or settings.ray_token_file
        if TOKEN_VARIABLE in environment:
            token.write_token(file, environment[TOKEN_VARIABLE])
        variables = token.give_ray(file)
        check(found.address, variables)
        part = find_slice(found.slice, found.processes, found.process)
        if part is not None and settings.workers > 1:
            raise JoinError(english("A host of a slice is no several workers."), advice=english("Leave out --workers."))
        name = _clean(found.name or platform.node() or "worker")
        devices = divide(settings.workers, environment)
        joined = Joined(
            name=name,
            flags=settings.worker_flags(),
            devices=devices,
            is_pinned=found.pin,
            is_slice=part is not None,
        )
        notice_s = NOTICE_S if found.spot else 0.0
        ports = settings.ray_ports
        return Node(found.address, joined, file, settings.data_dir, part=part, ports=ports, notice_s=notice_s).run()
    except LumeshError as error:
        console.print(f"{error.title}: {error}", markup=False)
        return 2


def find_slice(name: str | None, processes: int | None, process: int | None) -> SliceHost | None:
    """Returns this host's part in a slice, as given or as a TPU pod says; None for a machine that is alone.

    Raises JoinError for a part of what is needed. Without a name, a pod's is that of its first host.
    """
    if processes is None and process is None:
        pod = pods.find_pod(os.environ, pods.ask_metadata)
        if pod is not None:
            first = pod.coordinator.rpartition(":")[0]
            return SliceHost(name=_clean(name or f"slice-{first}"), hosts=pod.processes, host=pod.process)
    if name is None and processes is None and process is None:
        return None
    if name is None or processes is None or process is None or not 0 <= process < processes:
        raise JoinError(
            english("A host of a slice has --slice NAME, --processes N, and its own --process from 0 to N-1."),
            advice=english("Run the same command on every host of it, each with another --process."),
        )
    return SliceHost(name=_clean(name), hosts=processes, host=process)


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:MAX_NAME]


def check(address: str, variables: Mapping[str, str]) -> None:
    """Raises LumeshError for what would keep this machine from working for that cluster."""
    if importlib.util.find_spec("ray") is None:
        raise NoRayError(
            english("A machine that joins needs it, in the version of the studio's machine."),
            advice=english("Run: pip install -r requirements-cluster.txt"),
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise JoinError(english(f"{address!r} is no HOST:PORT."), advice=english("The studio prints it at its start."))
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError as error:
        raise JoinError(
            english(f"{address} does not answer: {error.strerror or error}."),
            advice=english("Is the studio running with --engine ray, and does the firewall let this machine through?"),
        ) from error
    os.environ.update(variables)  # before Ray is imported
    import ray

    from studio.cluster.ray_cluster import read_versions

    theirs, own = read_versions(address), {"ray_version": ray.__version__, "python_version": platform.python_version()}
    for what, title in (("python_version", "Python"), ("ray_version", "Ray")):
        if theirs[what] != own[what]:
            raise JoinError(
                english(f"The studio's machine has {title} {theirs[what]}, this one has {own[what]}."),
                advice=english("Ray wants exactly the same version on every machine: install that one."),
            )


class Node:
    """A Ray node of this machine, kept running."""

    def __init__(
        self,
        address: str,
        joined: Joined,
        token_file: Path,
        data_dir: Path,
        *,
        part: SliceHost | None = None,
        ports: Ports | None = None,
        notice_s: float,
    ) -> None:
        self._address = address
        self._joined = joined
        self._token_file = token_file
        self._drain_file = data_dir / DRAIN_FILE
        self._part = part
        self._ports = ports
        self._notice_s = notice_s
        self._is_ending = False

    def run(self) -> int:
        """Returns 0 once it was told to end."""
        from studio.cluster.ray_cluster import ROOT, node_environment

        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)
        self._drain_file.parent.mkdir(parents=True, exist_ok=True)
        self._drain_file.unlink(missing_ok=True)
        room = json.dumps({RESOURCE: len(self._joined.devices)})
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *NOTHING_MORE),
            *("--address", self._address, "--node-name", self._joined.name, "--num-cpus", "0", "--resources", room),
        ]
        labels = [self._part.write_labels()] if self._part is not None else []
        if self._ports is not None:
            command += self._ports.list_flags()
            labels.append(f"{LABEL}={self._ports}")
        if labels:
            command += ["--labels", ",".join(labels)]
        variables = node_environment(self._joined, self._token_file)
        while not self._is_ending:
            told = f"host {self._part.host} of {self._part.hosts} of the slice {self._part.name}" if self._part else ""
            console.print(f"  joins {self._address} as {told or self._joined.name}", markup=False)
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # told to end by this process, after the workers were
            )
            while process.poll() is None and not self._is_ending:
                time.sleep(POLL_S)
            if self._is_ending:
                self._leave(process)
                return 0
            console.print(f"  the cluster is gone (code {process.returncode}); tries again", markup=False)
            time.sleep(AGAIN_S * (1 + random.random()))  # two nodes of one machine that start at once fail, both
        return 0

    def _end(self, _signal: int, _frame: FrameType | None) -> None:
        self._is_ending = True

    def _leave(self, process: subprocess.Popen[bytes]) -> None:
        """Lets the workers finish what they can, then ends the node."""
        self._forget_answers()
        write_whole(self._drain_file, str(self._notice_s).encode())
        console.print("  leaves: running jobs end in time, or start again elsewhere", markup=False)
        deadline = time.monotonic() + max(LEAVE_S, self._notice_s)
        while len(self._list_answers()) < len(self._joined.devices) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        end_group(process.pid, within_s=END_S)
        process.wait()
        self._drain_file.unlink(missing_ok=True)
        self._forget_answers()

    def _list_answers(self) -> list[Path]:
        return [*self._drain_file.parent.glob(f"{DRAINED_PREFIX}*")]

    def _forget_answers(self) -> None:
        for answer in self._list_answers():
            answer.unlink(missing_ok=True)
