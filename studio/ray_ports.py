"""Which TCP ports a machine of the cluster listens on, where a firewall wants to know: `--ray-ports FIRST-LAST`.

The first few are those of Ray's own processes, the last few those at which the hosts of a slice meet, and all between
are for the processes of workers and of the dispatcher. Without the setting the system chooses, anew at each start.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

OWN = (
    "--node-manager-port",
    "--object-manager-port",
    "--dashboard-agent-grpc-port",
    "--dashboard-agent-listen-port",
    "--runtime-env-agent-port",
    "--metrics-export-port",
)
"""Ray's flags of a node's own ports."""
MEETINGS = 16
LEAST = 64
"""A range is at least so long: each process of a worker has a port, and one that ends keeps its own for a while."""
LABEL = "lumesh-ports"
"""The label of a node that says its range."""
ANY_MEETING = range(20000, 30000)


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The ports of a machine, from `first` to `last`."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    @classmethod
    def parse(cls, text: str) -> "Ports":
        """Reads FIRST-LAST; raises ValueError, with what is wrong."""
        first, _, last = text.partition("-")
        if not first.isdecimal() or not last.isdecimal():
            raise ValueError(f"{text!r} is no range of ports, such as 20000-20199")
        if not 1024 <= int(first) <= int(last) < 65536:
            raise ValueError(f"{text!r} is not between 1024 and 65535")
        if int(last) - int(first) + 1 < LEAST:
            raise ValueError(f"{text!r} is too short: Ray and the workers need at least {LEAST} ports")
        return cls(first=int(first), last=int(last))

    def list_flags(self) -> list[str]:
        """Returns the flags of `ray start`."""
        flags = [text for number, flag in enumerate(OWN) for text in (flag, str(self.first + number))]
        workers = (self.first + len(OWN), self.last - MEETINGS)
        return [*flags, "--min-worker-port", str(workers[0]), "--max-worker-port", str(workers[1])]


def choose_meeting(labels: Mapping[str, str]) -> int:
    """Returns a port at which the hosts of a slice meet on its first one, whose node has these labels."""
    if LABEL not in labels:
        return random.choice(ANY_MEETING)
    ports = Ports.parse(labels[LABEL])
    return random.choice(range(ports.last - MEETINGS + 1, ports.last + 1))
