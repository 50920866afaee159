"""Loads or describes the model of a catalogue entry. Imports jax and torch only when called.

This is the only file that finds a family's code by the family's name; pipelines/families lists the families.
"""

import functools
import importlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipelines import families
from pipelines.errors import ModelError
from pipelines.families.protocol import Architecture
from pipelines.families.remote_encoder import RemoteEncoder
from pipelines.families.trainable import Learner
from pipelines.mesh_text import asks_for_many
from pipelines.messages import say
from pipelines.models.catalog import Model
from pipelines.stages import STAGES, Family, OnProgress

LEFTOVER_BYTES = 1_000_000  # a few constants of JAX itself stay

log = logging.getLogger(__name__)


def load(
    model: Model,
    *,
    mesh: str | None,
    cache_dir: Path,
    on_progress: OnProgress,
    stages: Sequence[str] = STAGES,
    remote_encoder: RemoteEncoder | None = None,
    packs: Sequence[Path] = (),
    verify_weights: bool = False,
    keep_layouts: bool = False,
    allow_cpu: bool = False,
) -> Family:
    """Loads a model, or the parts of it that `stages` need, onto the mesh (see `build_mesh_for`).

    With a `remote_encoder` the model's own text encoder is not loaded: prompts are encoded elsewhere. Programs found in
    `packs` (files, or folders of them) are loaded rather than compiled. With `verify_weights` every file of weights
    must have the SHA-256 that its publisher recorded. With `keep_layouts` a copy of the sharded weights is kept beside
    the cache for the next load, but not together with `verify_weights`, which checks the published files.
    Raises ModelError, MeshError, and DeviceError as `start_jax` does.
    """
    start_jax(cache_dir, allow_cpu=allow_cpu)
    _check_memory()
    built = build_mesh_for(model, mesh)
    if remote_encoder is not None:
        stages = [stage for stage in stages if stage != "encode"]
    loaded = find_architecture(model).load(
        model,
        mesh=built,
        cache_dir=cache_dir,
        on_progress=on_progress,
        stages=stages,
        verify_weights=verify_weights,
        layouts=find_layouts(cache_dir) / model.id if keep_layouts and not verify_weights else None,
    )
    loaded.remote_encoder = remote_encoder
    if asks_for_many(mesh):
        loaded.make_many_at_once()
    if packs:
        from pipelines.runtime.programs.aot_packs import Packs

        loaded.use_packs(Packs(packs, model_id=model.program_id, mesh=built))
    return loaded


def find_layouts(cache_dir: Path) -> Path:
    """Returns the folder of sharded copies of weights."""
    return cache_dir.parent / "layouts"


def find(model: Model, *, on_progress: OnProgress, has_remote_encoder: bool = False) -> Path:
    """Returns the folder of a loadable model, downloading it if needed; raises ModelError if it cannot be had."""
    stages = [stage for stage in STAGES if not (has_remote_encoder and stage == "encode")]
    return find_architecture(model).find(model, on_progress=on_progress, stages=stages)


def build_mesh_for(
    model: Model, mesh: str | None, *, devices: Sequence[Any] | None = None, hbm_bytes: int | None = None
) -> Any:
    """Builds a Mesh from `dp=2,sp=4`, None (best for one output at a time) or `throughput` (for many outputs).

    It uses all devices here, or `devices` with `hbm_bytes` each. Raises MeshError.
    """
    from pipelines.runtime.devices.mesh import build_mesh

    if not asks_for_many(mesh):
        return build_mesh(mesh, devices=devices, choose=choose_sizes_for(model))
    from pipelines.families.spread import spread

    describe = functools.partial(describe_parts, model)
    options = {"hbm_bytes": hbm_bytes, "max_batch_size": model.max_batch_size}
    return build_mesh(devices=devices, choose=lambda _count: spread(describe, devices, **options))


def choose_sizes_for(model: Model) -> Callable[[int], dict[str, int]]:
    """Returns a function: number of devices -> axes and sizes on which this model runs best; imports jax."""
    return functools.partial(find_architecture(model).choose_sizes, model)


def describe_parts(model: Model, mesh: Any) -> Any:
    """Describes a model from configs alone as its family's `Parts`, for all stages; raises ModelError and MeshError."""
    return find_architecture(model).describe(model, mesh)


def find_architecture(model: Model) -> Architecture:
    """Returns the code of the model's family, importing jax and torch; raises ModelError if there is none."""
    if model.family not in families.FAMILIES:
        raise ModelError(
            say("No code here runs the family {family}.", family=repr(model.family)),
            advice=say("Check presets/models.toml."),
        )
    return importlib.import_module(f"pipelines.families.{model.family}.architecture").ARCHITECTURE


def find_learner(model: Model) -> Learner:
    """Returns the code with which the model's family learns; raises ModelError for one that cannot."""
    find_architecture(model)
    try:
        return importlib.import_module(f"pipelines.families.{model.family}.training").LEARNER
    except ModuleNotFoundError as error:
        raise ModelError(
            say("Models of the family {family} cannot be trained here.", family=model.family),
            advice=say("Choose a model of another family."),
        ) from error


def start_jax(cache_dir: Path, *, allow_cpu: bool = False) -> int:
    """Imports jax on the right backend, quietly, with the compilation cache in `cache_dir`; safe to call again.

    Kernels that the doctor found bad on these devices are switched off (runtime/kernels/switches.py). Returns how many
    damaged entries of that cache it deleted. Raises DeviceError if this machine's accelerator cannot
    be used, unless `allow_cpu` makes do without it.
    """
    import sys

    from pipelines.runtime.devices import platform

    if "jax" not in sys.modules:
        platform.prepare_backend()
    platform.open_devices(allow_cpu=allow_cpu)
    from pipelines.runtime.kernels import switches
    from pipelines.runtime.programs.compiled import use_persistent_cache

    if off := switches.decide(switches.find_file(cache_dir), kind=platform.find_kind()):
        log.warning("kernels that are off: %s", ", ".join(off))

    return use_persistent_cache(cache_dir)


def describe_devices() -> str:
    """Returns the device line for people; imports jax."""
    from pipelines.runtime.devices import platform

    return platform.describe_devices()


def measure_devices() -> list[dict[str, Any]]:
    """Lists each device with its memory, for JSON; imports jax."""
    from pipelines.runtime.devices import memory

    return memory.measure_devices()


def count_chips() -> int:
    """Counts chips, as they are billed; imports jax."""
    from pipelines.runtime.devices import memory

    return memory.count_chips()


def _check_memory() -> None:
    """Logs a warning if an earlier model still holds device memory, which is a bug: one model is loaded at a time."""
    from pipelines.runtime.devices.memory import count_live_bytes

    left = count_live_bytes()
    if left > LEFTOVER_BYTES:
        log.warning("%.1f MB of an earlier model are still on the devices", left / 1e6)
