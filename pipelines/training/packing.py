"""Compiles a training's steps for a machine that need not be here, into a pack that `train` loads (aot_packs.py).

The steps are described from configs alone, and are the very programs that run.py would compile. What a training begins
with (the optimizer's first state, embeddings and latents) is compiled by `train` itself, in seconds.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from pipelines.models.catalog import Model, Shape
from pipelines.runtime.programs.aot_packs import Manifest, describe_target, write_pack
from pipelines.runtime.programs.compiled import Program, Programs, without_persistent_cache
from pipelines.training.engine.compiled_steps import name_pack
from pipelines.training.engine.step import Way, compile_first_that_fits, list_ways
from pipelines.training.planning import TrainingStep, count_rounds, describe_step
from pipelines.training.settings import TrainingSettings


def make_pack(
    settings: TrainingSettings,
    model: Model,
    mesh: Mesh,
    *,
    shapes: Sequence[Shape],
    batch_size: int,
    limit_bytes: int | None,
    device_count: int,
    topology: str,
    file: Path,
    on_compile: Callable[[Shape, Way], None],
    on_refusal: Callable[[Way, Way | None], None],
) -> Manifest:
    """Compiles the step of each shape and each expert that learns, and writes the pack, which takes minutes.

    A step that does not fit is compiled in the next way, as in a training. Raises ModelError, and LumeshError for one
    that does not fit in any.
    """
    started = time.perf_counter()
    made: list[tuple[Program, Any, Any]] = []
    for number in range(count_rounds(settings, model)):
        for shape in shapes:
            step = describe_step(
                settings, model, mesh, shape=shape, batch_size=batch_size, limit_bytes=limit_bytes, number=number
            )
            made += _compile(step, settings, on_compile=on_compile, on_refusal=on_refusal)
    return write_pack(
        file,
        made,
        target=describe_target(mesh, device_count=device_count),
        model=name_pack(model),
        topology=topology,
        shapes=tuple(map(str, shapes)),
        batch_size=batch_size,
        compile_s=round(time.perf_counter() - started, 2),
    )


def _compile(
    step: TrainingStep,
    settings: TrainingSettings,
    *,
    on_compile: Callable[[Shape, Way], None],
    on_refusal: Callable[[Way, Way | None], None],
) -> list[tuple[Program, Any, Any]]:
    """Returns (program, lowered, compiled) of the step in the first way that fits, and of its validation if asked."""
    traced: dict[tuple[Any, ...], tuple[Program, Any]] = {}

    def keep(program: Program, lowered: Any) -> None:
        traced[program.key] = (program, lowered)

    def build(way: Way) -> Program:
        on_compile(step.shape, way)
        return step.program(way.remat, way.accumulate)

    programs = Programs(keep)
    rows = step.rows["weight"].shape[0]
    ways = list_ways(settings.remat, step.plan, batch_size=rows, is_strict=settings.strict)
    with without_persistent_cache():
        way = compile_first_that_fits(programs, build, ways, on_refusal=on_refusal)
        keys = [step.program(way.remat, way.accumulate).key]
        if settings.validate_with is not None:
            validation = step.validation()
            programs.compile_all([validation])
            keys.append(validation.key)
    return [(*traced[key], programs.get(*key)) for key in keys]
