"""The loss on pictures held back, always with the same noise at the same eight noise levels: it can be compared.

A training's own loss says little: its noise differs from step to step. Averages over fixed levels are what the authors
of Stable Diffusion 3 found to agree with people (Esser et al. 2024).
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.runtime.programs.compiled import Program
from pipelines.training.engine.objective import Diffusion, Noised, Objective, sum_errors
from pipelines.training.engine.step import StepPlan, Weights, prepare_call

LEVELS = 8


def build_validation(plan: StepPlan) -> Any:
    """Builds validate(trained, frozen, rows, level, key) -> the weighted sum of errors, and of weights.

    `level` numbers the noise level, `key` the noise.
    """

    def validate(
        trained: Weights, frozen: Weights, rows: Mapping[str, jax.Array], level: jax.Array, number: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        latents = rows["latents"] if "latents" in rows else rows["mean"]
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(plan.seed), number), level)
        noised = _mix(plan.objective, latents.astype(jnp.float32), level, key)
        call = prepare_call(plan, trained | frozen)
        prediction = plan.learner.predict(call, noised.noisy, noised.timesteps, rows, plan.dtype)
        summed, _ = sum_errors(prediction, noised._replace(weights=jnp.ones(len(latents))), rows["weight"])
        return summed, rows["weight"].sum()

    return validate


def build_validation_program(
    plan: StepPlan, trained: Mapping[str, Any], frozen: Mapping[str, Any], rows: Mapping[str, Any], *, key: Any
) -> Program:
    """Describes the compiled validation; all but the plan are shapes, dtypes and shardings."""
    replicated = NamedSharding(plan.mesh, PartitionSpec())
    number = jax.ShapeDtypeStruct((), np.int32, sharding=replicated)
    arguments = (dict(trained), dict(frozen), dict(rows), number, number)
    return Program(key=key, function=build_validation(plan), arguments=arguments)


def _mix(objective: Objective, latents: jax.Array, level: jax.Array, key: jax.Array) -> Noised:
    """Adds the level's noise to every row."""
    noise = jax.random.normal(key, latents.shape)
    place = jnp.full(len(latents), (level + 0.5) / LEVELS)
    if isinstance(objective, Diffusion):
        timesteps = jnp.floor(place * len(objective.alphas_cumprod)).astype(jnp.int32)
        return objective.mix(latents, noise, timesteps)
    return objective.mix(latents, noise, objective.spread_out(place))


def average(results: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Returns the mean error of all rows at all levels."""
    return float(sum(float(summed) for summed, _ in results) / max(sum(float(weight) for _, weight in results), 1e-9))
