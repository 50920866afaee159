"""Offloading: components that do not fit on the devices together take turns; the others wait in the host's memory.

The fewest bytes that make room leave, so that a small component stays; among equals the least recently used one (LRU).
A component comes back over the bus, not from the disk, and programs stay as they are: only the place of the arrays
that they are called with changes.

Weights do not change while a model works, so the host keeps its copies, and leaving again costs nothing. Copies take as
much of the host's memory as all components that ever leave, up to half of it; past that a component that comes back
gives up its copy, and leaving is a transfer again. LoRAs do change weights (lora_state.py): whoever writes some drops
their copies first.
Not here: what a plan for other machines advises (plan/placement.py), which counts with the same OffloadPolicy.
"""

import itertools
import logging
import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, Sharding

from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.memory import HOST, count_code_bytes, count_working_bytes, find_limit

USABLE = 0.95  # of a device's memory; the rest is for what nobody counts: latents, embeddings, previews
HOST_SHARE = 0.5  # of the host's memory, that copies of weights may take; the rest is for loading and everything else

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Parked:
    """A weight in the host's memory, with the shape, dtype and sharding that it has on the devices."""

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


class OffloadPolicy:
    """Decides from bytes alone which components are on a device; an Offloader moves arrays by it.

    `measure` gives a component's bytes, and is asked once for each.
    """

    def __init__(
        self,
        *,
        limit_bytes: int,
        measure: Callable[[str], int],
        on_leave: Callable[[str], None],
        on_return: Callable[[str], None],
    ) -> None:
        self._limit_bytes = limit_bytes
        self._measure = measure
        self._on_leave = on_leave
        self._on_return = on_return
        self._order: dict[str, None] = {}  # the one used last comes last
        self._sizes: dict[str, int] = {}
        self._away: set[str] = set()

    def add(self, name: str) -> None:
        """Notes a component that is on the device; a second call for it changes nothing."""
        self._order.setdefault(name)

    def use(self, *names: str, beside_bytes: int = 0) -> None:
        """Brings these components onto the device, with `beside_bytes` to spare beside them."""
        for name in names:
            self._order[name] = self._order.pop(name)
        self.make_room(self.count(*names) + beside_bytes, besides=names)
        for name in [one for one in names if one in self._away]:
            self._on_return(name)
            self._away.discard(name)

    def make_room(self, wanted_bytes: int, *, besides: Collection[str]) -> None:
        """Sends components away, but for `besides`, until `wanted_bytes` are free."""
        staying = [name for name in self._order if name not in besides and name not in self._away]
        lacking_bytes = wanted_bytes + self.count(*staying) - self._limit_bytes
        if lacking_bytes <= 0:
            return
        for name in self._choose(staying, lacking_bytes):
            self._away.add(name)  # before: whatever ends it in the middle, all of it comes back
            self._on_leave(name)

    def count_present(self) -> int:
        """Bytes of all components that are on the device."""
        return self.count(*(self._order.keys() - self._away))

    def count(self, *names: str) -> int:
        """Bytes of these components."""
        for name in names:
            if name not in self._sizes:
                self._sizes[name] = self._measure(name)
        return sum(self._sizes[name] for name in names)

    def _choose(self, staying: list[str], lacking_bytes: int) -> tuple[str, ...]:
        """The components with the fewest bytes that suffice, or all. A model has six at most: all groups are tried."""
        groups = (group for size in range(len(staying)) for group in itertools.combinations(staying, size + 1))
        enough = (group for group in groups if self.count(*group) >= lacking_bytes)
        return min(enough, key=lambda group: self.count(*group), default=(*staying,))


class Offloader:
    """Moves the components of one model between devices and host. With no limit all of them stay on the devices.

    `host_bytes` is how much the host's copies may take before a component that comes back gives up its own.
    """

    def __init__(self, *, limit_bytes: int | None, host_bytes: float = math.inf) -> None:
        self.limit_bytes = limit_bytes
        self._host_bytes = host_bytes
        self._components: dict[str, dict[str, Any]] = {}
        self._copies: dict[str, dict[str, Parked]] = {}
        self._programs: dict[int, tuple[int, int]] = {}
        self._turns = OffloadPolicy(
            limit_bytes=limit_bytes or 0,
            measure=lambda name: measure(self._components[name]),
            on_leave=self._park,
            on_return=self._bring_back,
        )

    @classmethod
    def of_mesh(cls, mesh: Mesh) -> "Offloader":
        """An offloader limited by the memory that each device reports; a CPU reports none."""
        limit_bytes = find_limit(mesh.local_devices)
        if mesh.is_multi_process:  # components must come and go on all hosts alike
            limit_bytes = hosts.agree("memory of a device", limit_bytes)
        host_bytes = HOST_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(limit_bytes=None if limit_bytes is None else int(USABLE * limit_bytes), host_bytes=host_bytes)

    def prepare(self, name: str, wanted: Mapping[str, Any]) -> None:
        """Makes room on the devices for weights that are about to be read."""
        if self.limit_bytes is not None:
            self._turns.make_room(measure(wanted), besides=(name,))

    def add(self, name: str, weights: dict[str, Any]) -> None:
        """Notes the dictionary that programs will be called with; the first one given for a component is kept."""
        self._components.setdefault(name, weights)
        self._turns.add(name)

    def use(self, *names: str, program: Any = None) -> None:
        """Brings these components onto the devices, together with what the compiled `program` takes beside them.

        Asked before every chunk of steps, so nothing here may go through all weights when nothing has to move.
        """
        if self.limit_bytes is not None:
            self._turns.use(*names, beside_bytes=self._measure_program(program))

    def forget_copies(self, name: str, keys: Collection[str] | None = None) -> None:
        """Drops the host's copies of weights that are about to change; their component is on the devices.

        None means all of them.
        """
        copies = self._copies.get(name, {})
        for key in [*copies] if keys is None else copies.keys() & keys:
            copies.pop(key).delete()

    def clear(self) -> None:
        """Drops every copy in the host's memory."""
        for name in self._copies:
            self.forget_copies(name)

    def _measure_program(self, program: Any) -> int:
        """Bytes of the program's working memory, and of the code of all programs that ran so far."""
        if program is None:
            return 0
        if id(program) not in self._programs:
            self._programs[id(program)] = (count_working_bytes(program), count_code_bytes(program))
        working, _ = self._programs[id(program)]
        return working + sum(code for _, code in self._programs.values())

    def _park(self, name: str) -> None:
        weights, copies = self._components[name], self._copies.setdefault(name, {})
        missing = {key: one for key, one in weights.items() if key not in copies}
        log.info(
            "%s: %.2f GB a device make room, %.2f of them go to the host's memory",
            name,
            measure(weights) / 1e9,
            measure(missing) / 1e9,
        )
        for key, array in weights.items():
            if isinstance(array, Parked) or array.is_deleted():  # a LoRA's merging that was ended in the middle
                continue
            if key not in copies:
                host = jax.device_put(array, array.sharding.with_memory_kind(HOST)).block_until_ready()
                copies[key] = Parked(host=host, sharding=array.sharding)
            weights[key] = copies[key]
            array.delete()

    def _bring_back(self, name: str) -> None:
        weights = self._components[name]
        parked = {key: one for key, one in weights.items() if isinstance(one, Parked)}
        log.info("%s: %.2f GB a device come back from the host's memory", name, measure(parked) / 1e9)
        for key, one in parked.items():
            weights[key] = jax.device_put(one.host, one.sharding)
        for key in parked:
            weights[key].block_until_ready()
        if sum(_measure_host(copies) for copies in self._copies.values()) > self._host_bytes:
            self.forget_copies(name)


def measure(weights: Mapping[str, Any]) -> int:
    """Bytes of these weights that one device holds."""
    return sum(math.prod(one.sharding.shard_shape(one.shape)) * one.dtype.itemsize for one in weights.values())


def _measure_host(copies: Mapping[str, Parked]) -> int:
    """Bytes that these copies take in the host's memory: every device has its own."""
    return sum(measure({key: one}) * len(one.sharding.addressable_devices) for key, one in copies.items())
