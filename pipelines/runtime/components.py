"""A checkpoint folder in diffusers layout: its configs, and each component's weights straight onto the mesh."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.errors import ModelError
from pipelines.runtime.sharding import Rules, apply_rules
from pipelines.runtime.torch_bridge import TracedModule
from pipelines.runtime.weights import StoredTensor, WeightSource, find_weight_files, load_weights, read_headers
from pipelines.stages import OnProgress, Progress


def choose_dtype(mesh: Mesh) -> Any:
    """What big modules compute in: bf16, and fp32 on CPU, which has no fast bf16."""
    return jnp.float32 if mesh.devices.flat[0].platform == "cpu" else jnp.bfloat16


def read_json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text("utf-8"))


@contextlib.contextmanager
def told_as_incomplete(folder: Path, *, title: str, components: Sequence[str]) -> Iterator[None]:
    """Turns a missing or damaged file into a ModelError that says what such a checkpoint consists of."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{folder} is not a complete {title} checkpoint: {error}.",
            advice=f"It needs model_index.json, {', '.join(components)}.",
        ) from error


def load_component(
    folder: Path,
    module: TracedModule,
    *,
    mesh: Mesh,
    rules: Rules,
    dtype: Any,
    variant: str,
    on_progress: OnProgress,
    optional_prefix: str = "",
    arrange: Callable[[Mapping[str, StoredTensor]], Mapping[str, WeightSource]] | None = None,
) -> dict[str, jax.Array]:
    """Parameters and constants of one component, each placed by the first rule that matches its name.

    `arrange` may rename what the files hold, or put it into another order (runtime/packed.py).
    """
    detail = folder.name.replace("_", " ")
    shapes = module.parameter_shapes()
    stored = read_headers(find_weight_files(folder, variant=variant))
    weights = load_weights(
        arrange(stored) if arrange else stored,
        shapes,
        apply_rules(rules, shapes, mesh),
        dtype=dtype,
        optional_prefix=optional_prefix,
        on_tensor=lambda done, total: on_progress(Progress(phase="sharding", done=done, total=total, detail=detail)),
    )
    replicated = NamedSharding(mesh, PartitionSpec())
    return weights | {name: jax.device_put(value, replicated) for name, value in module.constant_buffers().items()}


def abstract_weights(weights: Mapping[str, jax.Array]) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes, dtypes and placements, for compiling ahead."""
    return {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding) for name, array in weights.items()
    }


def abstract_input(mesh: Mesh, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """An input that every device has whole."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec()))
