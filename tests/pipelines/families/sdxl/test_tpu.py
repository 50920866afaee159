"""The programs the worker runs, compiled by the real TPU compiler for chips that are not here."""

from typing import Any

import pytest

from pipelines.families.unet.programs import lay_out, list_programs
from pipelines.models.catalog import Catalog
from pipelines.plan.topologies import find_devices, find_topology
from pipelines.registry import describe_parts
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.taps import FLAT_NDIM
from pipelines.runtime.programs.compiled import lower
from tests.kept_programs import compile_for_tpu

pytestmark = pytest.mark.tpu_aot


def test_a_step_compiles_for_v6e_8_with_the_guidance_pair_on_dp_and_rows_on_sp(
    v6e_8: list[Any], local_catalog: Catalog
) -> None:
    """The other programs are compiled where `plan` and `compile` are tested."""
    model = local_catalog.get("tiny")
    parts = describe_parts(model, build_mesh("dp=2,sp=4", devices=v6e_8))
    layout = lay_out(parts, model.default_shape, batch_size=1, uses_cfg=True)
    programs = {program.key[0]: program for program in list_programs(parts, layout)}
    assert programs.keys() == {"encode", "condition", "denoise", "preview", "decode"}
    step = programs["denoise"]
    text = compile_for_tpu(lower(step), v6e_8[0], step.options)
    assert "convolve_taps" in text
    assert parts.weights["unet"]["conv_in.weight"].ndim == FLAT_NDIM  # once when it is loaded, not at every job
    assert "collective-permute" in text  # the halos of convolutions over split rows
    assert "all-reduce" in text or "all-gather" in text  # the statistics of norms over split rows


@pytest.mark.parametrize(
    ("topology", "mesh", "kib"),
    [("v6e-8", "dp=2,sp=4", None), ("v6e-8", "dp=8", "15360"), ("v5p-8", "dp=2,sp=2", "12288")],
)
def test_a_step_has_short_code_where_it_would_be_too_long(
    local_catalog: Catalog, topology: str, mesh: str, kib: str | None
) -> None:
    model = local_catalog.get("tiny")
    parts = describe_parts(model, build_mesh(mesh, devices=find_devices(find_topology(topology))))
    layout = lay_out(parts, model.default_shape, batch_size=1, uses_cfg=True)
    (step,) = (program for program in list_programs(parts, layout) if program.key == layout.denoise_key)
    assert step.options.get("xla_tpu_scoped_vmem_limit_kib") == kib
