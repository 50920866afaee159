"""What a training leaves: one LoRA file, or a diffusers folder with a model card.

Which names a LoRA file has, and so which programs read it, the family and `lora_format` say: by default diffusers,
the studio and, by the rules of its source, ComfyUI read all of it. The folder is for diffusers and the studio. Nothing
in either depends on when or how often the training was interrupted, so the same training writes the same bytes.
"""

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
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
from pipelines.loras.file_names import FileNames
from pipelines.messages import say
from pipelines.runtime.weights.resolve import split_layers
from pipelines.training.engine.adapters import name_in_file, read_config
from pipelines.training.settings import TrainingSettings

Pair = tuple[np.ndarray, np.ndarray]
"""A layer's down (rank, in[, height, width]) and up (out, rank[, 1, 1])."""


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
    layers: Collection[str],
    facts: dict[str, str],
    settings: TrainingSettings,
) -> None:
    """Writes LoRA weights, named as in the traced module with all its `layers`, in bf16. Raises NotFiniteError."""
    _check_finite(values)
    pairs = _pair({name_in_file(name): value for name, value in split_stacks(values).items()})
    alpha = settings.alpha or settings.rank
    metadata = {"format": "pt"}
    if settings.lora_format == "diffusers":
        names = FileNames(layers={f"{learner.prefix}.{layer}": (layer,) for layer in pairs})
        described = {f"{learner.prefix}.{name}": value for name, value in read_config(config).items()}
        metadata["lora_adapter_metadata"] = json.dumps(described, indent=2, sort_keys=True)
    elif settings.lora_format == "kohya":
        names = learner.name_for_kohya(pairs, layers)
    else:
        names = learner.name_for_all(pairs, layers)
    if names.network_module:
        metadata = {"ss_network_module": names.network_module, "ss_network_dim": str(settings.rank),
                    "ss_network_alpha": f"{alpha:g}"}  # fmt: skip
    elif settings.lora_format != "diffusers":  # only diffusers reads a header's alpha, so it is in the values
        pairs = {layer: (down, up * np.float32(alpha / settings.rank)) for layer, (down, up) in pairs.items()}
    assert pairs.keys() <= {layer for layers in names.layers.values() for layer in layers}, "a layer without a name"
    tensors = _name_tensors(pairs, names, alpha=alpha)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, _sort_header(save(dict(sorted(tensors.items())), metadata=metadata | facts)))


def _sort_header(content: bytes) -> bytes:
    """Returns a safetensors file with its header's names in order: the library writes metadata in any."""
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def _pair(tensors: Mapping[str, np.ndarray]) -> dict[str, Pair]:
    """Puts the tensors of peft's names together: layer -> its pair."""
    halves: dict[str, dict[str, np.ndarray]] = {}
    for name, value in tensors.items():
        layer, _, half = name.removesuffix(".weight").rpartition(".lora_")
        halves.setdefault(layer, {})[half] = value
    return {layer: (both["A"], both["B"]) for layer, both in halves.items()}


def _name_tensors(pairs: Mapping[str, Pair], names: FileNames, *, alpha: float) -> dict[str, torch.Tensor]:
    down_name, up_name = ("lora_down", "lora_up") if names.network_module else ("lora_A", "lora_B")
    tensors: dict[str, torch.Tensor] = {}
    for name, layers in names.layers.items():
        parts = [pairs.get(layer) for layer in layers]
        down, up = _join(parts)
        if name in names.exchanged:
            up = np.roll(up, len(up) // 2, axis=0)
        tensors |= {f"{name}.{down_name}.weight": _to_bf16(down), f"{name}.{up_name}.weight": _to_bf16(up)}
        if names.network_module:  # a pair of several has the rank of all, so that its alpha is all of theirs
            tensors[f"{name}.alpha"] = torch.tensor(float(alpha) * sum(part is not None for part in parts))
    return tensors


def _join(parts: Sequence[Pair | None]) -> Pair:
    """Returns one pair that changes the rows of several layers just as theirs do; None is a layer without one.

    Their downs lie upon each other, and each layer's rows of the up look at its own part of them.
    """
    if len(parts) == 1 and parts[0] is not None:
        return parts[0]
    given = [part for part in parts if part is not None]
    rows, ranks = len(given[0][1]), [len(down) for down, _ in given]  # q, k and v have as many rows as each other
    up = np.zeros((rows * len(parts), sum(ranks)), np.float32)
    column = 0
    for number, part in enumerate(parts):
        if part is not None:
            width = len(part[0])
            up[rows * number : rows * (number + 1), column : column + width] = part[1]
            column += width
    return np.concatenate([down for down, _ in given]), up


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
