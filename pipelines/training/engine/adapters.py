"""LoRA layers in an unmodified diffusers module, by peft: which layers get one, their first values, their names.

peft puts its own layers around the module's before it is traced, so that a training computes what peft computes.
Not here: writing files, and what the layers are called there (export.py).
"""

import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, inject_adapter_in_model

from pipelines.errors import RecipeError
from pipelines.messages import say
from pipelines.training.settings import TrainingSettings

ADAPTER = "default"
_MIDDLE = f".{ADAPTER}.weight"
_BASE = ".base_layer."
_PIECE = re.compile(r"\.pieces\.\d+\.")


def choose_layers(module: torch.nn.Module, settings: TrainingSettings) -> list[str]:
    """Lists the layers that get a LoRA: all linear ones, with `convolutions` those too, or those that `targets` names.

    Raises RecipeError when the regular expression is none, or names no layer.
    """
    kinds: tuple[type, ...] = (torch.nn.Linear,)
    if settings.convolutions or settings.targets is not None:
        kinds = (torch.nn.Linear, torch.nn.Conv2d)
    layers = [name for name, layer in module.named_modules() if isinstance(layer, kinds)]
    if settings.targets is None:
        return layers
    try:
        pattern = re.compile(settings.targets)
    except re.error as error:
        raise RecipeError({"targets": say("is no regular expression: {error}", error=str(error))}) from error
    chosen = [name for name in layers if pattern.search(name)]
    if not chosen:
        raise RecipeError(
            {"targets": say("names none of {count} layers, such as {name}", count=len(layers), name=layers[0])}
        )
    return chosen


def make_config(layers: Iterable[str], settings: TrainingSettings) -> LoraConfig:
    """Returns peft's own description of the LoRA, which also goes into the file."""
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha or settings.rank,  # pyrefly: ignore[bad-argument-type] - peft scales by any number
        target_modules=sorted(layers),
        init_lora_weights=False,  # values come from `draw_first`
    )


def add_layers(module: torch.nn.Module, config: LoraConfig) -> None:
    """Puts peft's layers into the module; call it before layers become a scan."""
    inject_adapter_in_model(config, module, adapter_name=ADAPTER)


def is_lora(name: str) -> bool:
    """Tells whether a parameter of a module with LoRA layers is one of theirs."""
    return name.endswith(_MIDDLE) and (".lora_A." in name or ".lora_B." in name)


def name_in_checkpoint(name: str) -> str:
    """Returns what a parameter is called in the module without LoRA layers, or what a piece's whole is (pieces.py)."""
    return _PIECE.sub(".", name.replace(_BASE, "."))


def name_in_file(name: str) -> str:
    """Returns a LoRA parameter's name as peft writes it, without the adapter's."""
    return name.removesuffix(_MIDDLE) + ".weight"


def draw_first(shapes: Mapping[str, tuple[int, ...]], *, seed: int) -> dict[str, np.ndarray]:
    """Returns first values in fp32: A is uniform within 1 / sqrt(inputs), as peft's default, and B is zero.

    A layer's values depend on the seed and its name alone. Of a stack's weight the first axis is the layers.
    """
    values: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        if ".lora_B." in name:
            values[name] = np.zeros(shape, np.float32)
            continue
        inputs = int(np.prod(shape[2 if ".every_layer." in name else 1 :]))
        rng = np.random.default_rng((seed, zlib.crc32(name.encode())))
        values[name] = rng.uniform(-1, 1, shape).astype(np.float32) * np.float32(inputs**-0.5)
    return values


def read_config(config: LoraConfig) -> dict[str, Any]:
    """Returns the description as JSON can hold it, complete: diffusers refuses a part of one."""
    return {
        name: sorted(value) if isinstance(value, set) else value
        for name, value in config.to_dict().items()
        if name != "runtime_config"
    }
