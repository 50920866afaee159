"""What a training leaves: one LoRA file, or a diffusers folder with a model card.

Both are read by diffusers, ComfyUI and the studio. Nothing in them depends on when or how often the training was
interrupted, so the same training writes the same bytes.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import save_torch_state_dict
from peft import LoraConfig
from safetensors.torch import save

from pipelines.errors import LumeshError
from pipelines.families.trainable import Learner
from pipelines.files.whole import write_whole
from pipelines.messages import say
from pipelines.runtime.weights.resolve import split_layers
from pipelines.training.engine.adapters import name_in_file, read_config
from pipelines.training.settings import TrainingSettings


class NotFiniteError(LumeshError):
    """Weights that are no numbers, which are never written."""


def split_stacks(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the weights under the names of checkpoints: each layer of a stack on its own."""
    split: dict[str, np.ndarray] = {}
    for name, value in values.items():
        names = [*split_layers(name, value.shape)]
        split |= {name: value} if names == [name] else dict(zip(names, value, strict=True))
    return split


def write_lora(
    file: Path,
    values: Mapping[str, np.ndarray],
    *,
    config: LoraConfig,
    learner: Learner,
    facts: dict[str, str],
    settings: TrainingSettings,
) -> None:
    """Writes LoRA weights, named as in the traced module, in bf16. Raises NotFiniteError."""
    _check_finite(values)
    layers = {name_in_file(name): value for name, value in split_stacks(values).items()}
    if settings.lora_format == "kohya":
        tensors = _spell_as_kohya(layers, learner.kohya_prefix, alpha=settings.alpha or settings.rank)
        metadata = {"ss_network_module": "networks.lora", "ss_network_dim": str(settings.rank),
                    "ss_network_alpha": f"{settings.alpha or settings.rank:g}"}  # fmt: skip
    else:
        tensors = {f"{learner.prefix}.{name}": _to_bf16(value) for name, value in layers.items()}
        described = {f"{learner.prefix}.{name}": value for name, value in read_config(config).items()}
        metadata = {"format": "pt", "lora_adapter_metadata": json.dumps(described, indent=2, sort_keys=True)}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, _sort_header(save(dict(sorted(tensors.items())), metadata=metadata | facts)))


def _sort_header(content: bytes) -> bytes:
    """Returns a safetensors file with its header's names in order: the library writes metadata in any."""
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def _spell_as_kohya(layers: Mapping[str, np.ndarray], prefix: str, *, alpha: float) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for name, value in layers.items():
        layer, _, half = name.removesuffix(".weight").rpartition(".lora_")
        spelt = f"{prefix}_{layer.replace('.', '_')}"
        tensors[f"{spelt}.lora_{'down' if half == 'A' else 'up'}.weight"] = _to_bf16(value)
        tensors[f"{spelt}.alpha"] = torch.tensor(float(alpha))
    return tensors


def write_model(
    folder: Path,
    values: Mapping[str, np.ndarray],
    *,
    base: Path,
    component: str,
    precision: torch.dtype,
    card: str,
    written: Mapping[str, Path],
    is_linked: bool = False,
) -> None:
    """Writes the base's folder with the denoiser `component` replaced by these weights. Raises NotFiniteError.

    `written` says where components lie that are not the base's. If `is_linked`, other components are links.
    """
    _check_finite(values)
    folder.mkdir(parents=True, exist_ok=True)
    for entry in sorted(base.iterdir()):
        target = folder / entry.name
        if entry.is_dir() and entry.name != component and not entry.name.startswith("."):
            _take(written.get(entry.name, entry), target, is_linked=is_linked)
        elif entry.is_file() and entry.suffix == ".json":
            shutil.copyfile(entry, target)
    denoiser = folder / component
    denoiser.mkdir(exist_ok=True)
    for entry in sorted((base / component).glob("*.json")):
        if not entry.name.endswith(".index.json"):
            shutil.copyfile(entry, denoiser / entry.name)
    tensors = {name: torch.from_numpy(np.array(value)).to(precision) for name, value in split_stacks(values).items()}
    save_torch_state_dict(
        dict(sorted(tensors.items())),
        denoiser,
        filename_pattern="diffusion_pytorch_model{suffix}.safetensors",
        max_shard_size="5GB",
    )
    write_whole(folder / "README.md", card.encode())


def _take(source: Path, target: Path, *, is_linked: bool) -> None:
    """Copies or links a component's folder to where it belongs, if it is not there already."""
    if is_linked:
        target.symlink_to(source.resolve(), target_is_directory=True)
    elif source != target:
        shutil.copytree(source, target, dirs_exist_ok=True)


def _check_finite(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if not np.isfinite(value).all():
            raise NotFiniteError(
                say("The trained weight {name} is not a number; nothing was written.", name=name),
                advice=say("Train again with a lower learning rate."),
            )


def _to_bf16(value: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(value)).to(torch.bfloat16)
