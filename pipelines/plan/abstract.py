"""A model from its configs alone: modules on the meta device, weights as shapes with the placements the loader gives.

The loader's own `build_parts` does the work. The configs of the catalogue's models are shipped in presets/configs/, one
folder for each in diffusers layout without weights; other models bring their own folder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from pipelines.catalog import Model, Shape
from pipelines.families.flux2 import programs as flux2_programs
from pipelines.families.flux2.load import build_parts as build_flux2
from pipelines.families.flux2.variants import MAX_TEXT_LENGTH
from pipelines.families.sdxl import programs as sdxl_programs
from pipelines.families.sdxl.load import build_parts as build_sdxl
from pipelines.families.wan import programs as wan_programs
from pipelines.families.wan.load import build_parts as build_wan
from pipelines.references import choose_references
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.sampling.schedules import COLUMNS, build_schedule
from pipelines.runtime.weights.components import describe_component, read_json
from pipelines.sources import find_configs
from pipelines.stages import STAGES


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One program of a model. `components` are those whose weights it takes.

    `runs` is how often an output needs it: never a preview, nor what reads pictures where the model can do without.
    """

    name: str
    program: Program
    components: tuple[str, ...]
    runs: int


def describe_parts(model: Model, mesh: Mesh) -> Any:
    """The family's Parts, every component's weights described; raises ModelError, MeshError."""
    return _DESCRIBE[model.family](model, find_configs(model), mesh)


def count_parameters(parts: Any) -> dict[str, int]:
    """Component -> how many parameters a checkpoint holds."""
    return {
        name: sum(int(np.prod(shape)) for shape in module.parameter_shapes().values())
        for name, module in parts.modules.items()
    }


def list_stages(model: Model, parts: Any, shape: Shape, *, batch_size: int) -> list[Stage]:
    """Every program that the worker would compile for this shape, in the order in which a job runs them."""
    uses_cfg = model.guidance_scale > 1
    programs = _LIST[model.family](model, parts, shape, batch_size, uses_cfg)
    programs.sort(key=lambda program: _ORDER.index(str(program.key[0])))
    stages = [
        Stage(
            name=str(program.key[0]),
            program=program,
            components=_find_components(parts, program),
            runs=_count_runs(model, str(program.key[0])),
        )
        for program in programs
    ]
    return _divide_between_experts(model, parts, shape, stages)


def _count_runs(model: Model, stage: str) -> int:
    if stage == "denoise":
        return model.steps
    is_optional = stage == "preview" or (stage in ("image", "condition", "reference") and not model.min_images)
    return 0 if is_optional else 1


_ORDER = ("encode", "image", "condition", "reference", "denoise", "preview", "decode")


def _describe_sdxl(_model: Model, folder: Path, mesh: Mesh) -> Any:
    return build_sdxl(
        folder,
        mesh=mesh,
        stages=STAGES,
        tokenizers=(),
        text_length=_read_length(folder),
        place=describe_component,
    )


def _describe_flux2(_model: Model, folder: Path, mesh: Mesh) -> Any:
    return build_flux2(
        folder,
        mesh=mesh,
        stages=STAGES,
        tokenizer=None,
        text_length=min(MAX_TEXT_LENGTH, _read_length(folder)),
        place=describe_component,
    )


def _describe_wan(model: Model, folder: Path, mesh: Mesh) -> Any:
    return build_wan(
        folder,
        model,
        mesh=mesh,
        stages=STAGES,
        tokenizer=None,
        text_length=min(model.text_length, _read_length(folder)),
        learnt_previews=folder,
        place=describe_component,
    )


def _read_length(folder: Path) -> int:
    """Tokens a prompt may have, as the tokenizer's settings say."""
    return int(read_json(folder / "tokenizer" / "tokenizer_config.json")["model_max_length"])


def _list_sdxl(_model: Model, parts: Any, shape: Shape, batch_size: int, uses_cfg: bool) -> list[Program]:  # noqa: FBT001 - one of a table
    layout = sdxl_programs.lay_out(parts, shape, batch_size=batch_size, uses_cfg=uses_cfg)
    return list(sdxl_programs.list_programs(parts, layout))


def _list_flux2(model: Model, parts: Any, shape: Shape, batch_size: int, uses_cfg: bool) -> list[Program]:  # noqa: FBT001 - one of a table
    """Denoising without references, and the encoder that an edit of one picture would need."""
    layout = flux2_programs.lay_out(parts, shape, batch_size=batch_size, uses_cfg=uses_cfg)
    picture = choose_references(model, [(shape.width, shape.height)])
    edit = flux2_programs.lay_out(parts, shape, batch_size=batch_size, uses_cfg=uses_cfg, references=picture)
    references = [program for program in flux2_programs.list_programs(parts, edit) if program.key[0] == "reference"]
    return [*flux2_programs.list_programs(parts, layout), *references]


def _list_wan(_model: Model, parts: Any, shape: Shape, batch_size: int, uses_cfg: bool) -> list[Program]:  # noqa: FBT001 - one of a table
    layout = wan_programs.lay_out(parts, shape, batch_size=batch_size, uses_cfg=uses_cfg)
    return list(wan_programs.list_programs(parts, layout))


_DESCRIBE: Mapping[str, Callable[[Model, Path, Mesh], Any]] = {
    "sdxl": _describe_sdxl,
    "flux2": _describe_flux2,
    "wan": _describe_wan,
}
_LIST: Mapping[str, Callable[[Model, Any, Shape, int, bool], list[Program]]] = {
    "sdxl": _list_sdxl,
    "flux2": _list_flux2,
    "wan": _list_wan,
}


def _find_components(parts: Any, program: Program) -> tuple[str, ...]:
    """By the parameters' names among the arguments; of two experts alike, the first."""
    found = []
    for argument in program.arguments:
        if isinstance(argument, Mapping):
            names = (name for name, weights in parts.weights.items() if weights.keys() == argument.keys())
            found += [name for name in names if name not in found][:1]
    return tuple(found)


def _divide_between_experts(model: Model, parts: Any, shape: Shape, stages: Sequence[Stage]) -> list[Stage]:
    """Two experts run one program, each with its own weights and its own part of the steps."""
    divided: list[Stage] = []
    for stage in stages:
        divided.append(stage)
        if stage.name == "denoise" and "transformer_2" in parts.weights:
            first = _count_first_steps(model, parts, shape)
            second = replace(stage, name="denoise_2", components=("transformer_2",), runs=stage.runs - first)
            divided[-1:] = [replace(stage, runs=first), second]
    return divided


def _count_first_steps(model: Model, parts: Any, shape: Shape) -> int:
    schedule = build_schedule(
        model.scheduler,
        parts.scheduler_config,
        steps=model.steps,
        flow_shift=model.choose_flow_shift(str(shape)),
    )
    timesteps = schedule.table[: schedule.steps, COLUMNS.index("timestep")]
    return int((timesteps >= parts.boundary_timestep).sum())
