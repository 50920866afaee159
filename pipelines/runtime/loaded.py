"""What every loaded model does alike: hold weights and compiled programs, say what is warm, let go of it all."""

import gc
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.catalog import Model
from pipelines.runtime.compiled import CacheIndex, Program, Programs, counter
from pipelines.stages import OnProgress, Progress

Weights = dict[str, dict[str, jax.Array]]
"""Component -> parameter name -> array on the mesh; the dictionary of the model's Parts itself."""


class LoadedModel:
    """The part of `stages.Family` that does not depend on the family."""

    def __init__(self, model: Model, weights: Weights, *, mesh: Mesh, cache_dir: Path, load_s: float) -> None:
        self.model = model
        self.load_s = load_s
        self.host_ms_per_chunk = 0.0
        self._weights = weights
        self._programs = Programs()
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self._numbers: dict[int, jax.Array] = {}
        device = mesh.devices.flat[0]
        context = f"{model.id}@{model.revision} {dict(mesh.shape)} {device.device_kind} {jax.__version__}"
        self._index = CacheIndex(cache_dir, context=context)

    def compile_count(self) -> int:
        return counter.compiled

    def unload(self) -> None:
        self._programs.clear()
        self._numbers.clear()
        for component in self._weights.values():
            for array in component.values():
                array.delete()
        self._weights.clear()
        gc.collect()

    def _warm(
        self, programs: Sequence[Program], *, name: tuple[Any, ...], title: str, on_progress: OnProgress
    ) -> float:
        """Compiles what is missing, remembers under `name` that the cache has it; returns the seconds it took."""
        if all(self._programs.has(*program.key) for program in programs):
            return 0.0
        known_s = self._index.find_seconds(*name)
        detail = title if known_s is None else f"{title} from the cache"
        started = time.perf_counter()
        report = lambda done: on_progress(Progress(phase="compiling", done=done, total=len(programs), detail=detail))  # noqa: E731
        self._programs.compile_all(programs, on_wait=report)
        seconds = time.perf_counter() - started
        self._index.remember(*name, seconds=seconds)
        return seconds

    def _state_of(self, keys: Sequence[tuple[Any, ...]], *, name: tuple[Any, ...]) -> str:
        """`warm`, `disk` or `cold`."""
        if all(self._programs.has(*key) for key in keys):
            return "warm"
        return "cold" if self._index.find_seconds(*name) is None else "disk"

    def _put(self, value: Any) -> jax.Array:
        """On every device alike."""
        return jax.device_put(value, self._replicated)

    def _number(self, value: int) -> jax.Array:
        """An int32 on the devices, put there once: step numbers come back with every chunk."""
        if value not in self._numbers:
            self._numbers[value] = self._put(np.int32(value))
        return self._numbers[value]
