"""Answers that come with Lumesh: what is kept of a plan is enough to make it again without compiling."""

import json
from collections import Counter
from pathlib import Path

import pytest

from pipelines.catalog import Shape, load_catalog
from pipelines.plan.answers import (
    SHIPPED,
    add_lines,
    collect_verdicts,
    describe,
    read_estimate,
    read_lines,
    write_estimate,
)
from pipelines.plan.estimate import Cost, Estimate
from pipelines.plan.matrix import write_matrix
from pipelines.plan.planner import Plan, make_plan
from pipelines.plan.topologies import TOPOLOGIES
from pipelines.stages import Progress

pytestmark = pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache")


def plan(cache_dir: Path, *, known: Path, compiled: list[str]) -> Plan:
    def note(progress: Progress) -> None:
        compiled.append(progress.detail)

    return make_plan(
        load_catalog().get("demo-flux2"),
        TOPOLOGIES["v6e-1"],
        shape=Shape.parse("128x128"),
        mode="latency",
        mesh=None,
        cache_dir=cache_dir,
        on_progress=note,
        known=collect_verdicts(read_lines(known)),
    )


@pytest.mark.tpu_aot
def test_a_plan_is_made_again_from_its_line(tmp_path: Path) -> None:
    file, compiled = tmp_path / "answers.jsonl", list[str]()
    made = plan(tmp_path / "one", known=file, compiled=compiled)
    assert compiled
    lines = add_lines(file, [describe(made)])
    assert add_lines(file, [describe(made)]) == lines == read_lines(file)
    page = write_matrix(lines, command="plan")
    assert "| demo-flux2 | 128x128 | 1 device | all |" in page
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
