"""From a catalogue entry to a loaded model, or to a described one. Imports jax and torch only when called.

Here alone a family's code is reached by the family's name; which families there are, pipelines/families says.
"""

import functools
import importlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipelines import families
from pipelines.catalog import Model
from pipelines.errors import ModelError
from pipelines.families.protocol import Architecture
from pipelines.families.remote_encoder import RemoteEncoder
from pipelines.mesh_text import asks_for_many
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
) -> Family:
    """Loads a model, or the parts of it that `stages` need, onto the mesh (see `build_mesh_for`).

    With a `remote_encoder` the model's own text encoder is not among them: prompts are read elsewhere. Programs that
    `packs` (files, or folders of them) hold are loaded rather than compiled. With `verify_weights` every file of
    weights must have the SHA-256 that its publisher recorded. With `keep_layouts` a copy of the weights as they lie on
    the mesh is kept beside the cache for the next load; not while they are verified, which is said of the published
    files.
    Raises ModelError or MeshError.
    """
    start_jax(cache_dir)
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

        loaded.use_packs(Packs(packs, model_id=model.id, mesh=built))
    return loaded


def find_layouts(cache_dir: Path) -> Path:
    """The folder of weights as they lie on a mesh."""
    return cache_dir.parent / "layouts"


def find(model: Model, *, on_progress: OnProgress, has_remote_encoder: bool = False) -> Path:
    """Where a model lies that can be loaded, downloaded if need be; raises ModelError when it cannot be had."""
    stages = [stage for stage in STAGES if not (has_remote_encoder and stage == "encode")]
    return find_architecture(model).find(model, on_progress=on_progress, stages=stages)


def build_mesh_for(
    model: Model, mesh: str | None, *, devices: Sequence[Any] | None = None, hbm_bytes: int | None = None
) -> Any:
    """A Mesh: `dp=2,sp=4`; None chooses for one output at a time, `throughput` for as many as there is room for.

    Of all devices here, or of these, which hold `hbm_bytes` each. Raises MeshError.
    """
    from pipelines.runtime.devices.mesh import build_mesh

    if not asks_for_many(mesh):
        return build_mesh(mesh, devices=devices, choose=choose_sizes_for(model))
    from pipelines.families.spread import spread

    describe = functools.partial(describe_parts, model)
    options = {"hbm_bytes": hbm_bytes, "max_batch_size": model.max_batch_size}
    return build_mesh(devices=devices, choose=lambda _count: spread(describe, devices, **options))


def choose_sizes_for(model: Model) -> Callable[[int], dict[str, int]]:
    """Number of devices -> axes and sizes that this model runs best on; imports jax."""
    return functools.partial(find_architecture(model).choose_sizes, model)


def describe_parts(model: Model, mesh: Any) -> Any:
    """The family's `Parts` from configs alone, every component's weights described; raises ModelError and MeshError."""
    return find_architecture(model).describe(model, mesh)


def find_architecture(model: Model) -> Architecture:
    """The code of the model's family; imports jax and torch, and raises ModelError when there is none."""
    if model.family not in families.FAMILIES:
        raise ModelError(f"No code here runs the family {model.family!r}.", advice="Check presets/models.toml.")
    return importlib.import_module(f"pipelines.families.{model.family}.architecture").ARCHITECTURE


def start_jax(cache_dir: Path) -> None:
    """Imports jax on the right backend, quietly, with the compilation cache in `cache_dir`; safe to call again."""
    import sys

    from pipelines.runtime.devices import platform

    if "jax" not in sys.modules:
        platform.prepare_backend()
    from pipelines.runtime.programs.compiled import use_persistent_cache

    use_persistent_cache(cache_dir)


def describe_devices() -> str:
    """The device line for people; imports jax."""
    from pipelines.runtime.devices import platform

    return platform.describe_devices()


def measure_devices() -> list[dict[str, Any]]:
    """Each device with its memory, for JSON; imports jax."""
    from pipelines.runtime.devices import memory

    return memory.measure_devices()


def count_chips() -> int:
    """What is paid for; imports jax."""
    from pipelines.runtime.devices import memory

    return memory.count_chips()


def _check_memory() -> None:
    """One model at a time: what the last one left on the devices is a mistake of ours, worth a line in the log."""
    from pipelines.runtime.devices.memory import count_live_bytes

    left = count_live_bytes()
    if left > LEFTOVER_BYTES:
        log.warning("%.1f MB of an earlier model are still on the devices", left / 1e6)
