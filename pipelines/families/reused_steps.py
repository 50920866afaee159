"""Steps that a step cache reuses: the arrays and programs that a cached run has beside those of a plain one.

Which steps they are is the recipe's (pipelines/recipes/step_cache.py), what reusing means the denoiser's
(runtime/sampling/reuse.py).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pipelines.families.layout import Layout
from pipelines.recipes.cache_kinds import TAYLOR
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.sampling.loop import Cache
from pipelines.runtime.sampling.schedules import MAX_STEPS
from pipelines.runtime.sampling.solver import State
from pipelines.runtime.weights.components import abstract_input


def describe_reuse(mesh: Mesh, layout: Layout) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Describes the arguments that a denoise program takes after its own: `residual` and `reuse`, or nothing."""
    if layout.kept is None:
        return ()
    if layout.cache_kind == TAYLOR:
        return layout.kept, abstract_input(mesh, (MAX_STEPS, 2), jnp.float32)
    return layout.kept, abstract_input(mesh, (MAX_STEPS,), jnp.bool_)


def find_cache(layout: Layout) -> Cache | None:
    """Returns what a denoise program is told of its step cache; None for a run without one."""
    return None if layout.kept is None else Cache(layout.cache_kind, layout.kept.sharding)


def place_results(layout: Layout, state: State) -> Any:
    """Returns the shardings of what a denoise program answers, of which `state` has the state's."""
    return state if layout.kept is None else (state, layout.kept.sharding)


def list_residual_programs(layout: Layout) -> Sequence[Program]:
    """Returns the program that makes the residual before the first step, which nobody reads; or nothing."""
    kept = layout.kept
    if kept is None:
        return ()
    empty = lambda: jnp.zeros(kept.shape, kept.dtype)  # noqa: E731
    return (Program(key=layout.residual_key, function=empty, arguments=(), out_shardings=kept.sharding),)


def count_ahead(foreseen: np.ndarray, whole: Collection[int]) -> np.ndarray:
    """Returns what TaylorSeer's programs want of each step, (steps, 2) fp32 (sampling/reuse.foresee_or_compute).

    `foreseen` (steps,) bool says which steps are, none of `whole`, with which an expert begins.
    """
    found = np.zeros((len(foreseen), 2), np.float32)
    last: int | None = None
    for step, is_foreseen in enumerate(foreseen):
        if step in whole:
            last = None
        if is_foreseen:
            assert last is not None, "an expert's first step is computed"
            found[step, 0] = step - last
        else:
            found[step, 1] = 0 if last is None else 1 / (step - last)
            last = step
    return found


class ResidualRatios:
    """How much of its length a residual keeps from each step to the next: what calibrating finds.

    A ratio is the mean over tokens of |residual| / |residual of the step before| (diffusers/hooks/mag_cache.py), here
    of the prompt's rows and not of the negative ones; the first of each expert is 1.
    """

    def __init__(self) -> None:
        self.of_experts: list[list[float]] = []
        self._lengths: jax.Array | None = None

    def begin_expert(self) -> None:
        self.of_experts.append([])
        self._lengths = None

    def add(self, residual_BND: jax.Array, *, rows: int) -> None:
        """Takes the residual after one step; only the last `rows` count."""
        lengths = jnp.linalg.norm(residual_BND[-rows:].astype(jnp.float32), axis=-1)
        before, self._lengths = self._lengths, lengths
        self.of_experts[-1].append(1.0 if before is None else float((lengths / (before + 1e-8)).mean()))


class ReusedSteps:
    """Runs one recipe's denoise programs, and hands the residual from each of them to the next.

    `reused` are numbers of steps; those in `whole`, the first of each expert, are computed whatever it says. With
    `ratios` every call is of one step, whose residual they take.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        reused: Collection[int],
        whole: Collection[int],
        get: Callable[..., Any],
        put: Callable[[Any], jax.Array],
        ratios: ResidualRatios | None = None,
    ) -> None:
        self._ratios, self._rows = ratios, layout.outputs
        self._whole, self._done = {*whole}, 0
        self.residual: jax.Array | None = None
        self._reuse: jax.Array | None = None
        if layout.kept is None:
            return
        reuse = np.zeros(MAX_STEPS, np.bool_)
        reuse[sorted({*reused} - {*whole})] = True
        if layout.cache_kind == TAYLOR:
            reuse = count_ahead(reuse, whole)
        self.residual, self._reuse = get(*layout.residual_key)(), put(reuse)

    def run(self, program: Any, *arguments: Any) -> State:
        """Calls a denoise program, a cached one with the residual of the one before."""
        if self.residual is None:
            return program(*arguments)
        state, residual = program(*arguments, self.residual, self._reuse)
        self.residual = residual
        if self._ratios is not None:
            if self._done in self._whole:
                self._ratios.begin_expert()
            self._ratios.add(residual, rows=self._rows)
            self._done += 1
        return state
