"""Random LoRAs for any model, written as trainers do, and merged by hand into diffusers' own modules."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

Pairs = dict[str, tuple[np.ndarray, np.ndarray]]
"""`component.module` -> its `up` (out, rank[, 1, 1]) and `down` (rank, in[, height, width])."""

RANK = 4


def draw_pairs(family: Any, *components: str, seed: int = 0, size: float = 0.2) -> Pairs:
    """One for every linear layer and every convolution; what they add is about `size` of a fresh layer's weights."""
    from pipelines.runtime.weights.lora import list_layer_weights

    rng = np.random.default_rng(seed)
    pairs: Pairs = {}
    for component in components:
        for name, place in list_layer_weights(family.parts.modules[component]).items():
            module, _, ending = name.rpartition(".")
            if ending != "weight" or len(place.shape) < 2 or "embedding" in module.rpartition(".")[2]:
                continue
            rows, *rest = place.shape
            up = rng.normal(scale=size / math.sqrt(RANK), size=(rows, RANK, *(1 for _ in rest[1:])))
            down = rng.normal(scale=1 / math.sqrt(math.prod(rest)), size=(RANK, *rest))
            pairs[f"{component}.{module}"] = (up.astype(np.float32), down.astype(np.float32))
    return pairs


def write_peft(file: Path, pairs: Pairs, **metadata: str) -> None:
    tensors = {f"{name}.lora_B.weight": up for name, (up, _) in pairs.items()}
    tensors |= {f"{name}.lora_A.weight": down for name, (_, down) in pairs.items()}
    save_tensors(file, tensors, **metadata)


def write_kohya(file: Path, pairs: Pairs, *, prefixes: Mapping[str, str], alpha: float) -> None:
    """What kohya's trainers write: names without dots, and the scale is alpha over rank."""
    tensors: dict[str, np.ndarray] = {}
    for name, (up, down) in pairs.items():
        component, _, module = name.partition(".")
        stem = prefixes[component] + module.replace(".", "_")
        tensors |= {f"{stem}.lora_up.weight": up, f"{stem}.lora_down.weight": down}
        tensors[f"{stem}.alpha"] = np.asarray(alpha, np.float32)
    save_tensors(file, tensors)


def save_tensors(file: Path, tensors: Mapping[str, np.ndarray], **metadata: str) -> None:
    file.parent.mkdir(exist_ok=True)
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, file, metadata=metadata or None)


def read_deltas(family: Any, ref: str, spell: Any, *components: str) -> dict[str, dict[str, np.ndarray]]:
    """Reads a LoRA of a loaded model's folder: component -> weight -> what it adds."""
    from pipelines.loras.files import get_lora
    from pipelines.runtime.weights.lora import list_layer_weights, list_layers, read_updates

    places = {component: list_layer_weights(family.parts.modules[component]) for component in components}
    reading = read_updates(
        get_lora(ref, family.model.loras_dir),
        scale=1.0,
        spellings=spell(list_layers(places)),
        places=places,
        model=family.model,
    )
    return {
        component: {
            name: update.compute(tuple(slice(0, size) for size in places[component][name].shape))
            for name, update in own.items()
        }
        for component, own in reading.updates.items()
    }


@contextlib.contextmanager
def merged_by_hand(pipeline: Any, pairs: Pairs, scale: float) -> Iterator[None]:
    """Inside, the modules of a diffusers pipeline have the pairs in their weights."""
    import torch

    originals = {}
    for name, (up, down) in pairs.items():
        component, _, module = name.partition(".")
        weight = getattr(pipeline, component).get_submodule(module).weight
        originals[weight] = weight.detach().clone()
        delta = scale * (up.reshape(len(up), RANK) @ down.reshape(RANK, -1))
        with torch.no_grad():
            weight += torch.from_numpy(delta).reshape(weight.shape)
    try:
        yield
    finally:
        for weight, original in originals.items():
            with torch.no_grad():
                weight.copy_(original)
