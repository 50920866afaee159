"""The step of a training as a Program, from a model's configs alone: for planning, without weights or pictures.

It is the very program that run.py would compile for pictures of this size on this mesh.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from pipelines import registry
from pipelines.families.trainable import Learner
from pipelines.models.catalog import Model, Shape
from pipelines.models.fingerprints import find_configs
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.weights.components import read_json
from pipelines.training.data.rows import TWIN
from pipelines.training.engine import placement
from pipelines.training.engine.denoiser import (
    Origin,
    build_module,
    choose_denoisers,
    describe_frozen,
    describe_start,
    plan_steps,
)
from pipelines.training.engine.objective import choose_objective
from pipelines.training.engine.optimizers import build_optimizer
from pipelines.training.engine.step import StepPlan, TrainState, Way, build_program, name_step
from pipelines.training.engine.validation import build_validation_program
from pipelines.training.settings import TrainingSettings

_UNHEARD = lambda _progress: None  # noqa: E731 - nothing is loaded


@dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """A training's step, described: `program(remat)` builds it for one rematerialisation.

    `learnt` counts the weights that learn, `weights_bytes` all weights and the optimizer's state on one device.
    """

    plan: StepPlan
    state: TrainState
    frozen: Mapping[str, jax.ShapeDtypeStruct]
    rows: Mapping[str, jax.ShapeDtypeStruct]
    shape: Shape

    def program(self, remat: str, accumulate: int | None = None) -> Program:
        way = Way(remat=remat, accumulate=accumulate or self.plan.accumulate)
        plan = StepPlan(**{**vars(self.plan), **vars(way)})
        return build_program(plan, self.state, self.frozen, self.rows, key=name_step(self.shape, way))

    def validation(self) -> Program:
        """Returns the loss of pictures held back; what is validated is the average, or what learns."""
        trained = self.state.average or self.state.trained
        return build_validation_program(self.plan, trained, self.frozen, self.rows, key=("validate", self.shape))

    @property
    def learnt(self) -> int:
        return sum(math.prod(weight.shape) for weight in self.state.trained.values())

    @property
    def weights_bytes(self) -> int:
        leaves = jax.tree.leaves((self.state, dict(self.frozen)))
        return sum(leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves)


def describe_step(
    settings: TrainingSettings,
    model: Model,
    mesh: Mesh,
    *,
    shape: Shape,
    batch_size: int,
    limit_bytes: int | None,
    number: int = 0,
) -> TrainingStep:
    """Describes the step for devices of `limit_bytes` each; `number` is of two experts. Raises ModelError."""
    learner = registry.find_learner(model)
    folder = find_configs(model)
    scheduler_config = _read_scheduler(model)
    denoiser = choose_denoisers(learner.list_denoisers(folder, scheduler_config), settings)[number]
    origin = Origin(model=model, learner=learner, folder=folder, mesh=mesh, on_progress=_UNHEARD)
    built = build_module(origin, denoiser, settings)
    optimizer = build_optimizer(settings, built.shapes)
    objective = choose_objective(
        settings, learner, scheduler_config, model=model, folder=folder, shape=shape, denoiser=denoiser
    )
    plan = plan_steps(settings, built, learner, optimizer=optimizer, mesh=mesh)(objective=objective)
    return TrainingStep(
        plan=plan,
        state=describe_start(built, mesh, optimizer=optimizer, has_average=settings.ema > 0),
        frozen=describe_frozen(built, mesh, dtype=plan.dtype, limit_bytes=limit_bytes),
        rows=_describe_rows(learner, model, mesh, shape=shape, batch_size=batch_size, has_twins=settings.preserve > 0),
        shape=shape,
    )


def count_rounds(settings: TrainingSettings, model: Model) -> int:
    """Returns how many experts learn one after the other, each for all steps."""
    denoisers = registry.find_learner(model).list_denoisers(find_configs(model), _read_scheduler(model))
    return len(choose_denoisers(denoisers, settings))


def _read_scheduler(model: Model) -> dict[str, Any]:
    return read_json(find_configs(model) / "scheduler" / "scheduler_config.json") | dict(model.scheduler_changes)


def _describe_rows(
    learner: Learner, model: Model, mesh: Mesh, *, shape: Shape, batch_size: int, has_twins: bool
) -> dict[str, jax.ShapeDtypeStruct]:
    parts = registry.describe_parts(model, mesh)
    shapes = {**learner.describe_rows(parts, shape), "weight": (), **({TWIN: ()} if has_twins else {})}
    count = 2 * batch_size if has_twins else batch_size
    sharding = placement.rows(mesh)
    return {name: jax.ShapeDtypeStruct((count, *size), jnp.float32, sharding=sharding) for name, size in shapes.items()}
