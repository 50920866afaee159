"""The step of a training as a Program, from a model's configs alone: for planning, without weights or pictures.

It is the very program that run.py would compile for pictures of this size on this mesh.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from pipelines import registry
from pipelines.families.trainable import Learner
from pipelines.models.catalog import Model, Shape
from pipelines.models.fingerprints import find_configs
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.weights.components import choose_dtype, read_json
from pipelines.training.data.rows import TWIN
from pipelines.training.engine import placement
from pipelines.training.engine.denoiser import Origin, build_module, describe_frozen, describe_start
from pipelines.training.engine.objective import choose_objective
from pipelines.training.engine.optimizers import build_optimizer
from pipelines.training.engine.step import StepPlan, TrainState, build_program
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

    def program(self, remat: str) -> Program:
        plan = StepPlan(**{**vars(self.plan), "remat": remat})
        return build_program(plan, self.state, self.frozen, self.rows, key=("train", self.shape))

    @property
    def learnt(self) -> int:
        return sum(math.prod(weight.shape) for weight in self.state.trained.values())

    @property
    def weights_bytes(self) -> int:
        leaves = jax.tree.leaves((self.state, dict(self.frozen)))
        return sum(leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves)


def describe_step(
    settings: TrainingSettings, model: Model, mesh: Mesh, *, shape: Shape, batch_size: int, limit_bytes: int | None
) -> TrainingStep:
    """Describes the step for devices of `limit_bytes` each; of two experts the first. Raises ModelError."""
    learner = registry.find_learner(model)
    folder = find_configs(model)
    scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json") | dict(model.scheduler_changes)
    denoiser = learner.list_denoisers(folder, scheduler_config)[0]
    origin = Origin(model=model, learner=learner, folder=folder, mesh=mesh, on_progress=_UNHEARD)
    built = build_module(origin, denoiser, settings)
    optimizer = build_optimizer(settings, built.shapes)
    dtype = choose_dtype(mesh)
    plan = StepPlan(
        module=built.module,
        learner=learner,
        objective=choose_objective(settings, learner, scheduler_config, model=model, folder=folder, shape=shape,
                                   denoiser=denoiser),
        optimizer=optimizer,
        mesh=mesh,
        dtype=dtype,
        accumulate=settings.accumulate,
        ema=settings.ema,
        seed=settings.seed,
    )  # fmt: skip
    return TrainingStep(
        plan=plan,
        state=describe_start(built, mesh, optimizer=optimizer, has_average=settings.ema > 0),
        frozen=describe_frozen(built, mesh, dtype=dtype, limit_bytes=limit_bytes),
        rows=_describe_rows(learner, model, mesh, shape=shape, batch_size=batch_size, has_twins=settings.preserve > 0),
        shape=shape,
    )


def _describe_rows(
    learner: Learner, model: Model, mesh: Mesh, *, shape: Shape, batch_size: int, has_twins: bool
) -> dict[str, jax.ShapeDtypeStruct]:
    parts = registry.describe_parts(model, mesh)
    shapes = {**learner.describe_rows(parts, shape), "weight": (), **({TWIN: ()} if has_twins else {})}
    count = 2 * batch_size if has_twins else batch_size
    sharding = placement.rows(mesh)
    return {name: jax.ShapeDtypeStruct((count, *size), jnp.float32, sharding=sharding) for name, size in shapes.items()}
