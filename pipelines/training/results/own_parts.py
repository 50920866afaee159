"""What a model has in files of its own, beside the denoisers that learn, as the folders that diffusers reads.

A single-file checkpoint brings its VAE and text encoders along, or a model has a VAE of its own: the result of training
all weights is a folder, in which these must lie as well. They are written as they are stored. What is quantised becomes
bf16, in which accelerators compute with it.
Not here: which weight of a file is which (runtime/weights/single_file.py), the rest of the folder (model_folder.py).
"""

import json
import math
import shutil
from collections.abc import Collection
from pathlib import Path

import ml_dtypes
import numpy as np
import torch

from pipelines.files.whole import write_whole
from pipelines.models.model import Model
from pipelines.runtime.weights.components import read_json
from pipelines.runtime.weights.stored import Destination, StoredTensor, WeightSource
from pipelines.runtime.weights.views import JoinedTensor, ScaledTensor
from pipelines.training.engine.denoiser import Origin
from pipelines.training.results.model_folder import DENOISER_STEM, refuse, save_weights

SCHEDULER = "scheduler"
_PLAIN = {np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)}


def list_own_parts(origin: Origin, learning: Collection[str]) -> tuple[str, ...]:
    """Lists the components that are not as in the base's folder, without those that learn."""
    own = [name for name in origin.files if name not in learning]
    return tuple(sorted(own) + ([SCHEDULER] if origin.model.scheduler_changes else []))


def measure_own_parts(origin: Origin, learning: Collection[str]) -> int:
    """Returns the bytes of their weights, as they are written."""
    sources = (
        source
        for name in list_own_parts(origin, learning)
        if name in origin.files
        for source in origin.files[name].weights.values()
    )
    return sum(math.prod(source.shape) * _choose_dtype(source).itemsize for source in sources)


def write_own_parts(origin: Origin, folder: Path, learning: Collection[str]) -> None:
    """Writes them into a folder, each with the settings that the base has; raises UnwrittenError."""
    try:
        _write(origin, folder, learning)
    except OSError as error:
        raise refuse(folder, error) from error


def _write(origin: Origin, folder: Path, learning: Collection[str]) -> None:
    for name in list_own_parts(origin, learning):
        target = folder / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for file in (origin.folder / name).glob("*.json"):
            if not file.name.endswith(".index.json"):
                shutil.copyfile(file, target / file.name)
        if name == SCHEDULER:
            _write_scheduler(origin.model, target / "scheduler_config.json")
            continue
        tensors = {key: read_tensor(source) for key, source in origin.files[name].weights.items()}
        stem = "model" if name.startswith(("text_encoder", "image_encoder")) else DENOISER_STEM
        save_weights(tensors, target, stem)


def read_tensor(source: WeightSource) -> torch.Tensor:
    """Reads a whole weight as it is stored, or in bf16."""
    array = np.empty(source.shape, _choose_dtype(source))
    whole = tuple(slice(0, size) for size in source.shape)
    for read in source.plan([Destination(index=whole, array=array)]):
        read.run()
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _choose_dtype(source: WeightSource) -> np.dtype:
    stored = _find_dtype(source)
    return stored if stored is not None and stored in _PLAIN else np.dtype(ml_dtypes.bfloat16)


def _find_dtype(source: WeightSource) -> np.dtype | None:
    """Returns what a weight is stored in; None for one that is computed from what is stored."""
    match source:
        case StoredTensor():
            return source.dtype
        case JoinedTensor():
            kinds = {_find_dtype(part) for part in source.parts}
            return kinds.pop() if len(kinds) == 1 else None
        case ScaledTensor():
            return None
        case _:
            inner = getattr(source, "source", None)
            return None if inner is None else _find_dtype(inner)


def _write_scheduler(model: Model, file: Path) -> None:
    config = read_json(file) | dict(model.scheduler_changes)
    write_whole(file, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())
