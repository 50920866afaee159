"""A pack is made from configs alone; a model that learns its preview, or brings it, finds every program in it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.families.flux2 import programs
from pipelines.families.flux2.preview import guess_map
from pipelines.models.catalog import Catalog
from pipelines.registry import describe_parts
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.programs.compiled import lower
from pipelines.runtime.sampling.preview import write_map


def describe_programs(parts: Any, model: Any) -> dict[str, str]:
    layout = programs.lay_out(parts, model.default_shape, batch_size=1, uses_cfg=True)
    return {str(one.key): one.describe(lower(one)) for one in programs.list_programs(parts, layout)}


def test_a_stored_preview_changes_no_program(
    flux2_catalog: Catalog, load_flux2: Callable[..., Any], tmp_path: Path
) -> None:
    family, model = load_flux2(), flux2_catalog.get("klein")
    assert model.path is not None
    packed = describe_programs(describe_parts(model, build_mesh("dp=1")), model)
    assert describe_programs(family.parts, model) == packed  # what is learnt later is an input of them
    folder = tmp_path / "klein"
    folder.mkdir()
    for own in model.path.iterdir():
        (folder / own.name).symlink_to(own)
    write_map(guess_map(family.parts.config_of("transformer").in_channels), folder)
    bringing = describe_parts(replace(model, path=folder), build_mesh("dp=1"))
    assert describe_programs(bringing, model) == packed
