"""Where hosts that work together meet: as somebody says, or as a TPU pod says of itself.

Not here: what they do there (hosts.py). Importable without JAX.
"""

import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipelines.errors import RecipeError
from pipelines.messages import english
from pipelines.runtime.devices import platform

PORT = 8476
"""The coordinator's port on a pod's first host."""
METADATA = "http://metadata.google.internal/computeMetadata/v1/instance/attributes/"
METADATA_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Address:
    """One of `processes` hosts, which find each other at the `coordinator` (host:port) on the first of them."""

    coordinator: str
    processes: int
    process: int


def find_address(coordinator: str | None, processes: int | None, process: int | None) -> Address | None:
    """Returns what is given, else what a TPU pod says of itself; None for a single host. Raises RecipeError."""
    given = {"coordinator": coordinator, "processes": processes, "process": process}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return find_pod(os.environ, ask_metadata)
    if missing:
        raise RecipeError(
            {name: english("several hosts need --coordinator, --processes and --process") for name in missing}
        )
    assert coordinator is not None and processes is not None and process is not None
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise RecipeError({"coordinator": english(f"{coordinator} is no HOST:PORT, such as 10.0.0.2:{PORT}")})
    if not 0 <= process < processes:
        raise RecipeError({"process": english(f"{process} is none of {processes} hosts, which count from 0")})
    return None if processes == 1 else Address(coordinator=coordinator, processes=processes, process=process)


def find_pod(environment: Mapping[str, str], ask: Callable[[str], str | None]) -> Address | None:
    """Returns this host's place in a TPU pod of several, as GKE's variables or Compute Engine's metadata say.

    `ask` reads an attribute of the metadata. None on any other machine, and where JAX is told to use less than the pod.
    """
    if not platform.list_tpu_files() and "TPU_WORKER_HOSTNAMES" not in environment:
        return None
    is_bounded = any(name in environment for name in ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES", "TPU_PROCESS_BOUNDS"))
    if is_bounded or "tpu" not in environment.get("JAX_PLATFORMS", "tpu"):
        return None
    if hostnames := environment.get("TPU_WORKER_HOSTNAMES"):
        hosts, process = hostnames.split(","), environment.get("TPU_WORKER_ID", "0")
    elif "TPU_SKIP_MDS_QUERY" in environment:
        return None
    else:
        # Each is a host name or, in an older format, `name:number:address`.
        hosts = [one.split(":")[-1] for one in (ask("worker-network-endpoints") or "").split(",")]
        process = (ask("agent-worker-number") or "0") if len(hosts) > 1 else "0"
    if len(hosts) < 2:
        return None
    return Address(coordinator=f"{hosts[0]}:{PORT}", processes=len(hosts), process=int(process))


def ask_metadata(name: str) -> str | None:
    """Returns an attribute of this virtual machine, None where there is none."""
    request = urllib.request.Request(METADATA + name, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=METADATA_S) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, OSError):
        return None
