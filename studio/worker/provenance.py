"""Provenance of an output: what besides the recipe determines its pixels (weights, devices, sharding, versions).

It is stored with every output, so that differences between two runs of a recipe can be explained.
"""

from functools import cache
from importlib import metadata

from pipelines.models.model import FULL, Model
from pipelines.stages import Family
from studio.settings import Settings
from studio.worker.desk import Desk

PACKAGES = ("jax", "jaxlib", "libtpu", "torch", "diffusers", "transformers")


def describe_making(desk: Desk, settings: Settings, family: Family) -> dict[str, str]:
    """Returns names and values for people; leaves out what does not apply. Of a folder only its name is told."""
    making = describe_training(desk, settings, family.model, revision=family.revision)
    if settings.fake:
        return making
    return {**making, "mesh": family.mesh} | (
        {} if family.model.weights == FULL else {"precision": family.model.weights}
    )


def describe_training(desk: Desk, settings: Settings, model: Model, *, revision: str = "") -> dict[str, str]:
    """Returns the same of what a training made, whose family is not the worker's."""
    place = model.file or model.path
    source = place.name if place else model.repo
    weights = "@".join(part for part in (source, revision) if part)
    return {
        "weights": "none" if settings.fake else weights,
        "device": desk.device,
        **({} if settings.fake else _read_versions()),
    }


@cache
def _read_versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # libtpu on a machine without a TPU
            continue
    return found
