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

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from pipelines.recipes.cache_kinds import TAYLOR
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


class KeepingLoop(Protocol):
    """Runs steps `start` to `stop` of a schedule's `table` with a step cache: what it keeps comes in and back.

    `reuse` says of each step what it takes from earlier ones: (MAX_STEPS,) bool for MagCache, whose `kept` is the
    residual (rows, tokens, width); (MAX_STEPS, 2) fp32 for TaylorSeer, whose `kept` is the outlook (2, rows, ...) of
    `foresee_or_compute`.
    """

    def __call__(
        self,
        state: State,
        kept: jax.Array,
        *,
        table: jax.Array,
        reuse: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
        noise: jax.Array | None = None,
    ) -> tuple[State, jax.Array]: ...


class Cache(NamedTuple):
    """A step cache: its kind (recipes/cache_kinds.py), and how what it keeps lies on the mesh."""

    kind: str
    sharding: Any


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


def run_loop(
    predict: Predict,
    state: State,
    kept: jax.Array | None,
    *,
    cache: Cache | None,
    uses_cfg: bool,
    input_sharding: NamedSharding,
    prepare: Prepare | None = None,
    predict_reusing: PredictReusing | None = None,
    reuse: jax.Array | None = None,
    **numbers: Any,
) -> Any:
    """Runs the loop of a denoise program: returns the state, with a step `cache` (state, what it keeps).

    `predict_reusing` is MagCache's, in families that can have it; `numbers` are those of `Loop`.
    """
    how = {"uses_cfg": uses_cfg, "input_sharding": input_sharding, "prepare": prepare}
    if cache is None:
        return build_loop(predict, **how)(state, **numbers)
    assert kept is not None and reuse is not None, "a program with a step cache takes what it keeps"
    if cache.kind == TAYLOR:
        loop = build_foreseeing_loop(predict, sharding=cache.sharding, **how)
    else:
        assert predict_reusing is not None, f"no {cache.kind} here"
        loop = build_reusing_loop(predict_reusing, **how)
    return loop(state, kept, reuse=reuse, **numbers)


def build_reusing_loop(
    predict: PredictReusing, *, uses_cfg: bool, input_sharding: NamedSharding, prepare: Prepare | None = None
) -> KeepingLoop:
    """The loop of `build_loop` with MagCache."""

    def answer(make_input: MakeInput, read_reuse: ReadReuse, kept: jax.Array) -> tuple[jax.Array, jax.Array]:
        model_input = make_input()
        return predict(*model_input, Reuse(read_reuse(), kept))

    return _build_keeping_loop(answer, uses_cfg=uses_cfg, input_sharding=input_sharding, prepare=prepare)


def build_foreseeing_loop(
    predict: Predict,
    *,
    uses_cfg: bool,
    input_sharding: NamedSharding,
    sharding: Any,
    prepare: Prepare | None = None,
) -> KeepingLoop:
    """The loop of `build_loop` with TaylorSeer around `predict`, whose outlook lies as `sharding` says."""

    def answer(make_input: MakeInput, read_reuse: ReadReuse, kept: jax.Array) -> tuple[jax.Array, jax.Array]:
        output, kept = foresee_or_compute(read_reuse(), kept, lambda: predict(*make_input()))
        return output, jax.lax.with_sharding_constraint(kept, sharding)

    return _build_keeping_loop(answer, uses_cfg=uses_cfg, input_sharding=input_sharding, prepare=prepare)


MakeInput = Callable[[], tuple[jax.Array, jax.Array]]
ReadReuse = Callable[[], jax.Array]
_Answer = Callable[[MakeInput, ReadReuse, jax.Array], tuple[jax.Array, jax.Array]]
"""(what makes the denoiser's input, what reads this step's `reuse`, kept) -> the output for each row, and kept."""


def _build_keeping_loop(
    answer: _Answer, *, uses_cfg: bool, input_sharding: NamedSharding, prepare: Prepare | None
) -> KeepingLoop:
    """The loop of `build_loop` with a step cache: a program of its own, so that the one without stays what it is."""

    def run(
        state: State,
        kept: jax.Array,
        *,
        table: jax.Array,
        reuse: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
        noise: jax.Array | None = None,
    ) -> tuple[State, jax.Array]:
        def step(index: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            state, kept = carry
            row = read_row(table, index)
            make_input = functools.partial(_make_input, row, state, prepare, uses_cfg=uses_cfg, sharding=input_sharding)
            output, kept = answer(make_input, lambda: reuse[index], kept)
            output = _guide(output.astype(jnp.float32), guidance_scale if uses_cfg else None)
            return advance(row, state, output, None if noise is None else noise[index - start]), kept

        return jax.lax.fori_loop(start, stop, step, (state, kept))

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
