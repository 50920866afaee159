"""Checkpoint files to sharded device arrays, each device reading only its own slice.

Reads what diffusers and transformers write: one safetensors file, or several with an index; fp32, fp16 or bf16, with or
without a variant in the name. Files are memory-mapped, so the host never holds a second copy of the model.
Not here: downloading (hub.py), which slice goes where (sharding.py).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import ml_dtypes
import numpy as np
from jax.sharding import Sharding

from pipelines.errors import ModelError

STEMS = ("diffusion_pytorch_model", "model")

_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
}


class WeightSource(Protocol):
    """What a weight is read from, a slice at a time."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def read(self, index: tuple[slice, ...]) -> np.ndarray: ...


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """Where a tensor lies on disk."""

    file: Path
    dtype: Any
    shape: tuple[int, ...]
    offset: int

    def read(self, index: tuple[slice, ...]) -> np.ndarray:
        """The slice as an array of the stored dtype, through the page cache."""
        mapped = np.memmap(self.file, self.dtype, mode="r", offset=self.offset, shape=self.shape)
        return np.asarray(mapped[index])


def find_weight_files(folder: Path, *, variant: str = "") -> list[Path]:
    """The safetensors files of one component; raises ModelError when there are none or one of several is missing."""
    for suffix in dict.fromkeys((f".{variant}" if variant else "", "")):
        for stem in STEMS:
            single = folder / f"{stem}{suffix}.safetensors"
            if single.exists():
                return [single]
            index = folder / f"{stem}.safetensors.index{suffix}.json"
            if index.exists():
                return _files_of_index(index)
    raise ModelError(
        f"{folder} holds no safetensors weights.",
        advice="Save the model with save_pretrained(..., safe_serialization=True), or download it again.",
    )


def _files_of_index(index: Path) -> list[Path]:
    names = json.loads(index.read_text("utf-8"))["weight_map"].values()
    files = [index.parent / name for name in sorted(set(names))]
    for file in files:
        if file.parent != index.parent or not file.exists():
            raise ModelError(
                f"{index} names {file.name}, which is not there.",
                advice="The download is incomplete: start it again, it goes on where it stopped.",
            )
    return files


def read_headers(files: list[Path]) -> dict[str, StoredTensor]:
    """Name -> place of every tensor; raises ModelError for a file that is truncated or not safetensors."""
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        size = file.stat().st_size
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(size - 8, 100_000_000):
                raise _truncated(file)
            try:
                header = json.loads(stream.read(length))
            except ValueError as error:
                raise _truncated(file) from error
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if 8 + length + end > size:
                raise _truncated(file)
            if entry["dtype"] not in _DTYPES:
                raise ModelError(
                    f"{name} in {file} is stored as {entry['dtype']}, which cannot be read here.",
                    advice="Use a checkpoint in fp32, fp16 or bf16.",
                )
            dtype = np.dtype(_DTYPES[entry["dtype"]])
            shape = tuple(entry["shape"])
            if end - begin != int(np.prod(shape)) * dtype.itemsize:
                raise _truncated(file)
            tensors[name] = StoredTensor(file=file, dtype=dtype, shape=shape, offset=8 + length + begin)
    return tensors


def _truncated(file: Path) -> ModelError:
    return ModelError(
        f"{file} is truncated or not a safetensors file.",
        advice="Delete it and download it again; an interrupted copy is the usual cause.",
    )


def load_weights(
    stored: Mapping[str, WeightSource],
    shapes: Mapping[str, tuple[int, ...]],
    shardings: Mapping[str, Sharding],
    *,
    dtype: Any,
    optional_prefix: str = "",
    on_tensor: Callable[[int, int], None],
) -> dict[str, jax.Array]:
    """Reads every name in `shapes` into a sharded array of `dtype`.

    `optional_prefix` may stand before the names in the file (older CLIP checkpoints say `text_model.`) or be missing
    there. `on_tensor(done, total)` is called as it goes and may raise. Raises ModelError naming what is missing or of
    another shape.
    """
    found = {name: _locate(name, stored, optional_prefix) for name in shapes}
    places = {name: place for name, place in found.items() if place is not None}
    missing = [name for name in shapes if name not in places]
    if missing:
        raise ModelError(
            f"The checkpoint lacks {len(missing)} of {len(shapes)} weights, {missing[0]} first.",
            advice="It is of another architecture than its config.json says; check that both belong together.",
        )
    for name, place in places.items():
        if place.shape != shapes[name]:
            raise ModelError(
                f"{name} has shape {place.shape} in the checkpoint; the model expects {shapes[name]}.",
                advice="It is of another architecture than its config.json says; check that both belong together.",
            )
    loaded = {}
    for done, (name, place) in enumerate(places.items()):
        on_tensor(done, len(places))
        loaded[name] = jax.make_array_from_callback(
            place.shape,
            shardings[name],
            lambda index, place=place: place.read(index or ()).astype(dtype),
        )
    on_tensor(len(places), len(places))
    return loaded


def _locate(name: str, stored: Mapping[str, WeightSource], prefix: str) -> WeightSource | None:
    return stored.get(name) or stored.get(prefix + name) or stored.get(name.removeprefix(prefix))
