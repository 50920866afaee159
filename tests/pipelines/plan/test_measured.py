"""What was measured on a machine counts for plans of that machine, and of no other."""

import dataclasses
from pathlib import Path

import pytest

from pipelines.models.catalog import Catalog
from pipelines.plan import measured
from pipelines.plan.measured import Measured
from pipelines.plan.planner import make_plan, to_json
from pipelines.plan.report import describe_measured
from pipelines.plan.topologies import TOPOLOGIES, V6E, V7X, find_chip
from pipelines.plan.verdicts import read_versions
from pipelines.stages import ignore_progress

STEP = Measured(
    model="sdxl-base", shape="1024x1024", stage="denoise", mesh="dp=2,sp=4", batch_size=1, kind="TPU v6 lite",
    devices=8,
    versions={"jax": "1"}, runs=30, ms=11.5, estimated_ms=9.9, compile_s=200.0, at=1.0,
)  # fmt: skip
ASKED = {"model": "sdxl-base", "shape": "1024x1024", "mesh": "dp=2,sp=4", "batch_size": 1, "versions": {"jax": "1"}}


def test_a_measurement_takes_the_place_of_an_earlier_one_of_the_same_program(tmp_path: Path) -> None:
    measured.keep(tmp_path, [STEP, dataclasses.replace(STEP, stage="decode", ms=80.0)])
    measured.keep(tmp_path, [dataclasses.replace(STEP, ms=12.5, at=2.0)])
    assert {one.stage: one.ms for one in measured.read(tmp_path)} == {"decode": 80.0, "denoise": 12.5}
    (tmp_path / measured.FILE).write_text("[{}]", "utf-8")
    assert measured.read(tmp_path) == []


@pytest.mark.parametrize(
    "other",
    [{"kind": "TPU v5 lite"}, {"devices": 4}, {"versions": {"jax": "2"}}, {"mesh": "tp=8"}, {"ms": None}],
    ids=lambda other: next(iter(other)),
)
def test_another_machine_compiler_or_mesh_is_another_program(other: dict[str, object]) -> None:
    topology = TOPOLOGIES["v6e-8"]
    assert measured.choose([STEP], topology, **ASKED) == {"denoise": 11.5}
    assert measured.choose([dataclasses.replace(STEP, **other)], topology, **ASKED) == {}


def test_chips_are_known_by_jaxs_names_of_their_devices() -> None:
    assert find_chip("TPU v6 lite") is V6E and find_chip("TPU7x") is V7X and find_chip("NVIDIA H100") is None


def test_a_plan_of_this_machine_says_what_was_measured_here(tmp_path: Path, local_catalog: Catalog) -> None:
    model, topology = local_catalog.get("tiny"), TOPOLOGIES["cpu-1"]
    own = dataclasses.replace(
        STEP,
        model=model.id,
        shape=str(model.default_shape),
        mesh="1 device",
        kind="cpu",
        devices=1,
        versions=read_versions(),
    )
    stages = ("encode", "denoise")
    measured.keep(tmp_path, [dataclasses.replace(own, stage=name, ms=1000.0) for name in stages])
    made = make_plan(
        model,
        topology,
        shape=model.default_shape,
        mode="latency",
        mesh=None,
        cache_dir=tmp_path,
        on_progress=ignore_progress,
    )
    assert made.mesh == own.mesh
    told = to_json(made)
    assert {one["stage"]: one["measured_ms"] for one in told["stages"] if one["measured_ms"]} == dict.fromkeys(
        stages, 1000
    )
    assert told["measured_total_s"] is None, "the decoder is not measured"
    assert describe_measured(made) == "Measured on this machine: encode 1000.00 ms, denoise 1000.00 ms."
    whole = [dataclasses.replace(one, measured_ms=500.0) if one.stage.name == "decode" else one for one in made.stages]
    assert dataclasses.replace(made, stages=tuple(whole)).measured_total_s == pytest.approx(1.5 + model.steps)
