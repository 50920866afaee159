"""What a training takes before any was measured: by the plan that ships, for these chips and this model alone."""

from dataclasses import replace
from typing import Any

import pytest

from pipelines.models.catalog import Catalog
from pipelines.plan.topologies import find_topology
from pipelines.plan.training import SHIPPED, find
from pipelines.plan.training_matrix import list_trainings
from pipelines.plan.training_report import count_hours
from studio.services.planned_trainings import find_step

V6E = {"kind": "TPU v6 lite"}


def test_it_is_what_the_command_says(catalog: Catalog) -> None:
    question = next(one for one in list_trainings() if (one.model, one.kind) == ("sdxl-base", "lora"))
    answer = find(SHIPPED, question)
    assert answer is not None and answer.fits(find_topology("v6e-8"))
    planned = find_step(catalog.get("sdxl-base"), [V6E] * 8)
    assert planned is not None
    assert 800 * planned.step_s / 3600 == count_hours(answer, 800)


@pytest.mark.parametrize(
    ("model", "kind", "count"),
    [
        ("sdxl-base", "TPU v6 lite", 4),  # another machine
        ("sdxl-base", "cpu", 8),
        ("sd15", "TPU v6 lite", 8),  # no plan ships
        ("flux2-dev", "TPU v5", 4),  # of which the batch depends on the pictures
    ],
)
def test_nothing_is_told_of_what_was_not_planned(catalog: Catalog, model: str, kind: str, count: int) -> None:
    devices: list[dict[str, Any]] = [{"kind": kind}] * count
    assert find_step(catalog.get(model), devices) is None


def test_a_model_that_was_changed_is_another(catalog: Catalog) -> None:
    assert find_step(replace(catalog.get("sdxl-base"), text_length=99), [V6E] * 8) is None
