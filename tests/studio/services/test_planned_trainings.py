"""What a training takes before any was measured: by the plan that ships, for these chips and this model alone."""

from dataclasses import replace
from typing import Any

import pytest

from pipelines.models.catalog import Catalog
from pipelines.plan.topologies import find_topology
from pipelines.plan.training import SHIPPED, find, list_answers
from pipelines.plan.training_matrix import list_trainings
from pipelines.plan.training_report import count_hours
from pipelines.training.batch_size import choose_usual_batch
from studio.services.planned_trainings import PlannedStep, find_step

V6E = {"kind": "TPU v6 lite"}
V5P = "v5p-8"


def test_it_is_what_the_command_says(catalog: Catalog) -> None:
    question = next(one for one in list_trainings() if (one.model, one.kind) == ("sdxl-base", "lora"))
    answer = find(SHIPPED, question)
    assert answer is not None and answer.fits(find_topology("v6e-8"))
    planned = find_step(catalog.get("sdxl-base"), [V6E] * 8, rank=16)
    assert planned is not None and not planned.is_about
    assert 800 * planned.step_s / 3600 == count_hours(answer, 800)
    other = find_step(catalog.get("sdxl-base"), [V6E] * 8, rank=32)
    assert other is not None and (other.step_s, other.is_about) == (planned.step_s, True)


@pytest.mark.parametrize(("model", "planned_batch"), [("flux2-dev", 4), ("flux2-klein-4b", 8)])
def test_on_few_devices_it_is_about_that_of_the_batch_that_most_trainings_have(
    catalog: Catalog, model: str, planned_batch: int
) -> None:
    answer = next(one for one in list_answers(SHIPPED) if (one.question.model, one.question.topology) == (model, V5P))
    assert answer.question.batch_size == planned_batch and answer.step_s is not None
    planned = find_step(catalog.get(model), [{"kind": "TPU v5"}] * 4, rank=16)
    assert planned == PlannedStep(step_s=answer.step_s * 8 / planned_batch, is_about=True)


def test_every_plan_of_a_lora_is_told_but_those_of_smaller_videos_than_a_model_learns(catalog: Catalog) -> None:
    kinds = {"v6e-8": ("TPU v6 lite", 8), V5P: ("TPU v5", 4)}
    silent: set[str] = set()
    for question in (answer.question for answer in list_answers(SHIPPED) if answer.question.kind == "lora"):
        kind, count = kinds[question.topology]
        if find_step(catalog.get(question.model), [{"kind": kind}] * count, rank=16) is None:
            silent.add(question.model)
    assert silent == {"wan2.1-14b"}, "as studio/docs/training.md says"
    assert str(catalog.get("wan2.1-14b").default_shape) != "832x480x33"


@pytest.mark.parametrize("pictures", range(1, 60))
def test_with_eight_devices_or_more_the_batch_does_not_depend_on_the_pictures(pictures: int) -> None:
    assert [choose_usual_batch(pictures, unit=unit) for unit in (8, 16, 32)] == [8, 16, 32]


@pytest.mark.parametrize(
    ("model", "kind", "count"),
    [
        ("sdxl-base", "TPU v6 lite", 4),  # another machine
        ("sdxl-base", "cpu", 8),
        ("sd15", "TPU v6 lite", 8),  # no plan ships
    ],
)
def test_nothing_is_told_of_what_was_not_planned(catalog: Catalog, model: str, kind: str, count: int) -> None:
    devices: list[dict[str, Any]] = [{"kind": kind}] * count
    assert find_step(catalog.get(model), devices, rank=16) is None


def test_a_model_that_was_changed_is_another(catalog: Catalog) -> None:
    assert find_step(replace(catalog.get("sdxl-base"), text_length=99), [V6E] * 8, rank=16) is None
