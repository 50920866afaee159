"""A checkpoint in one file, as its authors' programs and ComfyUI write it: which tensor each component's weight is.

diffusers converts such files by moving tensors about under new names, in functions that do not care what a tensor is.
They get stand-ins here, which remember what was done to them: names and pieces come from diffusers' own tables, and no
weight is read before its slice is.
Not here: what a file is (models/single_files.py), which converter a component needs (the families' architecture.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from pipelines.errors import ModelError
from pipelines.families.traits import FILE_PREFIXES
from pipelines.messages import say
from pipelines.models.model import Model
from pipelines.models.single_files import SECOND
from pipelines.models.weight_files import find_weight_files, read_header
from pipelines.runtime.weights.quantised import read_weights
from pipelines.runtime.weights.stored import WeightSource, read_headers
from pipelines.runtime.weights.views import JoinedTensor, SomeRows, SqueezedTensor, TransposedTensor, apply_scales

_OF_DIFFUSERS_VAE = frozenset({"decoder.conv_norm_out.weight", "decoder.mid_block.resnets.0.conv1.weight"})


@dataclass(frozen=True, kw_only=True)
class StoredComponent:
    """Where a component's weights are read from: files, and the weights in them by the component's own names."""

    files: Sequence[Path]
    weights: Mapping[str, WeightSource]


class StandIn:
    """What converters see of a weight: its shape, and the operations that they do to one."""

    def __init__(self, source: WeightSource) -> None:
        self.source = source

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def ndim(self) -> int:
        return len(self.source.shape)

    def clone(self) -> Self:
        return self

    detach = contiguous = clone

    @property
    def T(self) -> "StandIn":  # noqa: N802 - torch's name
        assert self.ndim == 2, "only matrices are turned"
        return StandIn(TransposedTensor(source=self.source))

    def __getitem__(self, index: slice | tuple[Any, ...]) -> "StandIn":
        """Returns some rows; of further axes everything is taken, or, of the last ones, the only place."""
        rows, *rest = index if isinstance(index, tuple) else (index,)
        start, stop, step = rows.indices(self.shape[0])
        assert step == 1, "rows are taken in their order"
        whole = [one for one in rest if one == slice(None)]
        assert rest == [*whole, *(0,) * (len(rest) - len(whole))], "places are taken of the last axes"
        source, dropped = self.source, len(rest) - len(whole)
        if dropped:
            assert self.ndim == 1 + len(rest) and self.shape[-dropped:] == (1,) * dropped, "the only place of an axis"
            source = SqueezedTensor(source=source, count=dropped)
        if (start, stop) != (0, self.shape[0]):
            source = SomeRows(source=source, start=start, stop=stop)
        return StandIn(source)

    def chunk(self, count: int, dim: int = 0) -> "tuple[StandIn, ...]":
        assert dim == 0 and self.shape[0] % count == 0, "weights are split along their rows"
        size = self.shape[0] // count
        return tuple(self[number * size : (number + 1) * size] for number in range(count))

    @classmethod
    def __torch_function__(
        cls, function: Any, _types: Any, arguments: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> Any:
        options = options or {}
        if function is torch.chunk:
            return arguments[0].chunk(*arguments[1:], **options)
        if function is torch.cat and options.get("dim", 0) == 0:
            return cls(JoinedTensor(parts=[one.source for one in arguments[0]]))
        return NotImplemented


Convert = Callable[[dict[str, Any], Mapping[str, Any]], Mapping[str, Any]]
"""Maps a file's stand-ins and a component's config to the component's own names; empty if the file has not got it."""


def strip_prefix(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a transformer's stand-ins under its authors' names, whatever prefix the file gives them."""
    prefix = next(one for one in FILE_PREFIXES if any(name.startswith(one) for name in tensors))
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}


def read_folder(folder: Path, *, variant: str = "") -> StoredComponent:
    """Returns the weights of a component in diffusers layout; raises ModelError for files that are not whole."""
    files = find_weight_files(folder, variant=variant)
    return StoredComponent(files=files, weights=apply_scales(read_headers(files)))


ReadConfig = Callable[[str], Mapping[str, Any]]
"""Returns a component's config.json."""


def read_files(model: Model, converters: Mapping[str, Convert], read_config: ReadConfig) -> dict[str, StoredComponent]:
    """Returns the components of a model that its own files hold: a single-file checkpoint's, and its own VAE.

    Raises ModelError for a file that is not whole, or not laid out as the model's family has it.
    """
    components = {} if model.file is None else read_single_file(model.file, converters, read_config)
    if model.file is not None and not components:
        raise ModelError(
            say("{file} holds no component of {model}.", file=model.file, model=model.title),
            advice=say("Check that `configs` names the model that it was made from."),
        )
    if model.file_2 is not None:
        first = SECOND.removesuffix("_2")
        second = read_single_file(model.file_2, {first: converters[first]}, read_config)
        if first in second:
            components[SECOND] = second[first]
    if model.vae is not None:
        components["vae"] = read_vae(model.vae, converters, read_config)
    return components


def read_vae(place: Path, converters: Mapping[str, Convert], read_config: ReadConfig) -> StoredComponent:
    """Returns an autoencoder from its folder in diffusers layout, or from a file of any layout that is known here."""
    if place.is_dir():
        return read_folder(place)
    if "vae" not in converters or not {*read_header(place)[0]}.isdisjoint(_OF_DIFFUSERS_VAE):
        return StoredComponent(files=[place], weights=read_weights(place))
    found = read_single_file(place, {"vae": converters["vae"]}, read_config)
    if not found:
        raise ModelError(
            say("{file} holds no autoencoder.", file=place),
            advice=say("Name a file or a folder with a VAE of the same kind as the model's."),
        )
    return found["vae"]


def read_single_file(
    file: Path, converters: Mapping[str, Convert], read_config: ReadConfig
) -> dict[str, StoredComponent]:
    """Returns the components that a file holds; `read_config` gives a component's config.

    Raises ModelError for a file that is not whole, and for one whose layers are not those of the configs.
    """
    weights = read_weights(file)
    components: dict[str, StoredComponent] = {}
    for component, convert in converters.items():
        stand_ins = {name: StandIn(source) for name, source in weights.items()}
        try:
            found = convert(stand_ins, read_config(component))
        except (AssertionError, KeyError, IndexError, AttributeError, ValueError, TypeError) as error:
            reason = f"{type(error).__name__} {error}"
            raise ModelError(
                say("{file} is not laid out as its kind is: {error}.", file=file, error=reason),
                advice=say("Check that it is whole, and that `configs` names the model that it was made from."),
            ) from error
        named = {name: one.source for name, one in found.items() if isinstance(one, StandIn)}
        if named:
            components[component] = StoredComponent(files=[file], weights=named)
    return components
