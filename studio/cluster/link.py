"""What the dispatcher knows of workers and machines: interfaces to them, and its own view of each worker.

Ray's implementation is in ray_cluster.py; tests have one of their own.
"""

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from studio.cluster.protocol import Claim
from studio.jobs.job import Job


class WorkerGoneError(Exception):
    """The process of a worker has ended."""


class WorkerSilentError(Exception):
    """A worker cannot be reached now."""


class Handle(Protocol):
    """A worker's process."""

    async def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of WorkerActor; raises WorkerGoneError, WorkerSilentError."""
        ...

    def kill(self) -> None:
        """Ends the process, if it can be reached."""
        ...


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a worker is: its id, and the address of its machine."""

    worker: str
    node: str


class Cluster(Protocol):
    """The machines."""

    async def list_places(self) -> list[Place]:
        """Returns where workers can be: a place for each that a machine has room for."""
        ...

    async def find(self, place: Place) -> Handle:
        """Returns the worker at a place, which is started if it is not there; raises WorkerSilentError."""
        ...


@dataclass(kw_only=True)
class Link:
    """A worker as this dispatcher knows it. `held` are the jobs that it has, or that are on their way to it."""

    place: Place
    handle: Handle
    after: int = 0
    model: str = ""
    is_ready: bool = False
    held: dict[Claim, Job] = field(default_factory=dict[Claim, Job])
    zombies: set[Claim] = field(default_factory=set[Claim])
    told_to_end: set[Claim] = field(default_factory=set[Claim])
    told_to_pause: set[Claim] = field(default_factory=set[Claim])
    answered_s: float = field(default_factory=time.monotonic)

    @property
    def id(self) -> str:
        return self.place.worker

    @property
    def is_idle(self) -> bool:
        return self.is_ready and not self.held and not self.zombies

    def let_go(self, claim: Claim) -> None:
        """Forgets a job that has ended there."""
        self.held.pop(claim, None)
        self.zombies.discard(claim)
        self.told_to_end.discard(claim)
        self.told_to_pause.discard(claim)
