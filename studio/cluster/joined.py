"""How a machine joins: what `join` tells the actors that will be started on it, through the environment.

Ray starts an actor's process with the environment of the machine's raylet, so a machine's own settings never pass
through the studio.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

VARIABLE = "LUMESH_JOINED"
RESOURCE = "lumesh"
"""The Ray resource that says how many workers a machine has room for."""

NOTHING_MORE = ("--disable-usage-stats", "--include-log-monitor", "false")
"""Flags of `ray start` without what nobody here asks for: logs are files of each machine."""

QUIET = {"RAY_task_events_report_interval_ms": "0"}
"""Variables of all of Ray's processes: no record of each call, which every process would send to the head."""

SLICE_LABELS = ("lumesh-slice", "lumesh-hosts", "lumesh-host")
"""The labels of a node that is a host of a slice: the slice's name, how many hosts it has, and which one this is."""


@dataclass(frozen=True, kw_only=True)
class SliceHost:
    """A host of a slice, which is one worker: the slice's name, its number of hosts, and this one's, from 0 on."""

    name: str
    hosts: int
    host: int

    def write_labels(self) -> str:
        """Returns Ray's labels of the node."""
        return ",".join(f"{label}={value}" for label, value in zip(SLICE_LABELS, asdict(self).values(), strict=True))

    @classmethod
    def read_labels(cls, labels: Mapping[str, str]) -> "SliceHost | None":
        """Undoes write_labels; None for a machine that is a worker by itself."""
        if SLICE_LABELS[0] not in labels:
            return None
        name, hosts, host = (labels[label] for label in SLICE_LABELS)
        return cls(name=name, hosts=int(hosts), host=int(host))


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A machine's `name`, the flags of its workers, and for each worker the variables that limit its devices."""

    name: str
    flags: list[str]
    devices: list[dict[str, str]]
    is_pinned: bool = False
    is_slice: bool = False
    """Whether this machine is a host of a slice, and no worker by itself."""
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def write(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Joined":
        return cls(**json.loads(environment[VARIABLE]))


def name_worker(machine: str, number: int) -> str:
    """Returns the id of a machine's worker, counted from 0."""
    return machine if number == 0 else f"{machine}-{number + 1}"
