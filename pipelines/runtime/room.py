"""Components that take turns on the devices where not all of them have room: the others wait in the host's memory.

Whatever was used longest ago leaves first. A text encoder comes back over the bus, not from the disk, and programs stay
as they are: what changes is where the arrays lie that they are called with.
Not here: what a plan for other machines advises (plan/placement.py).
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, Sharding

from pipelines.runtime.memory import HOST, find_limit

USABLE = 0.95  # of a device's memory; the rest is for what nobody counts: latents, embeddings, previews

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Parked:
    """A weight in the host's memory. Of what it is on the devices it tells shape, dtype and sharding."""

    host: jax.Array
    sharding: Sharding

    @property
    def shape(self) -> tuple[int, ...]:
        return self.host.shape

    @property
    def dtype(self) -> Any:
        return self.host.dtype

    def delete(self) -> None:
        self.host.delete()


class Room:
    """Which components of one model are on its devices. With no limit, all of them, always."""

    def __init__(self, *, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self._components: dict[str, dict[str, Any]] = {}  # the one used last comes last
        self._sizes: dict[str, int] = {}
        self._parked: set[str] = set()
        self._programs: dict[int, tuple[int, int]] = {}

    @classmethod
    def of_mesh(cls, mesh: Mesh) -> "Room":
        """Of the memory that each device says it has; a CPU says nothing."""
        limit_bytes = find_limit(mesh.local_devices)
        return cls(limit_bytes=None if limit_bytes is None else int(USABLE * limit_bytes))

    def prepare(self, name: str, wanted: Mapping[str, Any]) -> None:
        """Before these weights are read: whatever they leave no room for leaves the devices."""
        if self.limit_bytes is not None:
            self._make_room(measure(wanted), besides={name})

    def add(self, name: str, weights: dict[str, Any]) -> None:
        """The dictionary that programs will be called with; of several for one component, the first."""
        self._components.setdefault(name, weights)

    def use(self, *names: str, program: Any = None) -> None:
        """Brings these components onto the devices, together with what the compiled `program` takes beside them.

        Asked before every chunk of steps, so nothing here may go through all weights when nothing has to move.
        """
        if self.limit_bytes is None:
            return
        for name in names:
            self._components[name] = self._components.pop(name)
        own = sum(map(self._measure, names))
        self._make_room(own + self._measure_program(program), besides={*names})
        for name in self._parked.intersection(names):
            _bring_back(name, self._components[name])
            self._parked.discard(name)

    def _make_room(self, wanted: int, *, besides: set[str]) -> None:
        assert self.limit_bytes is not None
        staying = [name for name in self._components if name not in besides | self._parked]
        left = self.limit_bytes - wanted - sum(map(self._measure, staying))
        for name in staying:
            if left >= 0:
                return
            self._parked.add(name)  # before: whatever ends it in the middle, all of it comes back
            _park(name, self._components[name])
            left += self._measure(name)

    def _measure(self, name: str) -> int:
        if name not in self._sizes:
            self._sizes[name] = measure(self._components[name])
        return self._sizes[name]

    def _measure_program(self, program: Any) -> int:
        """Its working memory, and the code of all that ran so far."""
        if program is None:
            return 0
        if id(program) not in self._programs:
            try:
                found = program.memory_analysis()
            except (NotImplementedError, jax.errors.JaxRuntimeError):  # of some that were not compiled here
                found = None
            working = found.temp_size_in_bytes + found.output_size_in_bytes if found else 0
            self._programs[id(program)] = (working, found.generated_code_size_in_bytes if found else 0)
        working, _ = self._programs[id(program)]
        return working + sum(code for _, code in self._programs.values())


def measure(weights: Mapping[str, Any]) -> int:
    """Bytes that one device holds of them."""
    return sum(math.prod(one.sharding.shard_shape(one.shape)) * one.dtype.itemsize for one in weights.values())


def _park(name: str, weights: dict[str, Any]) -> None:
    log.info("%s: %.2f GB a device leave for the host's memory", name, measure(weights) / 1e9)
    for key, array in weights.items():
        if isinstance(array, Parked):
            continue
        host = jax.device_put(array, array.sharding.with_memory_kind(HOST)).block_until_ready()
        weights[key] = Parked(host=host, sharding=array.sharding)
        array.delete()


def _bring_back(name: str, weights: dict[str, Any]) -> None:
    parked = {key: one for key, one in weights.items() if isinstance(one, Parked)}
    if not parked:
        return
    log.info("%s: %.2f GB a device come back from the host's memory", name, measure(parked) / 1e9)
    for key, one in parked.items():
        weights[key] = jax.device_put(one.host, one.sharding)
    for key, one in parked.items():
        weights[key].block_until_ready()
        one.delete()
