"""A checkpoint folder in diffusers layout: its configs, and each component's weights straight onto the mesh."""

import contextlib
import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.errors import ModelError
from pipelines.messages import join, say
from pipelines.models.catalog import Model
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.offload import Offloader
from pipelines.runtime.devices.sharding import SCALE, Rules, apply_rules
from pipelines.runtime.kernels.cudnn import AMPERE, find_capability
from pipelines.runtime.kernels.taps import find_flat_shape
from pipelines.runtime.weights import hub
from pipelines.runtime.weights.checksums import verify_weights
from pipelines.runtime.weights.int8 import add_scales, list_rounded, round_weights
from pipelines.runtime.weights.lora_merge import adapt
from pipelines.runtime.weights.lora_update import Update
from pipelines.runtime.weights.permuted import stack_layers, turn_convolutions
from pipelines.runtime.weights.resolve import resolve, split_layers
from pipelines.runtime.weights.shard_load import load_weights
from pipelines.runtime.weights.sharded_copies import ShardedCopy
from pipelines.runtime.weights.single_file import StoredComponent, read_folder
from pipelines.runtime.weights.stored import WeightSource
from pipelines.stages import OnProgress, Progress


def choose_dtype(mesh: Mesh) -> Any:
    """The dtype large modules compute in: bf16, or fp32 on a CPU or a GPU older than Ampere, which have no fast bf16.

    Not fp16 on those: FLUX.2's and UMT5's activations exceed it.
    """
    device = mesh.devices.flat[0]
    if device.platform == "cpu":
        return jnp.float32
    capability = find_capability(device) if device.platform == "gpu" else None
    return jnp.float32 if capability is not None and capability < AMPERE else jnp.bfloat16


def read_json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text("utf-8"))


@contextlib.contextmanager
def told_as_incomplete(folder: Path, *, title: str, components: Sequence[str]) -> Iterator[None]:
    """Turns a missing or damaged file into a ModelError that says what such a checkpoint consists of."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            say("{folder} is not a complete {title} checkpoint: {error}.", folder=folder, title=title, error=error),
            advice=say("It needs model_index.json, {components}.", components=", ".join(components)),
        ) from error


def find_checkpoint(
    model: Model,
    *,
    components: Sequence[str],
    stages_of: Mapping[str, Sequence[str]],
    stages: Sequence[str],
    is_verified: bool,
    on_progress: OnProgress,
    in_files: Collection[str] = (),
) -> Path:
    """Finds the model's folder, downloads it when need be, and with `is_verified` checks the weights' checksums.

    Components whose `stages_of` are none of these `stages`, or which are `in_files` of their own, need only their
    settings. Raises ModelError.
    """
    without_weights = [name for name, used in stages_of.items() if name in in_files or not {*used} & {*stages}]
    try:
        folder = hub.locate(
            model,
            components=tuple(components),
            on_bytes=lambda done, total: on_progress(Progress(phase="downloading", done=done, total=total)),
            without_weights=without_weights,
        )
    except ModelError as error:
        if model.base is None:
            raise
        lacking = ", ".join(name.replace("_", " ") for name in components if name not in without_weights)
        raise ModelError(
            say("{model} takes its {components} from {base}. {reason}",
                model=model.title, components=lacking, base=model.base.id, reason=error.detail),
            advice=join([error.advice, say(
                "A model of the same kind that is here can give them, too: "
                "name it as configs of {model} in models.toml.",
                model=model.id,
            )]),
        ) from error  # fmt: skip
    on_progress(Progress(phase="loading"))
    if is_verified:
        verify_weights(
            folder,
            [name for name in components if name not in without_weights],
            on_bytes=lambda done, total: on_progress(
                Progress(phase="loading", done=done, total=total, detail="checksums")
            ),
        )
    return folder


PlaceWeights = Callable[..., dict[str, Any]]
"""A `ComponentLoader`; or `describe_component`, for compiling without a checkpoint."""


def rounding(place: PlaceWeights, besides: Mapping[str, str | None], *, rounds_inputs: bool) -> PlaceWeights:
    """Returns a `place` that rounds the large weights of these components to int8, but for layers that match.

    See int8.list_rounded. With `rounds_inputs` what denoisers multiply with them is rounded, too; text encoders, which
    run once and have features far larger than others, keep theirs.
    """

    def place_rounded(folder: Path, module: TracedModule, **how: Any) -> dict[str, Any]:
        module.rounds_inputs = rounds_inputs and not folder.name.startswith("text_encoder")
        rounded = list_rounded(module, besides=besides[folder.name]) if folder.name in besides else frozenset[str]()
        return place(folder, module, rounded=rounded, **how)

    return place_rounded


class ComponentLoader:
    """Loads components, and remembers how, so that some of their weights can be read again with updates or without.

    Components that do not fit beside the next one leave the devices first (`offloader`). `layouts` is the folder of
    sharded copies (sharded_copies.py). `in_files` are the components whose weights are in
    other files than their folder's (single_file.py).
    """

    def __init__(
        self,
        *,
        variant: str,
        offloader: Offloader,
        on_progress: OnProgress,
        layouts: Path | None = None,
        in_files: Mapping[str, StoredComponent] | None = None,
    ) -> None:
        self.offloader = offloader
        self._variant = variant
        self._in_files = in_files or {}
        self._layouts = layouts
        self._on_progress = on_progress
        self._reads: dict[str, list[tuple[Callable[..., dict[str, jax.Array]], Collection[str] | None]]] = {}

    def __call__(
        self, folder: Path, module: TracedModule, *, names: Collection[str] | None = None, **how: Any
    ) -> dict[str, jax.Array]:
        """Makes room, loads a component as `load_component` does, and remembers how."""
        read = functools.partial(
            load_component,
            folder,
            module,
            variant=self._variant,
            layouts=self._layouts,
            stored=self._in_files.get(folder.name),
            **how,
        )
        self._reads.setdefault(folder.name, []).append((read, names))
        self.offloader.prepare(folder.name, describe_component(folder, module, names=names, **how))
        weights = read(names=names, on_progress=self._on_progress)
        self.offloader.add(folder.name, weights)
        return weights

    def load_again(
        self,
        component: str,
        names: Collection[str],
        *,
        updates: Mapping[str, Sequence[Update]],
        on_progress: OnProgress,
    ) -> dict[str, jax.Array]:
        """Reads these parameters as before, with `updates` added; of two reads of a name the later one counts.

        `updates` are named as in the module, layers of a stack each on their own.
        """
        weights: dict[str, jax.Array] = {}
        for read, own in reversed(self._reads[component]):
            chosen = [name for name in names if name not in weights and (own is None or name in own)]
            if chosen:
                weights |= read(names=chosen, updates=updates, on_progress=on_progress)
        return weights


def load_component(
    folder: Path,
    module: TracedModule,
    *,
    mesh: Mesh,
    rules: Rules,
    dtype: Any,
    variant: str,
    on_progress: OnProgress,
    prefixes: Sequence[str] = (),
    arrange: Callable[[Mapping[str, WeightSource]], Mapping[str, WeightSource]] = dict,
    taps: Collection[str] = (),
    names: Collection[str] | None = None,
    updates: Mapping[str, Sequence[Update]] | None = None,
    layouts: Path | None = None,
    stored: StoredComponent | None = None,
    rounded: AbstractSet[str] = frozenset(),
) -> dict[str, jax.Array]:
    """Loads one component's parameters and constants, each placed by the first rule that matches its name.

    `prefixes` are what names in the files may begin with (resolve.py). `arrange` may put weights into another order
    (permuted.py). Convolutions in `taps` lie as their kernel takes them. With `names` only those parameters are read.
    `updates` are added to what the files hold, layers of a stack each on their own; without any, weights come from the
    folder `layouts` if they were kept there as they lie on the mesh, and are kept there if not. With `stored` the
    weights are read from there, not from the folder. Those that are `rounded` become int8 with scales (int8.py).
    """
    detail = folder.name.replace("_", " ")
    shapes = _choose_shapes(module, names)
    stored = stored or read_folder(folder, variant=variant)
    layers = adapt(resolve(stored.weights, shapes, prefixes), updates or {})
    if rounded:
        single = {one for name in rounded & shapes.keys() for one in split_layers(name, shapes[name])}
        layers = round_weights(layers, single, dtype)
    layers = arrange(layers)
    if rounded:
        layers, shapes = add_scales(layers), _add_scale_shapes(shapes, rounded)
    sources = turn_convolutions(stack_layers(layers, shapes), taps)
    shardings = apply_rules(rules, {name: source.shape for name, source in sources.items()}, mesh)
    load = functools.partial(
        load_weights,
        shardings=shardings,
        dtype=dtype,
        rounded=rounded,
        on_tensor=lambda done, total: on_progress(Progress(phase="sharding", done=done, total=total, detail=detail)),
    )
    if layouts is not None and updates is None and sources:
        layout = ShardedCopy(
            layouts,
            component=folder.name,
            files=stored.files,
            sources=sources,
            shardings=shardings,
            dtype=dtype,
            rounded=rounded,
        )
        weights = layout.load(sources, load)
    else:
        weights = load(sources)
    if names is not None:
        return weights
    replicated = NamedSharding(mesh, PartitionSpec())
    return weights | {name: hosts.place(value, replicated) for name, value in module.constant_buffers().items()}


def describe_component(
    _folder: Path,
    module: TracedModule,
    *,
    mesh: Mesh,
    rules: Rules,
    dtype: Any,
    taps: Collection[str] = (),
    names: Collection[str] | None = None,
    rounded: Collection[str] = (),
    **_how_to_read: Any,
) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes, dtypes and shardings of what `load_component` would give: nothing is read, and no device is needed."""
    shapes = _turn(_add_scale_shapes(_choose_shapes(module, names), rounded), taps)
    weights = {
        name: jax.ShapeDtypeStruct(shapes[name], jnp.int8 if name in rounded else dtype, sharding=sharding)
        for name, sharding in apply_rules(rules, shapes, mesh).items()
    }
    if names is not None:
        return weights
    return weights | {
        name: abstract_input(mesh, value.shape, value.dtype) for name, value in module.constant_buffers().items()
    }


def _choose_shapes(module: TracedModule, names: Collection[str] | None) -> dict[str, tuple[int, ...]]:
    shapes = module.parameter_shapes()
    return shapes if names is None else {name: shape for name, shape in shapes.items() if name in names}


def _add_scale_shapes(shapes: Mapping[str, tuple[int, ...]], rounded: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Puts after each weight that is rounded its scales: one for each output."""
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        found[name] = shape
        if name in rounded:
            found[name + SCALE] = (*shape[:-1], 1)
    return found


def _turn(shapes: Mapping[str, tuple[int, ...]], taps: Collection[str]) -> dict[str, tuple[int, ...]]:
    return {name: find_flat_shape(shape) if name in taps else shape for name, shape in shapes.items()}


def abstract_weights(weights: Mapping[str, jax.Array]) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes, dtypes and shardings of these weights, for compiling ahead."""
    return {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding) for name, array in weights.items()
    }


def abstract_input(mesh: Mesh, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """Shape, dtype and sharding of an input that is replicated on the mesh."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec()))
