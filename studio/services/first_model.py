"""Which model a studio starts with, and which one a new visitor's page opens with, when nobody has chosen yet.

The operator's `--model` comes first, then an admin's choice under System > Models. Without them, a TPU starts with the
best model that fits its chips, by the plans that come with Lumesh, and whose weights are on this machine; other devices
start with the catalogue's first, a demo.
Pure but for a look at the disk, so that the worker and the app come to the same answer.
Not here: loading it (worker/loop.py), a visitor's own choice (static/js/create/controls.js).
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipelines.files.whole import write_whole
from pipelines.mesh_text import asks_for_many
from pipelines.models.catalog import Catalog, Model
from pipelines.plan.topologies import CHIP_OF_KIND, TOPOLOGIES, Topology
from pipelines.runtime.weights.hub import is_here
from studio.services.shipped_plans import find_shipped
from studio.settings import Settings


def choose(
    settings: Settings,
    catalog: Catalog,
    devices: Sequence[Mapping[str, Any]],
    *,
    chips: int,
    has_weights: Callable[[Model], bool] = is_here,
) -> Model:
    """Returns the model to start with on these devices; raises ModelError when `--model` names none.

    The catalogue lists pictures before videos, and each from the smallest model to the best, so the last one is taken:
    of the models of pictures that fit, else of those of videos.
    """
    if settings.model is not None:
        return catalog.get(settings.model)
    chosen = read_choice(settings, catalog)
    if chosen is not None:
        return chosen
    machine = find_machine(devices, chips=chips)
    if machine is None:
        return catalog.default
    able = [
        model
        for model in catalog.models
        if not model.is_demo and not model.min_images and _fits(settings, model, machine) and has_weights(model)
    ]
    pictures = [model for model in able if not model.is_video]
    return (pictures or able or [catalog.default])[-1]


def choose_opening(settings: Settings, catalog: Catalog, default: Model | None, *, resident: str) -> str | None:
    """Returns the id of the model that a new visitor's page opens with; None while `default` is not known.

    It is the operator's, else the one in memory ("" when there is none), so that a newcomer's first click evicts
    nothing unless the operator wants it.
    """
    is_loaded = any(model.id == resident for model in catalog.models)
    if settings.model is None and is_loaded and read_choice(settings, catalog) is None:
        return resident
    return default.id if default else None


def read_choice(settings: Settings, catalog: Catalog) -> Model | None:
    """Reads which model an admin chose; None without a choice, or when that model is gone."""
    try:
        chosen = settings.default_model_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return next((model for model in catalog.models if model.id == chosen), None)


def keep_choice(settings: Settings, model: Model | None) -> None:
    """Keeps an admin's choice for every later start; None leaves it to the devices again."""
    if model is None:
        settings.default_model_file.unlink(missing_ok=True)
    else:
        write_whole(settings.default_model_file, model.id.encode())


def find_machine(devices: Sequence[Mapping[str, Any]], *, chips: int) -> Topology | None:
    """Finds the largest known machine with no more than these chips; None for devices that are no TPU.

    A model that fits fewer chips fits more of them.
    """
    kinds = {str(device["kind"]) for device in devices}
    name = CHIP_OF_KIND.get(kinds.pop()) if len(kinds) == 1 else None
    known = [one for one in TOPOLOGIES.values() if one.chip and one.chip.name == name and one.chips <= chips]
    return max(known, key=lambda one: one.chips, default=None)


def _fits(settings: Settings, model: Model, machine: Topology) -> bool:
    """Tells whether a shipped plan for the operator's mesh has room for the model's default size."""
    plan = find_plan(settings, model, machine)
    if plan is None:
        return False
    needs_other_machine = plan["placement"]["kind"] == "offload_text_encoder"
    return plan["fits"] and (not needs_other_machine or settings.find_text_encoder(model) is not None)


def find_plan(settings: Settings, model: Model, machine: Topology) -> dict[str, Any] | None:
    """Finds the shipped plan of the model's default size for the operator's mesh.

    Where none ships for its weights in int8 it is that in full, if it fits: in int8 it takes less.
    """
    is_for_many = asks_for_many(settings.mesh)
    find = functools.partial(
        find_shipped,
        model=model.program_id,
        shape=str(model.default_shape),
        topology=machine.name,
        mode="throughput" if is_for_many else "latency",
        mesh=None if is_for_many else settings.mesh,
    )
    if found := find(weights=model.weights):
        return found
    full = find()
    return full if full is not None and full["fits"] else None
