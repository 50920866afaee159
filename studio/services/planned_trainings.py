"""What a step of a model's trainings takes on the worker's chips, by the plans of trainings that ship.

It is told before any training of the model was measured here, and is marked as the TPU compiler's estimate. Read
without jax.
Not here: what was measured (jobs/costs/lessons.py), plans of other settings (`plan --train`).
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.models.catalog import Model, load_catalog
from pipelines.models.fingerprints import fingerprint_learning
from pipelines.plan.topologies import find_machine
from pipelines.plan.training import SHIPPED, TrainingAnswer, TrainingQuestion, find

RANK = 16
"""Of the LoRAs that are planned; others take nearly the same time, as they fill no more than a part of the lanes."""
BATCH_DEVICES = 8
"""With so many devices, or more, a training of the studio takes a picture a device (training/checks.py)."""


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """An estimate: `rank` is that of the LoRA which was planned, each picture shown once."""

    step_s: float
    rank: int


def find_step(model: Model, devices: Sequence[Mapping[str, Any]], *, hosts: int = 1) -> PlannedStep | None:
    """Finds the plan of a LoRA of this model on all of these devices; None where none ships or it does not fit."""
    kinds = {str(device["kind"]) for device in devices}
    count = len(devices) * hosts
    if len(kinds) != 1 or count < BATCH_DEVICES:
        return None
    machine = find_machine(kinds.pop(), count)
    answer = _find(model.id, machine.name, str(model.default_shape), count) if machine is not None else None
    if answer is None or machine is None or answer.step_s is None or not answer.fits(machine):
        return None
    return PlannedStep(step_s=answer.step_s, rank=RANK) if _is_as_shipped(model) else None


@functools.cache
def _find(model: str, topology: str, shape: str, batch_size: int) -> TrainingAnswer | None:
    question = TrainingQuestion(
        model=model, kind="lora", topology=topology, shape=shape, batch_size=batch_size, rank=RANK
    )
    return find(SHIPPED, question)


def _is_as_shipped(model: Model) -> bool:
    return _fingerprint_shipped(model.id) == fingerprint_learning(model)


@functools.cache
def _fingerprint_shipped(model_id: str) -> str | None:
    return next((fingerprint_learning(one) for one in load_catalog().models if one.id == model_id), None)
