"""From a catalogue entry to a loaded family. Imports jax and torch only when called.

A new family is one folder and one name here.
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipelines.catalog import Model
from pipelines.errors import ModelError
from pipelines.stages import STAGES, Family, OnProgress

FAMILIES = ("sdxl", "wan")


def load(
    model: Model,
    *,
    mesh: str | None,
    cache_dir: Path,
    on_progress: OnProgress,
    stages: Sequence[str] = STAGES,
) -> Family:
    """Loads a model, or the parts of it that `stages` need, onto the mesh (`dp=2,sp=4`; None chooses).

    Raises ModelError or MeshError.
    """
    start_jax(cache_dir)
    from pipelines.runtime.mesh import build_mesh

    load_family = _find_loader(model.family)
    return load_family(model, mesh=build_mesh(mesh), cache_dir=cache_dir, on_progress=on_progress, stages=stages)


def start_jax(cache_dir: Path) -> None:
    """Imports jax on the right backend, quietly, with the compilation cache in `cache_dir`; safe to call again."""
    import sys

    from pipelines.runtime import platform

    if "jax" not in sys.modules:
        platform.prepare_backend()
    from pipelines.runtime.compiled import use_persistent_cache

    use_persistent_cache(cache_dir)


def describe_devices() -> str:
    """The device line for people; imports jax."""
    from pipelines.runtime import platform

    return platform.describe_devices()


def _find_loader(family: str) -> Callable[..., Any]:
    if family not in FAMILIES:
        raise ModelError(f"No code here runs the family {family!r}.", advice="Check presets/models.toml.")
    return importlib.import_module(f"pipelines.{family}").load
