"""Compiles a model's programs for another machine into a pack (runtime/programs/aot_packs.py), which its worker loads.

The model is described from its configs alone, as for a plan; its programs are those that the worker would list.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from pipelines.errors import LumeshError
from pipelines.mesh_text import asks_for_many
from pipelines.messages import say
from pipelines.models.catalog import Model, Shape
from pipelines.pictures.references import References, name_programs
from pipelines.plan.topologies import Topology, find_devices
from pipelines.registry import build_mesh_for, describe_parts, find_architecture
from pipelines.runtime.devices.sharding import count_at_once
from pipelines.runtime.programs.aot_packs import Manifest, describe_target, write_pack
from pipelines.runtime.programs.compiled import Program, Programs, without_persistent_cache
from pipelines.stages import OnProgress, Progress


def make_pack(
    model: Model,
    topology: Topology,
    *,
    shapes: Sequence[tuple[Shape, References | None]],
    batch_size: int,
    mesh: str | None,
    file: Path,
    on_progress: OnProgress,
) -> Manifest:
    """Compiles every program of these shapes and writes the pack, which takes minutes for large models.

    Raises MeshError, ModelError, and LumeshError if the compiler refuses a program.
    """
    hbm_bytes = topology.chip.hbm_bytes if topology.chip else None
    built = build_mesh_for(model, mesh, devices=find_devices(topology), hbm_bytes=hbm_bytes)
    parts = describe_parts(model, built)
    if asks_for_many(mesh):
        batch_size = max(batch_size, outputs_at_once(model, parts))
    programs = list_programs(model, parts, shapes, batch_size=batch_size)
    traced: dict[tuple[Any, ...], Any] = {}

    def keep(program: Program, lowered: Any) -> None:
        traced[program.key] = lowered

    compiled, started = Programs(keep), time.perf_counter()
    try:
        with without_persistent_cache():
            compiled.compile_all(
                programs,
                on_wait=lambda done: on_progress(
                    Progress(phase="compiling", done=done, total=len(programs), detail=f"for {topology.title}")
                ),
            )
    except jax.errors.JaxRuntimeError as error:
        raise LumeshError(
            say(
                "The compiler refused {model} on {topology}: {error}",
                model=model.id,
                topology=topology.name,
                error=" ".join(str(error).split())[:300],
            ),
            advice=say(
                "`python -m pipelines plan --model {model} --topology {topology}` says what would fit.",
                model=model.id,
                topology=topology.name,
            ),
        ) from error
    seconds = time.perf_counter() - started
    on_progress(Progress(phase="saving", total=1, detail=file.name))
    return write_pack(
        file,
        [(program, traced[program.key], compiled.get(*program.key)) for program in programs],
        target=describe_target(built, device_count=topology.devices),
        model=model.id,
        topology=topology.name,
        shapes=tuple(name_programs(*one) for one in shapes),
        batch_size=batch_size,
        compile_s=round(seconds, 2),
    )


def list_programs(
    model: Model, parts: Any, shapes: Sequence[tuple[Shape, References | None]], *, batch_size: int
) -> list[Program]:
    """Lists the programs of these shapes with the model's default guidance; shared programs are listed once."""
    family, uses_cfg = find_architecture(model).programs, model.guidance_scale > 1
    found: dict[tuple[Any, ...], Program] = {}
    for shape, references in shapes:
        layout = family.lay_out(parts, shape, batch_size=batch_size, uses_cfg=uses_cfg, references=references)
        for program in family.list_programs(parts, layout):
            found.setdefault(program.key, program)
    return list(found.values())


def outputs_at_once(model: Model, parts: Any) -> int:
    """Returns the same number as the worker's LoadedModel.make_many_at_once, so that the worker finds its programs."""
    lay_out, uses_cfg = find_architecture(model).programs.lay_out, model.guidance_scale > 1
    return count_at_once(
        parts.mesh, lambda count: lay_out(parts, model.default_shape, batch_size=count, uses_cfg=uses_cfg)
    )
