"""Answers that come with Lumesh: what is kept of a plan is enough to make it again without compiling."""

import json
from collections import Counter
from pathlib import Path

import pytest

from pipelines.models.catalog import Shape, load_catalog
from pipelines.plan.abstract import list_stages
from pipelines.plan.answers import (
    SHIPPED,
    add_lines,
    collect_verdicts,
    describe,
)
from pipelines.plan.compiler import Compiler
from pipelines.plan.estimate import Cost, Estimate
from pipelines.plan.lines import read_estimate, read_lines, write_estimate
from pipelines.plan.matrix import write_matrix
from pipelines.plan.planner import Plan, choose_mesh, make_plan
from pipelines.plan.topologies import TOPOLOGIES
from pipelines.recipes.cache_kinds import MAGCACHE
from pipelines.registry import describe_parts
from pipelines.runtime.programs.compiled import lower
from pipelines.stages import Progress

pytestmark = pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache")


def plan(cache_dir: Path, *, known: Path, compiled: list[str]) -> Plan:
    def note(progress: Progress) -> None:
        compiled.append(progress.detail)

    return make_plan(
        load_catalog().get("demo-flux2"),
        TOPOLOGIES["v6e-1"],
        shape=Shape.parse("256x256"),
        mode="latency",
        mesh=None,
        cache_dir=cache_dir,
        on_progress=note,
        known=collect_verdicts(read_lines(known)),
    )


@pytest.mark.tpu_aot
def test_a_plan_is_made_again_from_its_line(tmp_path: Path) -> None:
    """Only the quickest stages are compiled: the others are in the line that comes with Lumesh."""
    file, compiled = tmp_path / "answers.jsonl", list[str]()
    (shipped,) = (line for line in read_lines(SHIPPED) if (line["model"], line["topology"]) == ("demo-flux2", "v6e-1"))
    slow = [stage for stage in shipped["stages"] if stage["stage"] in ("reference", "decode")]
    file.write_text(json.dumps(shipped | {"stages": slow}), "utf-8")
    made = plan(tmp_path / "one", known=file, compiled=compiled)
    assert compiled == ["encode", "denoise", "preview"]
    lines = add_lines(file, [describe(made)])
    assert add_lines(file, [describe(made)]) == lines == read_lines(file)
    page = write_matrix(lines, command="plan")
    assert "| demo-flux2 | 256x256 | 1 device | all |" in page
    compiled.clear()
    again = plan(tmp_path / "other", known=file, compiled=compiled)
    assert not compiled
    assert describe(again) == json.loads(json.dumps(describe(made)))


def test_collectives_are_kept_too() -> None:
    run = Cost(compute_s=0.5, exposed_s=0.1, counts=Counter({"all-gather": 3}), moved_bytes=Counter({"all-gather": 9}))
    found = Estimate(run=run, once=Cost(attention_s=0.2))
    assert read_estimate(json.loads(json.dumps(write_estimate(found)))) == found


def test_what_was_estimated_otherwise_is_not_known(tmp_path: Path) -> None:
    lines = read_lines(SHIPPED)[:1]
    assert collect_verdicts(lines)
    assert not collect_verdicts([line | {"estimator": 0} for line in lines])


def test_lines_of_earlier_programs_are_marked() -> None:
    line, *_ = read_lines(SHIPPED)
    of_now = {name: value for name, value in line.items() if name != "is_earlier"}
    assert "†" not in write_matrix([of_now], command="plan")
    page = write_matrix([of_now | {"is_earlier": True}], command="plan")
    assert f"| {line['shape']} † |" in page
    assert "† One of its programs has changed" in page


def test_the_shipped_answers_are_of_models_and_shapes_that_there_are() -> None:
    models = {model.id: model for model in load_catalog().models}
    for line in read_lines(SHIPPED):
        assert line["shape"] in map(str, models[line["model"]].shapes)
        assert line["topology"] in TOPOLOGIES
        assert line["steps"] == models[line["model"]].steps


def test_the_page_is_what_the_shipped_answers_say() -> None:
    page = SHIPPED.with_name("MATRIX.md").read_text("utf-8")
    assert page == write_matrix(read_lines(SHIPPED), command="python -m pipelines plan --matrix")


@pytest.mark.tpu_aot
@pytest.mark.parametrize(
    ("model_id", "cache"), [("demo-sdxl", "off"), ("demo-flux2", "off"), ("demo-wan", "off"), ("demo-wan", "mild")]
)
def test_the_shipped_answers_are_of_todays_programs(tmp_path: Path, model_id: str, cache: str) -> None:
    """Of the demos, which have every kind of program and are traced in seconds."""
    model = load_catalog().get(model_id)
    lines = [line for line in read_lines(SHIPPED) if line["model"] == model_id and line["topology"] == "v6e-8"]
    lines = [line for line in lines if line.get("step_cache", "off") == cache]
    known = {stage["program"] for line in lines for stage in line["stages"] if not line.get("is_earlier")}
    if not known:
        pytest.skip("its line says that it is of earlier programs")
    mesh, batch_size = choose_mesh(model, TOPOLOGIES["v6e-8"], mode="latency", mesh=None)
    compiler = Compiler(TOPOLOGIES["v6e-8"], cache_dir=tmp_path)
    parts, kind = describe_parts(model, mesh), "" if cache == "off" else MAGCACHE
    stages = list_stages(model, parts, model.default_shape, batch_size=batch_size, cache_kind=kind)
    assert {compiler.name(stage.program, lower(stage.program)) for stage in stages} <= known


def test_a_step_cache_halves_what_wan_takes_by_estimate() -> None:
    lines = (line for line in read_lines(SHIPPED) if (line["model"], line["shape"]) == ("wan2.1-14b", "1280x720x81"))
    total_s = {
        line.get("step_cache", "off"): line["estimated_total_s"] for line in lines if line["topology"] == "v6e-8"
    }
    assert total_s["mild"] <= 80
    assert total_s["strong"] < total_s["mild"] < 0.55 * total_s["off"]


# Milliseconds of one run on a v6e-8 that its designs were made for: (model, shape, mode, stage) -> at most so many.
GOALS = {
    ("sdxl-base", "1024x1024", "latency", "denoise"): 9.5,
    ("sdxl-base", "1024x1024", "throughput", "denoise"): 46,
    ("flux2-dev", "1024x1024", "latency", "denoise"): 85,
    ("flux2-dev", "1024x1024", "latency", "encode"): 60,
    ("flux2-klein-4b", "1024x1024", "latency", "denoise"): 35,
    (
        "wan2.1-14b",
        "1280x720x81",
        "latency",
        "denoise",
    ): 3010,  # 2997 with 226 tokens of text, 3002 with its authors' 512
    ("wan2.1-14b", "832x480x81", "latency", "denoise"): 800,
    ("wan2.1-14b", "1280x720x81", "latency", "decode"): 800,
}


@pytest.mark.parametrize("goal", GOALS, ids=" ".join)
def test_the_goals_for_eight_chips_are_met_by_estimate(goal: tuple[str, str, str, str]) -> None:
    model, shape, mode, name = goal
    (line,) = (
        line
        for line in read_lines(SHIPPED)
        if (line["model"], line["shape"], line["mode"], line["topology"]) == (model, shape, mode, "v6e-8")
        and "step_cache" not in line
    )
    (stage,) = (stage for stage in line["stages"] if stage["stage"] == name)
    found = read_estimate(stage["estimate"])
    assert 1000 * found.run.total_s <= GOALS[goal]


def test_programs_are_no_longer_than_they_may_be() -> None:
    """The longest encodes the first and the last picture of 81 frames of 720p, on v5p."""
    too_long = {
        (line["model"], line["shape"], line["topology"], line["mode"], stage["stage"])
        for line in read_lines(SHIPPED)
        for stage in line["stages"]
        if not line.get("is_earlier") and stage["answer"] and stage["answer"]["code_bytes"] > 106e6
    }
    assert not too_long
