"""Answers about trainings that come with Lumesh: of today's programs, and what the page says."""

from pathlib import Path

import pytest

from pipelines.commands.plan_training import describe_asked
from pipelines.models.catalog import load_catalog
from pipelines.plan.compiler import Compiler
from pipelines.plan.topologies import find_topology
from pipelines.plan.training import SHIPPED, find
from pipelines.plan.training_matrix import list_trainings, write_page
from pipelines.runtime.programs.compiled import lower
from tests.places import ROOT

TRACED = {("flux2-klein-4b", "lora", "v6e-8"), ("wan2.1-1.3b", "full", "v6e-8"), ("wan2.1-14b", "lora", "v5p-8")}


@pytest.mark.tpu_aot
@pytest.mark.parametrize(
    "question",
    [one for one in list_trainings() if (one.model, one.kind, one.topology) in TRACED],
    ids=lambda one: f"{one.model}-{one.kind}-{one.topology}",
)
def test_the_shipped_answers_are_of_todays_steps(tmp_path: Path, question) -> None:
    """These three are traced in a second each, and have all kernels but a UNet's."""
    shipped = find(SHIPPED, question)
    assert shipped is not None
    program = describe_asked(question, load_catalog().get(question.model)).program(shipped.remat)
    compiler = Compiler(find_topology(question.topology, trains=True), cache_dir=tmp_path)
    assert compiler.name(program, lower(program)) == shipped.program


def test_the_page_of_trainings_is_what_the_shipped_answers_say() -> None:
    options = "--answers pipelines/plan/training.jsonl --output pipelines/docs/training-plans.md"
    page = (ROOT / "pipelines" / "docs" / "training-plans.md").read_text("utf-8")
    assert page == write_page(SHIPPED, command=f"python -m pipelines plan --train --matrix {options}")
