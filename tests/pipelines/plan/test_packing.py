"""What goes into a pack: every program the worker would want for those shapes, each once."""

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.pictures.references import choose_programs
from pipelines.plan.packing import list_programs, outputs_at_once
from pipelines.registry import describe_parts
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.programs.aot_packs import name_program


@pytest.mark.parametrize(
    ("model_id", "entries", "names"),
    [
        (
            "demo-sdxl",
            ["128x128", "256x256"],
            [
                "encode",
                "denoise 128x128 1 True",
                "preview 128x128 1",
                "condition 128x128",
                "decode 128x128 1",
                "denoise 256x256 1 True",
                "preview 256x256 1",
                "condition 256x256",
                "decode 256x256 1",
            ],
        ),
        (
            "flux2-klein-4b",
            ["512x512", "512x512+1"],
            [
                "encode",
                "denoise 512x512 1 False None",
                "preview 512x512 1",
                "decode 512x512 1",
                "denoise 512x512 1 False (1, 128, 32, 32)",
                "reference (1, 128, 32, 32)",
            ],
        ),
        (
            "wan2.1-i2v-14b",
            ["832x480x33"],
            [
                "encode",
                "denoise 832x480x33 1 True",
                "preview 832x480x33 1",
                "condition 832x480x33",
                "image",
                "decode 832x480x33 1",
            ],
        ),
    ],
)
def test_a_pack_has_each_program_of_its_shapes_once(model_id: str, entries: list[str], names: list[str]) -> None:
    model = load_catalog().get(model_id)
    parts = describe_parts(model, build_mesh("dp=1"))
    programs = list_programs(model, parts, choose_programs(entries, model), batch_size=1)
    assert [name_program(program) for program in programs] == names


def test_a_pack_for_throughput_has_the_programs_that_its_worker_runs(load_family: Callable[..., Any]) -> None:
    model, family = load_catalog().get("demo-sdxl"), load_family(mesh="throughput")
    parts = describe_parts(model, build_mesh(family.mesh))
    assert outputs_at_once(model, parts) == family.outputs_at_once == 8
