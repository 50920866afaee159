"""Modules trained together as one set of parameters, whose names start with their module's diffusers folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from pipelines.runtime.bridge.modules import TracedModule


@dataclass(frozen=True, kw_only=True)
class Network:
    """The modules and their parameters: `initial` has names like `unet.conv_in.weight`.

    `constants` are each module's buffers that checkpoints do not contain.
    """

    modules: dict[str, TracedModule]
    initial: dict[str, np.ndarray]
    constants: dict[str, Any]

    @classmethod
    def join(cls, parts: Mapping[str, tuple[TracedModule, dict[str, np.ndarray]]]) -> "Network":
        """Builds a network from each part's module for tracing and its initial parameters."""
        return cls(
            modules={part: module for part, (module, _) in parts.items()},
            initial={f"{part}.{name}": value for part, (_, values) in parts.items() for name, value in values.items()},
            constants={part: module.constant_buffers() for part, (module, _) in parts.items()},
        )

    def call(self, part: str, parameters: Mapping[str, jax.Array], *args: Any, **kwargs: Any) -> Any:
        """Runs one module with its share of all `parameters`."""
        return self.modules[part].call(self.weights(part, parameters), *args, **kwargs)

    def weights(self, part: str, parameters: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        return take_part(parameters, part) | self.constants[part]


def take_part(values: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Returns one module's parameters without their prefix."""
    prefix = f"{part}."
    return {name[len(prefix) :]: value for name, value in values.items() if name.startswith(prefix)}


def save_module(module: Any, values: Mapping[str, np.ndarray], folder: Path) -> None:
    """Writes the module with `values`, which must be complete, as fp16 safetensors."""
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in values.items()}
    missing, unexpected = module.load_state_dict(tensors, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    module.half().save_pretrained(folder, safe_serialization=True)
