"""The denoising loop, one for all families: input, guidance and scheduler update of every step, on the devices.

A step goes through four places:

    scale      in_scale * latents, as the scheduler's row says
    prepare    what the family adds to that, and the timestep of each row        (the family's)
    predict    the denoiser's output, for [negative..., positive...] rows        (the family's)
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

from pipelines.runtime.sampling.solver import State, advance, read_row

Prepare = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
"""(scaled latents, timestep) -> what the denoiser sees of each output, and its timestep: one for all, or one a row."""

Predict = Callable[[jax.Array, jax.Array], jax.Array]
"""(input rows, timestep) -> the denoiser's output for each row."""


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
            model_input, timestep = row["in_scale"] * state.latents, row["timestep"]
            if prepare is not None:
                model_input, timestep = prepare(model_input, timestep)
            if uses_cfg:
                model_input = jnp.concatenate([model_input, model_input])
                timestep = jnp.concatenate([timestep, timestep]) if timestep.ndim else timestep
            model_input = jax.lax.with_sharding_constraint(model_input, input_sharding)
            output = predict(model_input, timestep).astype(jnp.float32)
            if uses_cfg:
                output = _guide(output, guidance_scale)
            return advance(row, state, output, None if noise is None else noise[index - start])

        return jax.lax.fori_loop(start, stop, step, state)

    return run


def _guide(output: jax.Array, guidance_scale: jax.Array) -> jax.Array:
    """Classifier-free guidance: from the negative half of the rows through the positive one."""
    negative, positive = jnp.split(output, 2)
    return negative + guidance_scale * (positive - negative)
