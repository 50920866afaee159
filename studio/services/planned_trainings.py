"""What a step of a model's trainings takes on the worker's chips, by the plans of trainings that ship.

It is told before any training of the model was measured here, and is marked as the TPU compiler's estimate. A plan
counts for the size that the model has by default: a video of another size or length takes several times as long or as
short. Read without jax.
Not here: what was measured (jobs/costs/lessons.py), plans of other settings (`plan --train`).
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.models.catalog import Model, load_catalog
from pipelines.models.fingerprints import fingerprint_learning
from pipelines.plan.topologies import find_machine
from pipelines.plan.training import SHIPPED, TrainingAnswer, list_answers
from pipelines.training.batch_size import BATCH_SIZE, choose_usual_batch


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """An estimate for a step that shows each picture once; `is_about`: of another rank, or not surely of this batch."""

    step_s: float
    is_about: bool


def find_step(model: Model, devices: Sequence[Mapping[str, Any]], *, rank: int, hosts: int = 1) -> PlannedStep | None:
    """Finds the plan of a LoRA of this model on all of these devices; None where none ships or it does not fit.

    On few devices the batch depends on the number of pictures: the most usual is told, in proportion to the planned
    one where that is another.
    """
    kinds = {str(device["kind"]) for device in devices}
    count = len(devices) * hosts
    machine = find_machine(kinds.pop(), count) if len(kinds) == 1 else None
    if machine is None:
        return None
    batch_size = choose_usual_batch(0, unit=count)
    fitting = [plan for plan in _list_plans(model.id, machine.name, str(model.default_shape)) if plan.fits(machine)]
    plan = min(fitting, key=lambda plan: abs(plan.question.batch_size - batch_size), default=None)
    if plan is None or plan.step_s is None or not _is_as_shipped(model):
        return None
    share = batch_size / plan.question.batch_size
    is_about = count < BATCH_SIZE or share != 1 or plan.question.rank != rank
    return PlannedStep(step_s=plan.step_s * share, is_about=is_about)


@functools.cache
def _list_plans(model: str, topology: str, shape: str) -> tuple[TrainingAnswer, ...]:
    """Returns the plans of LoRAs that ship, with settings that trainings of the studio have."""
    return tuple(
        answer
        for answer in list_answers(SHIPPED)
        if (answer.question.model, answer.question.topology, answer.question.shape) == (model, topology, shape)
        and answer.question.kind == "lora"
        and not answer.question.others
    )


def _is_as_shipped(model: Model) -> bool:
    return _fingerprint_shipped(model.id) == fingerprint_learning(model)


@functools.cache
def _fingerprint_shipped(model_id: str) -> str | None:
    return next((fingerprint_learning(one) for one in load_catalog().models if one.id == model_id), None)
