"""The machines, by Ray: a head that the studio starts, nodes that join it, and a detached actor for each worker.

The only module that imports Ray. Ray ends the process of a driver a minute after its head is lost: that is why the app
is none, and the dispatcher is restarted by it.
"""

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipelines.errors import LumeshError
from pipelines.messages import english
from pipelines.runtime.devices.hosts import Address
from studio.cluster import head_file
from studio.cluster.actor import FollowerActor, WorkerActor
from studio.cluster.gang import GangHandle
from studio.cluster.head_file import HeadProcess
from studio.cluster.joined import NOTHING_MORE, QUIET, RESOURCE, VARIABLE, Joined, SliceHost, name_worker
from studio.cluster.link import Handle, Place, WorkerGoneError, WorkerSilentError
from studio.cluster.token import give_ray
from studio.ray_ports import choose_meeting
from studio.settings import LOCAL, Settings
from studio.worker.shares import divide

ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 60.0
CONNECT_S = 1.0
CALLS_AT_ONCE = 16  # of an actor: a pull that waits, and all others beside it
PREFIX = "lumesh-worker-"

log = logging.getLogger(__name__)


class HeadError(LumeshError):
    """The cluster's head cannot be started or reached."""

    title = english("The Ray cluster cannot be used")


class Head:
    """The head process of the studio's own cluster. It outlives the dispatcher, which finds it by `ray.json`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def ensure(self) -> str:
        """Returns the address of the cluster, which is started if it does not run; raises HeadError."""
        found = head_file.read(self._settings)
        return found.address if found is not None else self._start()

    def stop(self) -> None:
        """Ends the head and with it the cluster."""
        head_file.end(self._settings)

    def _start(self) -> str:
        settings = self._settings
        host = settings.ray_host or ray.util.get_node_ip_address()
        if settings.ray_host is None and ipaddress.ip_address(host).is_global:
            raise HeadError(
                english(f"This machine's address {host} is one of the internet, where a cluster does not belong."),
                advice=english("Choose an address of a private network with --ray-host, and let nobody else reach it."),
            )
        address = f"{host}:{settings.ray_port}"
        _refuse_taken(host, settings.ray_port)
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *("--node-ip-address", host, "--port", str(settings.ray_port), "--node-name", LOCAL, "--num-cpus", "0"),
            *("--include-dashboard", "false", "--resources", json.dumps({RESOURCE: settings.workers})),
            *NOTHING_MORE,
            "--no-monitor",
            *(settings.ray_ports.list_flags() if settings.ray_ports else ()),
        ]
        with settings.dispatcher_log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **node_environment(self._describe_own(), settings.ray_token_file)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # it lives on when the dispatcher does not
            )
        head_file.write(settings, HeadProcess(pid=process.pid, address=address))
        return address

    def _describe_own(self) -> Joined:
        settings = self._settings
        devices = divide(max(1, settings.workers), os.environ)
        return Joined(name=LOCAL, flags=settings.worker_flags(), devices=devices)


def _refuse_taken(host: str, port: int) -> None:
    """Raises HeadError where something else listens: Ray would only say so in a log of its own."""
    with contextlib.suppress(OSError):
        socket.create_connection((host, port), CONNECT_S).close()
        raise HeadError(
            english(f"Another program listens at {host}:{port}, perhaps another studio's cluster."),
            advice=english("Choose another --ray-port; or --ray-address, and that studio's token, to use its cluster."),
        )


def node_environment(joined: Joined, token_file: Path) -> dict[str, str]:
    """Returns the variables of a node's processes, which its actors inherit."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {
        **joined.environment,
        **give_ray(token_file),
        **QUIET,
        "PYTHONPATH": path,
        VARIABLE: joined.write(),
        # an actor that asks for no GPU sees all of them; it is limited by its own share (worker/shares.py)
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # Ray makes its workers nicer by 15: beside any other work they would hardly start, and starve their devices
        "RAY_worker_niceness": "0",
        # Ray gives the libraries of an actor without a CPU of its own one thread: workers share the processor instead
        "OMP_NUM_THREADS": os.environ.get(
            "OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // max(1, len(joined.devices))))
        ),
        # workers are told before their node ends, by the dispatcher or by `join`: nothing to wait for then
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    }


class RayCluster:
    """The Cluster of a Ray cluster, whose driver this process is."""

    def __init__(self, address: str, *, studio: str, actor: type[WorkerActor] = WorkerActor) -> None:
        """Connects as the studio of this id; raises HeadError after START_S."""
        self._actor = actor
        self._namespace = f"lumesh-{studio}"
        self._had: set[str] = set()
        """The names of processes that this studio had: a node may still count the room of one that has just ended."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                ray.init(address=address, namespace=self._namespace, log_to_driver=False, logging_level=logging.ERROR)
            except (RayError, ConnectionError, RuntimeError, ValueError) as error:
                if time.monotonic() > deadline:
                    raise HeadError(
                        english(f"Nothing useful answers at {address}: {error}"[:500]),
                        advice=english("See the dispatcher's log."),
                    ) from error
                time.sleep(1.0)
            else:
                return

    def close(self) -> None:
        """Disconnects, before the head ends: Ray would wait for it."""
        ray.shutdown()

    async def list_places(self) -> list[Place]:
        nodes, own, free = await asyncio.to_thread(self._look_around)
        self._spots: dict[str, list[_Spot]] = {}
        slices: dict[SliceHost, _Spot] = {}
        for node in sorted(nodes, key=lambda node: node["NodeID"]):
            if not node["Alive"]:
                continue
            room = round(free.get(node["NodeID"], {}).get(RESOURCE, 0))
            machine, address = node["NodeName"], node["NodeManagerAddress"]
            if (part := SliceHost.read_labels(node["Labels"])) is not None:
                if room or _name_host(part.name, part.host) in own:
                    meeting = choose_meeting(node["Labels"])
                    slices.setdefault(part, _Spot(node=node["NodeID"], address=address, meeting=meeting))
                continue
            for number in range(round(node["Resources"].get(RESOURCE, 0))):
                worker = name_worker(machine, number)
                if worker in self._spots:  # a machine that came back before the loss of its last life was noticed
                    continue
                if (is_own := worker in own) or room:  # else another studio of this cluster has it
                    room -= not is_own
                    self._spots[worker] = [_Spot(node=node["NodeID"], address=address, number=number)]
        for name, count in {(part.name, part.hosts) for part in slices}:
            found = [slices.get(SliceHost(name=name, hosts=count, host=host)) for host in range(count)]
            if (spots := [spot for spot in found if spot is not None]) == found:  # all of it is there
                self._spots[name] = spots
        addresses = {worker: spots[0].address for worker, spots in self._spots.items()}
        return [Place(worker=worker, node=address) for worker, address in addresses.items()]

    def _look_around(self) -> tuple[list[dict[str, Any]], set[str], dict[str, dict[str, float]]]:
        """Returns the nodes, the names of this studio's processes, and what each node has left."""
        self._had |= {name.removeprefix(PREFIX) for name in ray.util.list_named_actors()}
        return ray.nodes(), self._had, available_resources_per_node()

    async def find(self, place: Place) -> Handle:
        return await asyncio.to_thread(self._find, place.worker)

    def _find(self, worker: str) -> Handle:
        spots = self._spots[worker]
        if len(spots) == 1:
            return self._look(worker) or self._start(worker, spots[0])
        names = [_name_host(worker, host) for host in range(len(spots))]
        handles = [handle for name in names if (handle := self._look(name))]
        if not handles:
            meeting = f"{spots[0].address}:{spots[0].meeting}"
            for host, spot in enumerate(spots):
                address = Address(coordinator=meeting, processes=len(spots), process=host)
                handles.append(self._start(names[host], spot, address))
        elif len(handles) < len(spots):
            for handle in handles:  # a host that was lost cannot come back into what is left: all begin anew
                handle.kill()
            raise WorkerSilentError("what is left of the slice ends first")
        return GangHandle(handles)

    def _look(self, name: str) -> "RayHandle | None":
        try:
            return RayHandle(ray.get_actor(f"{PREFIX}{name}", namespace=self._namespace))
        except ValueError:
            return None

    def _start(self, name: str, spot: "_Spot", address: Address | None = None) -> "RayHandle":
        kind = FollowerActor if address is not None and address.process else self._actor
        options = {
            "name": f"{PREFIX}{name}",
            "namespace": self._namespace,
            "lifetime": "detached",
            "num_cpus": 0,
            "resources": {RESOURCE: 1},
            "max_restarts": 0,
            "max_concurrency": CALLS_AT_ONCE,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(spot.node, soft=False),
        }
        more = () if address is None else (address,)
        try:
            actor = ray.remote(kind).options(**options).remote(name.partition("/")[0], spot.number, *more)
        except (RayError, ValueError) as error:
            raise WorkerSilentError(str(error)) from error
        return RayHandle(actor)


@dataclass(frozen=True, kw_only=True)
class _Spot:
    """A node's room for a process: the node's id, its address, and which of its shares of devices.

    On the first host of a slice the others come to the port `meeting`, another one at each start.
    """

    node: str
    address: str
    number: int = 0
    meeting: int = 0


def _name_host(worker: str, host: int) -> str:
    return f"{worker}/{host}" if host else worker


class RayHandle:
    """The Handle of an actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def call(self, method: str, *arguments: Any) -> Any:
        try:
            return await getattr(self._actor, method).remote(*arguments)
        except (ActorUnavailableError, GetTimeoutError) as error:
            raise WorkerSilentError(str(error)[:300]) from error
        except RayActorError as error:
            raise WorkerGoneError(str(error)[:300]) from error

    def kill(self) -> None:
        try:
            ray.kill(self._actor)
        except (RayError, ValueError):  # it is gone already
            log.info("nothing to end")


def read_versions(address: str) -> Mapping[str, str]:
    """Returns the `ray_version` and `python_version` of a cluster; raises HeadError, for a wrong token too."""
    from ray._common.usage.usage_lib import get_cluster_metadata
    from ray._raylet import GcsClient  # pyrefly: ignore[missing-module-attribute] - a compiled module

    try:
        return get_cluster_metadata(GcsClient(address=address))
    except RayError as error:
        if "Token" in str(error):
            raise HeadError(
                english(f"{address} refuses this token."),
                advice=english("`python app.py workers token` on the studio's machine prints the right one."),
            ) from error
        raise HeadError(english(f"{address} does not answer as a Ray cluster: {error}"[:400])) from error
