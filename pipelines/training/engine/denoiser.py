"""The module that learns, on the mesh: traced with or without LoRA layers, its frozen weights and its first state.

The module is diffusers' own. With a LoRA peft's layers stand around its own (adapters.py); the checkpoint's weights are
then frozen, in the dtype that is computed in, and only the LoRA's learn, in fp32. Else all weights learn, in fp32.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from peft import LoraConfig
from peft.tuners.tuners_utils import BaseTunerLayer

from pipelines.errors import ModelError, RecipeError
from pipelines.families.trainable import Denoiser, Learner
from pipelines.models.catalog import Model
from pipelines.runtime.bridge.modules import TracedModule, name_products
from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.memory import find_limit
from pipelines.runtime.devices.sharding import STACK, Rules
from pipelines.runtime.weights.components import choose_dtype, load_component
from pipelines.runtime.weights.hub import find_revision, locate
from pipelines.runtime.weights.resolve import split_layers
from pipelines.runtime.weights.single_file import StoredComponent
from pipelines.stages import OnProgress, Progress
from pipelines.training.engine import pieces, placement
from pipelines.training.engine.adapters import (
    ADAPTER,
    add_layers,
    choose_layers,
    draw_first,
    is_lora,
    make_config,
    name_in_checkpoint,
)
from pipelines.training.engine.step import StepPlan, TrainState, Weights
from pipelines.training.settings import TrainingSettings

LARGEST_SHARE = 0.4
"""Frozen weights that take more of a device's memory are split over the devices."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a training starts from: a model's checkpoint in `folder`, on a mesh.

    `files` are the components whose weights lie in files of their own instead (single_file.py). The weights that learn
    are in `denoisers`, where they are of another revision.
    """

    model: Model
    learner: Learner
    folder: Path
    mesh: Mesh
    on_progress: OnProgress
    files: Mapping[str, StoredComponent] = field(default_factory=dict[str, StoredComponent])
    denoisers: Path | None = None


@dataclass(frozen=True, kw_only=True)
class LearningModule:
    """A denoiser ready to be traced; `config` describes its LoRA, None without one.

    `shapes` are those of what learns.
    """

    module: TracedModule
    config: LoraConfig | None
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def layers(self) -> list[str]:
        """The module's own layers, named as in checkpoints."""
        names = (
            name_in_checkpoint(name)
            for parameter, shape in self.module.parameter_shapes().items()
            if not is_lora(parameter)
            for name in split_layers(parameter, shape)
        )
        return [*dict.fromkeys(name.rpartition(".")[0] for name in names)]

    @property
    def frozen_names(self) -> list[str]:
        return [name for name in self.module.parameter_shapes() if name not in self.shapes]


def choose_denoisers(known: tuple[Denoiser, ...], settings: TrainingSettings) -> tuple[Denoiser, ...]:
    """Returns those that learn: all, or the expert that was chosen."""
    if len(known) == 1 or settings.expert in (None, "both"):
        return known
    return known[:1] if settings.expert == "high" else known[1:]


def find_denoisers(
    settings: TrainingSettings, model: Model, known: Sequence[Denoiser], on_progress: OnProgress
) -> Path | None:
    """Returns the folder of the revision that the denoisers are taken from, downloaded; None for the model's own.

    Raises RecipeError where the hub has no such revision, or cannot be asked.
    """
    if settings.non_ema_revision is None:
        return None
    other = replace(model, revision=settings.non_ema_revision, variant=settings.variant or "")
    try:
        return locate(
            other,
            components=tuple(one.component for one in known),
            on_bytes=lambda done, total: on_progress(Progress(phase="downloading", done=done, total=total)),
        )
    except ModelError as error:
        raise RecipeError({"non_ema_revision": error.detail}) from error


def describe_weights(model: Model, folder: Path, denoisers: Path | None) -> str:
    """Returns which weights a training begins with: a model's, with denoisers of another revision if there are any."""
    weights = find_revision(folder, model.own_files)
    return weights if denoisers is None else f"{weights}, with denoisers of {find_revision(denoisers)}"


def build_module(origin: Origin, denoiser: Denoiser, settings: TrainingSettings) -> LearningModule:
    """Builds the module without weights; raises RecipeError for `targets` that name no layer."""
    module: Any = origin.learner.build_denoiser(origin.folder, denoiser.component)
    config = None
    if settings.lora:
        cuts = origin.learner.list_cuts(module) if pieces.pays(origin.mesh) else {}
        config = make_config(choose_layers(module, settings), settings)
        add_layers(module, config)
        pieces.cut_layers(module, cuts, adapter=ADAPTER)
    origin.learner.stack_layers(module, origin.mesh)
    kinds: Any = (BaseTunerLayer, torch.nn.Linear, torch.nn.Conv2d, torch.nn.Conv3d)
    name_products(module, kinds, besides=pieces.CutLayer)
    traced = TracedModule(module)
    names = traced.parameter_shapes()
    shapes = {name: shape for name, shape in names.items() if config is None or is_lora(name)}
    return LearningModule(module=traced, config=config, shapes=shapes)


def plan_steps(
    settings: TrainingSettings, built: LearningModule, learner: Learner, *, optimizer: Any, mesh: Mesh
) -> Callable[..., StepPlan]:
    """Returns what makes a step's plan of an `objective`."""
    return functools.partial(
        StepPlan,
        module=built.module,
        learner=learner,
        optimizer=optimizer,
        mesh=mesh,
        trains_all=built.config is None,
        dtype=choose_compute_dtype(settings, mesh),
        accumulate=settings.accumulate,
        ema=settings.ema,
        seed=settings.seed,
        exact=settings.mixed_precision == "no",
    )


def choose_compute_dtype(settings: TrainingSettings, mesh: Mesh) -> Any:
    """Returns what is computed in: what was asked for, or what models compute in on these devices."""
    if settings.mixed_precision is None:
        return choose_dtype(mesh)
    return jnp.bfloat16 if settings.mixed_precision == "bf16" else jnp.float32


def load_frozen(origin: Origin, denoiser: Denoiser, built: LearningModule, *, dtype: Any) -> Weights:
    """Reads the weights that do not learn, and constants, onto the mesh; empty but for constants without a LoRA."""
    constants = {
        name: hosts.place(value, NamedSharding(origin.mesh, PartitionSpec()))
        for name, value in built.module.constant_buffers().items()
    }
    if built.config is None:
        return constants
    loaded = _load(origin, denoiser, dtype=dtype)
    limit_bytes = find_limit([*origin.mesh.local_devices])
    described = describe_frozen(built, origin.mesh, dtype=dtype, limit_bytes=limit_bytes)
    wanted = {name: described[name] for name in built.frozen_names if name_in_checkpoint(name) in loaded}
    return pieces.cut_weights(loaded, wanted) | constants


def start_state(
    origin: Origin,
    denoiser: Denoiser,
    built: LearningModule,
    *,
    optimizer: optax.GradientTransformation,
    settings: TrainingSettings,
    change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] = lambda drawn: drawn,
) -> TrainState:
    """Returns the state before the first step: a LoRA's first values, or the checkpoint's weights in fp32.

    `change` may give a LoRA that learns on other values than those of a new one.
    """
    mesh = origin.mesh
    if built.config is not None:
        values = change(draw_first(built.shapes, seed=settings.seed))
        trained = {name: hosts.place(value, placement.split(name, value.shape, mesh)) for name, value in values.items()}
    else:
        loaded = _load(origin, denoiser, dtype=jnp.float32)
        trained = {name: value for name, value in loaded.items() if name in built.shapes}
    return begin(trained, optimizer, mesh, has_average=settings.ema > 0)


def begin(trained: Weights, optimizer: optax.GradientTransformation, mesh: Mesh, *, has_average: bool) -> TrainState:
    """Returns the state of no steps, with these first values of what learns."""
    described = jax.eval_shape(optimizer.init, trained)
    start = jax.jit(optimizer.init, out_shardings=placement.place_state(described, mesh))
    average = {name: jnp.copy(value) for name, value in trained.items()} if has_average else {}
    step = hosts.place(np.zeros((), np.int32), NamedSharding(mesh, PartitionSpec()))
    return TrainState(step, trained, start(trained), average)


def describe_frozen(
    built: LearningModule, mesh: Mesh, *, dtype: Any, limit_bytes: int | None
) -> dict[str, jax.ShapeDtypeStruct]:
    """Describes what `load_frozen` would load onto devices of `limit_bytes` each, without reading anything."""
    constants = built.module.constant_buffers()
    replicated = NamedSharding(mesh, PartitionSpec())
    described = {
        name: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=replicated) for name, value in constants.items()
    }
    if built.config is None:
        return described
    shapes = {name: shape for name, shape in built.module.parameter_shapes().items() if name not in built.shapes}
    is_split = not _fits_whole(shapes, dtype, limit_bytes)
    for name, shape in shapes.items():
        sharding = placement.split(name, shape, mesh) if is_split else replicated
        described[name] = jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    return described


def describe_start(
    built: LearningModule, mesh: Mesh, *, optimizer: optax.GradientTransformation, has_average: bool
) -> TrainState:
    """Describes what `start_state` would return, without reading anything."""
    trained = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=placement.split(name, shape, mesh))
        for name, shape in built.shapes.items()
    }
    state = jax.eval_shape(optimizer.init, trained)
    states = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        state,
        placement.place_state(state, mesh),
    )
    step = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, PartitionSpec()))
    described: Any = (step, trained, states, dict(trained) if has_average else {})
    return TrainState(*described)


def describe_state(state: TrainState) -> TrainState:
    """Returns the state's shapes, dtypes and shardings."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), state)


def _load(origin: Origin, denoiser: Denoiser, *, dtype: Any) -> Weights:
    """Reads the component into the module without LoRA layers, whose names are the checkpoint's."""
    plain: Any = origin.learner.build_denoiser(origin.folder, denoiser.component)
    origin.learner.stack_layers(plain, origin.mesh)
    traced = TracedModule(plain)
    shapes = traced.parameter_shapes()
    is_split = dtype == jnp.float32 or not _fits_whole(shapes, dtype, find_limit([*origin.mesh.local_devices]))
    return load_component(
        (origin.denoisers or origin.folder) / denoiser.component,
        traced,
        mesh=origin.mesh,
        rules=_list_rules(shapes, origin.mesh) if is_split else ((r"", PartitionSpec()),),
        dtype=dtype,
        variant="" if origin.denoisers else origin.model.variant,
        on_progress=origin.on_progress,
        stored=origin.files.get(denoiser.component),
    )


def _fits_whole(shapes: Mapping[str, tuple[int, ...]], dtype: Any, limit_bytes: int | None) -> bool:
    wanted = sum(math.prod(shape) for shape in shapes.values()) * jnp.dtype(dtype).itemsize
    return limit_bytes is None or wanted < LARGEST_SHARE * limit_bytes


def _list_rules(shapes: Mapping[str, tuple[int, ...]], mesh: Mesh) -> Rules:
    """Returns a rule for each weight; a stack's rule speaks of one of its layers."""
    specs = {name: placement.split(name, shape, mesh).spec for name, shape in shapes.items()}
    return [
        (f"^{re.escape(name)}$", PartitionSpec(*spec[1:]) if STACK in name else spec) for name, spec in specs.items()
    ]
