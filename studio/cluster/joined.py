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

NAMESPACE = "lumesh"


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A machine's `name`, the flags of its workers, and for each worker the variables that limit its devices."""

    name: str
    flags: list[str]
    devices: list[dict[str, str]]
    is_pinned: bool = False
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def write(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Joined":
        return cls(**json.loads(environment[VARIABLE]))


def name_worker(machine: str, number: int) -> str:
    """Returns the id of a machine's worker, counted from 0."""
    return machine if number == 0 else f"{machine}-{number + 1}"
