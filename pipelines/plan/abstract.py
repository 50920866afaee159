"""Lists the programs of a model described from its configs alone (registry.describe_parts), as stages of a job.

The loader's own code describes the model. The configs of the catalogue's models are shipped in presets/configs/, one
folder each in diffusers layout without weights; other models have their own folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.models.catalog import Model, Shape
from pipelines.pictures.references import choose_references
from pipelines.registry import find_architecture
from pipelines.runtime.programs.compiled import Program


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One program of a model, which takes the weights of `components`.

    `runs` is how often each output needs it: 0 for previews, and for encoding pictures that the model does not require.
    With a step cache `reused` of them take what an earlier one computed.
    """

    name: str
    program: Program
    components: tuple[str, ...]
    runs: int
    reused: int = 0


def count_parameters(parts: Any) -> dict[str, int]:
    """Maps component -> number of parameters in a checkpoint."""
    return {
        name: sum(int(np.prod(shape)) for shape in module.parameter_shapes().values())
        for name, module in parts.modules.items()
    }


def list_stages(
    model: Model,
    parts: Any,
    shape: Shape,
    *,
    batch_size: int,
    cache_kind: str = "",
    reused_steps: Sequence[int] = (),
) -> list[Stage]:
    """Lists every program that the worker would compile for this shape, in the order of a job.

    Two experts run one program, each with its own weights and its own part of the steps. With a `cache_kind` it is the
    denoiser's program with that step cache, of whose steps, from 0, `reused_steps` reuse earlier ones.
    """
    stages: list[Stage] = []
    further = {"cache_kind": cache_kind} if cache_kind else {}  # not every family can
    programs = sorted(_list_programs(model, parts, shape, batch_size=batch_size, **further), key=_find_place)
    for program in programs:
        name = str(program.key[0])
        if name != "denoise":
            runs = _count_runs(model, name)
            stages.append(Stage(name=name, program=program, components=_find_components(parts, program), runs=runs))
            continue
        shares = find_architecture(model).share_steps(model, parts, shape)
        first = 0
        for count, (component, steps) in enumerate(shares.items(), 1):
            title = name if count == 1 else f"{name}_{count}"
            reused = sum(first <= step < first + steps for step in reused_steps)
            stages.append(Stage(name=title, program=program, components=(component,), runs=steps, reused=reused))
            first += steps
    return stages


def _list_programs(model: Model, parts: Any, shape: Shape, *, batch_size: int, **further: Any) -> list[Program]:
    """Lists the programs without references, and the one that encodes an edit's picture of the output's size."""
    family, uses_cfg = find_architecture(model).programs, model.guidance_scale > 1
    layout = family.lay_out(parts, shape, batch_size=batch_size, uses_cfg=uses_cfg, **further)
    programs = list(family.list_programs(parts, layout))
    picture = choose_references(model, [(shape.width, shape.height)])
    if picture is None:
        return programs
    names = {program.key[0] for program in programs}
    edit = family.lay_out(parts, shape, batch_size=batch_size, uses_cfg=uses_cfg, references=picture)
    return programs + [one for one in family.list_programs(parts, edit) if one.key[0] not in names]


def _count_runs(model: Model, stage: str) -> int:
    is_optional = stage == "preview" or (stage in _READING and not model.min_images)
    return 0 if is_optional else 1


_READING = ("image", "condition", "reference")
_ORDER = ("encode", *_READING, "residual", "denoise", "preview", "decode")


def _find_place(program: Program) -> int:
    return _ORDER.index(str(program.key[0]))


def _find_components(parts: Any, program: Program) -> tuple[str, ...]:
    """Returns the components whose weights are among the program's arguments, matched by parameter names."""
    found = []
    for argument in program.arguments:
        if isinstance(argument, Mapping):
            names = (name for name, weights in parts.weights.items() if weights.keys() == argument.keys())
            found += [name for name in names if name not in found][:1]
    return tuple(found)
