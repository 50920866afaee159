"""Which mesh a plan is made for, and what its stages add up to."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from pipelines.errors import LumeshError
from pipelines.models.catalog import load_catalog
from pipelines.plan import topologies
from pipelines.plan.abstract import Stage
from pipelines.plan.answers import describe
from pipelines.plan.estimate import Cost, Estimate
from pipelines.plan.matrix import write_matrix
from pipelines.plan.placement import Placement
from pipelines.plan.planner import Plan, StagePlan, choose_mesh, to_json
from pipelines.plan.report import print_plan
from pipelines.plan.topologies import TOPOLOGIES
from pipelines.plan.verdicts import Answer, Verdict
from pipelines.runtime.devices.mesh import describe_mesh
from pipelines.runtime.programs.compiled import Program


@pytest.mark.tpu_aot
@pytest.mark.parametrize(
    ("model_id", "mode", "mesh", "batch_size"),
    [
        ("sdxl-base", "latency", "dp=2,sp=4", 1),
        ("sdxl-base", "throughput", "dp=8", 8),
        ("flux2-klein-4b", "throughput", "dp=8", 8),
        ("flux2-dev", "latency", "tp=8", 1),
        ("flux2-dev", "throughput", "tp=8", 1),  # weights of 99 GB leave no room for a second output
        ("wan2.1-1.3b", "throughput", "dp=2,sp=4", 1),  # its two chips of `dp` share the branches of guidance
    ],
)
def test_throughput_spreads_outputs_as_far_as_the_weights_allow(
    model_id: str, mode: str, mesh: str, batch_size: int
) -> None:
    built, batch = choose_mesh(load_catalog().get(model_id), TOPOLOGIES["v6e-8"], mode=mode, mesh=None)
    assert (describe_mesh(built), batch) == (mesh, batch_size)


def test_a_worker_that_is_told_so_spreads_outputs_too(load_family: Callable[..., Any]) -> None:
    assert load_family(mesh="throughput").mesh == "dp=8"


def make_stage(*, limit_bytes: int | None = 1000, refusal: str = "") -> StagePlan:
    """Weights of 600 bytes, inputs of 100, 200 of working memory, 50 of code; 25 steps of 50 ms, 4 ms a chunk."""
    program = Program(key=("denoise",), function=print, arguments=())
    answer = Answer(compile_s=1.0, arguments_bytes=700, temp_bytes=200, code_bytes=50, refusal=refusal)
    return StagePlan(
        stage=Stage(name="denoise", program=program, components=("unet",), runs=25),
        verdict=Verdict(
            program="",
            answer=answer,
            estimate=Estimate(run=Cost(compute_s=0.03, exposed_s=0.02), once=Cost(compute_s=0.004)),
        ),
        weights_bytes=600,
        limit_bytes=limit_bytes,
    )


def test_inputs_count_as_working_memory() -> None:
    assert make_stage().hbm_bytes == {"weights": 600, "temp": 300, "code": 50, "total": 950}


def test_weights_that_a_program_does_not_take_are_there_all_the_same() -> None:
    found = replace(make_stage(), weights_bytes=900)
    assert found.hbm_bytes == {"weights": 900, "temp": 200, "code": 50, "total": 1150}


def test_what_a_refusal_wanted_holds_the_weights() -> None:
    stage = make_stage()
    refused = Answer(compile_s=1.0, arguments_bytes=0, temp_bytes=1100, code_bytes=0, refusal="RESOURCE_EXHAUSTED")
    found = replace(stage, verdict=replace(stage.verdict, answer=refused, estimate=None))
    assert found.hbm_bytes == {"weights": 600, "temp": 500, "code": 0, "total": 1100}


def test_a_stage_fits_when_it_compiles_and_its_bytes_do() -> None:
    assert make_stage().fits
    assert make_stage(limit_bytes=None).fits
    assert not make_stage(limit_bytes=900).fits
    assert not make_stage(refusal="RESOURCE_EXHAUSTED").fits


def test_a_stage_takes_its_steps_and_what_is_around_each_chunk_of_them() -> None:
    assert make_stage().estimated_ms == pytest.approx(50)
    assert make_stage().estimated_s == pytest.approx(25 * 0.05 + 13 * 0.004)


def test_steps_that_reuse_earlier_ones_take_their_own_time() -> None:
    stage = make_stage()
    assert stage.estimate is not None
    reused = replace(stage.estimate, reused=Cost(compute_s=0.001))
    planned = replace(stage, stage=replace(stage.stage, reused=10), verdict=replace(stage.verdict, estimate=reused))
    assert planned.estimated_s == pytest.approx(15 * 0.05 + 10 * 0.001 + 9 * 0.004)


def test_what_comes_back_from_the_host_is_part_of_the_whole() -> None:
    model = load_catalog().get("sdxl-base")
    plan = Plan(
        model=model,
        shape=model.default_shape,
        topology=TOPOLOGIES["v6e-1"],
        mode="latency",
        mesh="1 device",
        batch_size=1,
        stages=(make_stage(),),
        placement=Placement(kind="unload_text_encoder", advice="", resident_bytes=900, moves_s=0.5),
    )
    assert plan.estimated_total_s == pytest.approx(0.5 + 25 * 0.05 + 13 * 0.004)
    assert (to_json(plan)["estimated_moves_s"], describe(plan)["estimated_moves_s"]) == (0.5, 0.5)
    with (console := Console(width=80)).capture() as printed:
        print_plan(plan, console)
    assert ["moves", "6.00", "500.00"] in [line.split() for line in printed.get().splitlines()]
    assert "at 12 GB/s a chip" in printed.get()
    page = write_matrix([describe(plan)], command="plan")
    assert "| 0.5 s | 1.8 s |" in page
    on_cpu = replace(plan, topology=TOPOLOGIES["cpu-1"])
    assert (on_cpu.estimated_moves_s, on_cpu.estimated_total_s) == (None, None)


def test_without_the_tpu_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topologies, "find_spec", lambda _name: None)
    assert topologies.find_devices(TOPOLOGIES["cpu-8"])
    with pytest.raises(LumeshError, match="not installed here") as refusal:
        topologies.find_devices(TOPOLOGIES["v6e-8"])
    assert "jax[tpu]==" in refusal.value.advice
