"""What beside its recipe decides over an output's pixels: the weights, the devices, how they share the work, versions.

Kept with every output, so that one that is made again and differs can say why.
"""

from functools import cache
from importlib import metadata

from pipelines.stages import Family
from studio.settings import Settings
from studio.worker.desk import Desk

PACKAGES = ("jax", "jaxlib", "libtpu", "torch", "diffusers", "transformers")


def describe_making(desk: Desk, settings: Settings, family: Family) -> dict[str, str]:
    """Names and values as people read them; what does not apply is left out."""
    model = family.model
    weights = "@".join(part for part in (str(model.path or model.repo), family.revision) if part)
    return {
        "weights": "none" if settings.fake else weights,
        "device": desk.device,
        **({} if settings.fake else {"mesh": family.mesh, **_read_versions()}),
    }


@cache
def _read_versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # libtpu, where there is no TPU
            continue
    return found
