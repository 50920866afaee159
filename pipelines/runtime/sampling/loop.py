"""The denoising loop, one for all families: input, guidance and scheduler update of every step, on the devices.

A step goes through four places:

    scale      in_scale * latents, as the scheduler's row says
    prepare    what the family adds to that, and the timestep of each row        (the family's)
    predict    the denoiser's output, for [negative..., positive...] rows        (the family's);
               a step cache lets it take an earlier step's share of it (reuse.py)
    advance    guidance, then the scheduler's linear update (solver.py)

What changes a step for every family alike belongs here: another guidance into `_guide`, what is blended into the
latents after a step behind `advance`, what spares a forward around `predict`.
Not here: which steps there are (schedules.py), and how many the host queues at a time (chunks.py).
"""

from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from pipelines.runtime.sampling.reuse import Reuse, foresee_or_compute
from pipelines.runtime.sampling.solver import State, advance, read_row

Prepare = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
"""(scaled latents, timestep) -> what the denoiser sees of each output, and its timestep: one for all, or one a row."""

Predict = Callable[[jax.Array, jax.Array], jax.Array]
"""(input rows, timestep) -> the denoiser's output for each row."""

PredictReusing = Callable[[jax.Array, jax.Array, Reuse], tuple[jax.Array, jax.Array]]
"""(input rows, timestep, what may be reused) -> the denoiser's output for each row, and the residual from now on."""


class Loop(Protocol):
    """Runs steps `start` to `stop` of a schedule's `table`.

    `noise` (steps, B, ...) is what a scheduler adds, from the step `start` on.
    """

    def __call__(
        self,
        state: State,
        *,
        table: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
        noise: jax.Array | None = None,
    ) -> State: ...


class ReusingLoop(Protocol):
    """Runs steps `start` to `stop` of a schedule's `table` with a step cache.

    `reuse` (MAX_STEPS,) bool says which steps take the `residual` of earlier ones; the last one comes back.
    """

    def __call__(
        self,
        state: State,
        residual: jax.Array,
        *,
        table: jax.Array,
        reuse: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
    ) -> tuple[State, jax.Array]: ...


class ForeseeingLoop(Protocol):
    """Runs steps `start` to `stop` of a schedule's `table` with TaylorSeer.

    `reuse` (MAX_STEPS, 2) and `residual` (2, rows, ...) are what `foresee_or_compute` takes as steps and outlook.
    """

    def __call__(
        self,
        state: State,
        residual: jax.Array,
        *,
        table: jax.Array,
        reuse: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
        noise: jax.Array | None = None,
    ) -> tuple[State, jax.Array]: ...


def build_loop(
    predict: Predict, *, uses_cfg: bool, input_sharding: NamedSharding, prepare: Prepare | None = None
) -> Loop:
    """The loop around `predict`, for use inside jit.

    With `uses_cfg` each step sees a batch of [negative..., positive...] halves, which `input_sharding` places on the
    mesh, and goes from the first half's output towards the second's; without, one forward a step. The state stays in
    fp32 whatever `predict` computes in.
    """

    def run(
        state: State,
        *,
        table: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
        noise: jax.Array | None = None,
    ) -> State:
        def step(index: jax.Array, state: State) -> State:
            row = read_row(table, index)
            output = predict(*_make_input(row, state, prepare, uses_cfg=uses_cfg, sharding=input_sharding))
            output = _guide(output.astype(jnp.float32), guidance_scale if uses_cfg else None)
            return advance(row, state, output, None if noise is None else noise[index - start])

        return jax.lax.fori_loop(start, stop, step, state)

    return run


def build_reusing_loop(
    predict: PredictReusing, *, uses_cfg: bool, input_sharding: NamedSharding, prepare: Prepare | None = None
) -> ReusingLoop:
    """The loop of `build_loop` with a step cache: a program of its own, so that the one without stays what it is."""

    def run(
        state: State,
        residual: jax.Array,
        *,
        table: jax.Array,
        reuse: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
    ) -> tuple[State, jax.Array]:
        def step(index: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            state, residual = carry
            row = read_row(table, index)
            model_input = _make_input(row, state, prepare, uses_cfg=uses_cfg, sharding=input_sharding)
            output, residual = predict(*model_input, Reuse(reuse[index], residual))
            output = _guide(output.astype(jnp.float32), guidance_scale if uses_cfg else None)
            return advance(row, state, output), residual

        return jax.lax.fori_loop(start, stop, step, (state, residual))

    return run


def build_foreseeing_loop(
    predict: Predict,
    *,
    uses_cfg: bool,
    input_sharding: NamedSharding,
    outlook_sharding: NamedSharding,
    prepare: Prepare | None = None,
) -> ForeseeingLoop:
    """The loop of `build_loop` with TaylorSeer around `predict`: a program of its own too.

    Its residual is the outlook (2, rows, ...) of `foresee_or_compute`.
    """

    def run(
        state: State,
        residual: jax.Array,
        *,
        table: jax.Array,
        reuse: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
        noise: jax.Array | None = None,
    ) -> tuple[State, jax.Array]:
        def step(index: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            state, outlook = carry
            row = read_row(table, index)

            def compute() -> jax.Array:
                return predict(*_make_input(row, state, prepare, uses_cfg=uses_cfg, sharding=input_sharding))

            output, outlook = foresee_or_compute(reuse[index], outlook, compute)
            outlook = jax.lax.with_sharding_constraint(outlook, outlook_sharding)
            output = _guide(output, guidance_scale if uses_cfg else None)
            return advance(row, state, output, None if noise is None else noise[index - start]), outlook

        return jax.lax.fori_loop(start, stop, step, (state, residual))

    return run


def _make_input(
    row: dict[str, jax.Array], state: State, prepare: Prepare | None, *, uses_cfg: bool, sharding: NamedSharding
) -> tuple[jax.Array, jax.Array]:
    model_input, timestep = row["in_scale"] * state.latents, row["timestep"]
    if prepare is not None:
        model_input, timestep = prepare(model_input, timestep)
    if uses_cfg:
        model_input = jnp.concatenate([model_input, model_input])
        timestep = jnp.concatenate([timestep, timestep]) if timestep.ndim else timestep
    return jax.lax.with_sharding_constraint(model_input, sharding), timestep


def _guide(output: jax.Array, guidance_scale: jax.Array | None) -> jax.Array:
    """Classifier-free guidance: from the negative half of the rows through the positive one; None leaves them."""
    if guidance_scale is None:
        return output
    negative, positive = jnp.split(output, 2)
    return negative + guidance_scale * (positive - negative)
