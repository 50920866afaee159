"""The compiled steps of a training: one program for each size of pictures, built when the first of them comes.

Not here: what a step computes (step.py), plans without devices (planning.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.messages import english, say
from pipelines.models.catalog import Model, Shape
from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.memory import find_room
from pipelines.runtime.programs.aot_packs import Packs
from pipelines.runtime.programs.compiled import Program, Programs
from pipelines.runtime.weights.components import abstract_weights
from pipelines.training.data.cuts import Bucket
from pipelines.training.data.rows import RowSource
from pipelines.training.engine import placement
from pipelines.training.engine.loop import OnEvent
from pipelines.training.engine.objective import Objective
from pipelines.training.engine.step import (
    Metrics,
    StepPlan,
    TrainState,
    Way,
    Weights,
    build_program,
    compile_first_that_fits,
    list_ways,
    name_step,
)
from pipelines.training.engine.validation import LEVELS, average, build_validation_program
from pipelines.training.settings import TrainingSettings

PROFILED_FROM, PROFILED = 10, 5
"""The step of a run that a profile begins with, if so many follow, and how many it has at the most."""


def name_pack(model: Model) -> str:
    """Returns what a pack of a model's steps is made for: workers, which make pictures, leave it aside."""
    return f"{model.id}, training"


def choose_profiled(count: int) -> int:
    """Returns the step, from 1, with which the profile of `count` steps begins: the first ones are not like others."""
    return max(1, min(PROFILED_FROM, count - PROFILED + 1))


class Steps:
    """Runs steps and validations; `plan(objective=...)` completes what is to be compiled.

    `count` steps will be run, unless they are stopped: `close` ends a profile that is under way then.
    """

    def __init__(
        self,
        plan: Callable[..., StepPlan],
        choose_objective: Callable[[Shape], Objective],
        *,
        rows: RowSource,
        settings: TrainingSettings,
        mesh: Mesh,
        state: TrainState,
        frozen: Weights,
        on_event: OnEvent,
        count: int,
        packs: Packs | None = None,
    ) -> None:
        self._profiled_from = choose_profiled(count)
        self._is_traced = False
        self._plan = plan
        self._choose_objective = choose_objective
        self._rows = rows
        self._settings = settings
        self._state = state
        self._frozen = abstract_weights(frozen)
        self._on_event = on_event
        self._packs = packs
        self._programs = Programs() if packs is None else Programs(packs.find)
        self._ways: dict[Shape, Way] = {}
        self._called = 0
        self._sharding = placement.rows(mesh)
        self._replicated = NamedSharding(mesh, PartitionSpec())

    def make_batch(self, number: int) -> dict[str, Any]:
        """Returns a step's batch on the mesh under `rows`, with its size under `shape`."""
        rows = self._put(self._rows.make_batch(number))
        return {"shape": find_shape(self._rows.find_bucket(number)), "rows": rows}

    def prepare(self, state: TrainState, batch: Any) -> bool:
        """Compiles the step for a batch of a size that is new, and tells whether it is."""
        if batch["shape"] in self._ways:
            return False
        jax.block_until_ready(state)  # a step that runs takes memory, which the new one will have
        self._find(batch["shape"], batch["rows"])
        return True

    def __call__(self, state: TrainState, frozen: Weights, batch: Any, rate: np.float32) -> tuple[TrainState, Metrics]:
        self.prepare(state, batch)
        program = self._find(batch["shape"], batch["rows"])
        self._trace(state)
        return program(state, frozen, batch["rows"], hosts.place(rate, self._replicated))

    def validate(self, trained: Weights, frozen: Weights, held: RowSource) -> float:
        """Returns the mean loss of the pictures held back, at fixed noise."""
        results: list[tuple[np.ndarray, np.ndarray]] = []
        for number in range(held.schedule.steps_per_epoch):
            rows = self._put(held.make_batch(number))
            program = self._find_validation(find_shape(held.find_bucket(number)), trained, rows)
            for level in range(LEVELS):
                numbers = (hosts.place(np.int32(value), self._replicated) for value in (level, number))
                summed, weight = program(trained, frozen, rows, *numbers)
                results.append((hosts.fetch(summed), hosts.fetch(weight)))
        return average(results)

    def _put(self, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        return {name: jax.make_array_from_process_local_data(self._sharding, value) for name, value in batch.items()}

    def _trace(self, state: TrainState) -> None:
        """Begins a trace once the first steps are over, and ends it some steps later."""
        folder = self._settings.profile
        if folder is None:
            return
        self._called += 1
        if self._called == self._profiled_from:
            jax.profiler.start_trace(str(folder))
            self._is_traced = True
        elif self._called == self._profiled_from + PROFILED:
            jax.block_until_ready(state)
            self._end_trace()

    def _end_trace(self) -> None:
        if self._is_traced:
            jax.profiler.stop_trace()
            self._is_traced = False
            count = min(PROFILED, self._called - self._profiled_from + 1)
            text = english(f"the profile of {count} {'step' if count == 1 else 'steps'} is in {self._settings.profile}")
            self._on_event({"event": "note", "text": text})

    def close(self) -> None:
        """Ends a profile that is under way, and says if there was none."""
        self._end_trace()
        if self._settings.profile is not None and self._called < self._profiled_from:
            text = english(
                f"no profile: it begins with step {self._profiled_from} of a run, and {self._called} were run"
            )
            self._on_event({"event": "note", "text": text})

    def _find(self, shape: Shape, rows: Mapping[str, jax.Array]) -> Callable[..., Any]:
        """Returns the step for this size; of what may be computed twice, it is the least with which it fits."""
        if shape not in self._ways:
            plan = self._plan(objective=self._choose_objective(shape))
            arguments = (self._state, self._frozen, abstract_weights(rows))
            build = lambda way: build_program(  # noqa: E731
                replace(plan, **vars(way)), *arguments, key=name_step(shape, way)
            )
            ways = self._list_ways(shape, plan, batch_size=len(rows["weight"]))
            if self._packs is None or not self._packs.has(name_step(shape, ways[0])):
                self._on_event({"event": "compiling", "shape": str(shape)})
            room_bytes = find_room(self._sharding.mesh.local_devices)
            self._ways[shape] = compile_first_that_fits(
                self._programs, build, ways, on_refusal=self._tell_refusal, room_bytes=room_bytes
            )
            self._tell_pack(build(self._ways[shape]), shape)
        return self._programs.get(*name_step(shape, self._ways[shape]))

    def _tell_pack(self, program: Program, shape: Shape) -> None:
        """Tells whether the step came from a pack, and why not where there are any."""
        found = "" if self._packs is None else self._packs.describe([program])
        if self._packs is None or not found:
            return
        text = say("The step for {shape} was compiled before: {found}", shape=shape, found=found)
        if not self._packs.has_loaded([program]):
            text = say("The step for {shape} is compiled here: {reasons}", shape=shape, reasons=found)
        self._on_event({"event": "note", "text": text})

    def _list_ways(self, shape: Shape, plan: StepPlan, *, batch_size: int) -> Sequence[Way]:
        """Lists what to try, first what a pack has: that fits, and ways before it would take minutes to fail."""
        asked = self._settings
        ways = list_ways(asked.remat, plan, batch_size=batch_size, is_strict=asked.strict)
        return put_packed_first(ways, shape, self._packs)

    def _tell_refusal(self, way: Way, following: Way | None) -> None:
        """Tells that a step did not fit, and what is tried next."""
        self._on_event({"event": "too_large", **vars(way), "next": vars(following) if following else None})

    def _find_validation(self, shape: Shape, trained: Weights, rows: Mapping[str, jax.Array]) -> Callable[..., Any]:
        key = ("validate", shape)
        if not self._programs.has(*key):
            plan = self._plan(objective=self._choose_objective(shape))
            arguments = (abstract_weights(trained), self._frozen, abstract_weights(rows))
            self._programs.compile_all([build_validation_program(plan, *arguments, key=key)])
        return self._programs.get(*key)


def put_packed_first(ways: Sequence[Way], shape: Shape, packs: Packs | None) -> list[Way]:
    """Returns the ways in the order in which they are tried: those of which every host has a pack come first.

    Packs lie on each host, and hosts that took steps of different ways would wait for each other for ever.
    """
    own = [packs is not None and packs.has(name_step(shape, way)) for way in ways]
    found = hosts.collect(f"packs for {shape}: {' '.join(f'{way.remat} {way.accumulate}' for way in ways)}", own)
    is_packed = {way: all(has) for way, has in zip(ways, zip(*found, strict=True), strict=True)}
    return sorted(ways, key=lambda way: not is_packed[way])


def find_shape(bucket: Bucket) -> Shape:
    """Returns a bucket's size as models know sizes."""
    return Shape(width=bucket.width, height=bucket.height, frames=bucket.frames)
