"""The one denoising loop: which rows the denoiser sees, how guidance joins them, and which noise belongs to a step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.families.reused_steps import count_ahead
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.sampling.loop import build_foreseeing_loop, build_loop
from pipelines.runtime.sampling.schedules import COLUMNS, MAX_STEPS
from pipelines.runtime.sampling.solver import State

LATENTS = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)


@pytest.fixture
def sharding(cache_dir: Any) -> NamedSharding:
    return NamedSharding(build_mesh("dp=2"), PartitionSpec("dp"))


@pytest.fixture
def everywhere(sharding: NamedSharding) -> NamedSharding:
    return NamedSharding(sharding.mesh, PartitionSpec())


def write_table(**columns: float) -> jax.Array:
    """A schedule whose rows are all alike, but for the timestep, which is the step's number."""
    table = np.zeros((MAX_STEPS, len(COLUMNS)), np.float32)
    for name, value in columns.items():
        table[:, COLUMNS.index(name)] = value
    table[:, COLUMNS.index("timestep")] = np.arange(MAX_STEPS)
    return jnp.asarray(table)


def run(loop: Any, *, start: int, stop: int, scale: float = 1.0, noise: Any = None, **columns: float) -> np.ndarray:
    @jax.jit
    def program(state: State, table: jax.Array, bounds: tuple[int, int]) -> State:
        return loop(state, table=table, guidance_scale=scale, start=bounds[0], stop=bounds[1], noise=noise)

    state = State(jnp.asarray(LATENTS), jnp.zeros_like(LATENTS))
    return np.asarray(program(state, write_table(**columns), (start, stop)).latents)


def test_a_step_scales_predicts_and_advances_once_for_each_step_asked_for(everywhere: NamedSharding) -> None:
    loop = build_loop(
        lambda rows, timestep: rows + timestep,
        uses_cfg=False,
        input_sharding=everywhere,
    )
    found = run(loop, start=2, stop=4, in_scale=2.0, by_output=1.0)
    np.testing.assert_allclose(found, 2 * (2 * LATENTS + 2) + 3)


def test_guidance_goes_from_the_negative_rows_through_the_positive_ones(sharding: NamedSharding) -> None:
    def predict(rows: jax.Array, timestep: jax.Array) -> jax.Array:
        assert (rows.shape, timestep.shape) == ((2, 2, 2, 2), ())
        return rows * jnp.asarray([1.0, 3.0])[:, None, None, None]

    loop = build_loop(predict, uses_cfg=True, input_sharding=sharding)
    found = run(loop, start=0, stop=1, scale=4.0, in_scale=1.0, by_output=1.0)
    np.testing.assert_allclose(found, LATENTS + 4 * 2 * LATENTS)


def test_what_a_family_prepares_is_doubled_with_its_timesteps(sharding: NamedSharding) -> None:
    def prepare(scaled: jax.Array, timestep: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.concatenate([scaled, jnp.ones_like(scaled)], axis=1), jnp.broadcast_to(timestep, len(scaled))

    def predict(rows: jax.Array, timestep: jax.Array) -> jax.Array:
        assert (rows.shape, timestep.shape) == ((2, 4, 2, 2), (2,))
        return rows[:, 2:]

    loop = build_loop(predict, uses_cfg=True, input_sharding=sharding, prepare=prepare)
    np.testing.assert_allclose(run(loop, start=0, stop=1, in_scale=1.0, by_output=1.0), np.ones_like(LATENTS))


def test_noise_is_counted_from_the_first_step_asked_for(everywhere: NamedSharding) -> None:
    noise = jnp.stack([jnp.full_like(LATENTS, value) for value in (10, 100)])
    loop = build_loop(lambda rows, _: rows, uses_cfg=False, input_sharding=everywhere)
    found = run(loop, start=5, stop=7, noise=noise, by_latents=1.0, by_noise=1.0)
    np.testing.assert_allclose(found, LATENTS + 110)


def test_the_state_stays_in_fp32_whatever_the_denoiser_computes_in(sharding: NamedSharding) -> None:
    loop = build_loop(lambda rows, _: rows.astype(jnp.bfloat16), uses_cfg=True, input_sharding=sharding)
    assert run(loop, start=0, stop=1, in_scale=1.0, by_output=1.0).dtype == np.float32


def test_foreseen_steps_go_on_as_the_last_two_computed_ones_did(everywhere: NamedSharding) -> None:
    """The output is linear in time for either expert, so foreseeing is exact; a foreseen step that ran would be nan."""
    foreseen = np.zeros(MAX_STEPS, np.bool_)
    foreseen[[2, 3, 5, 10, 12, 13]] = True
    boundary = 8

    def predict(rows: jax.Array, timestep: jax.Array) -> jax.Array:
        runs = jnp.where(timestep < boundary, 3 * timestep + 1, 100 - 5 * timestep)
        return jnp.full_like(rows, jnp.where(jnp.asarray(foreseen)[timestep.astype(jnp.int32)], jnp.nan, runs))

    loop = build_foreseeing_loop(predict, uses_cfg=False, input_sharding=everywhere, sharding=everywhere)
    reuse = jnp.asarray(count_ahead(foreseen, {0, boundary}))

    @jax.jit
    def program(state: State, outlook: jax.Array, table: jax.Array, bounds: tuple[int, int]) -> tuple[State, jax.Array]:
        return loop(
            state, outlook, table=table, reuse=reuse, guidance_scale=jnp.float32(1), start=bounds[0], stop=bounds[1]
        )

    state, outlook = State(jnp.asarray(LATENTS), jnp.zeros_like(LATENTS)), jnp.zeros((2, *LATENTS.shape))
    for bounds in ((0, 3), (3, 11), (11, 15)):  # a chunk goes on where the last one ended
        state, outlook = program(state, outlook, write_table(by_latents=1.0, by_output=1.0), bounds)
    expected = sum(3 * step + 1 if step < boundary else 100 - 5 * step for step in range(15))
    np.testing.assert_allclose(state.latents, LATENTS + expected, rtol=1e-6)


def test_an_experts_first_step_is_computed_and_says_nothing_of_the_change() -> None:
    found = count_ahead(np.array([False, True, False, False, True]), {0, 3})
    np.testing.assert_allclose(found, [[0, 0], [1, 0], [0, 0.5], [0, 0], [1, 0]])
