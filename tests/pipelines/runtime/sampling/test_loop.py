"""The one denoising loop: which rows the denoiser sees, how guidance joins them, and which noise belongs to a step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.sampling.loop import build_loop
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
