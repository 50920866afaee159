"""What a training of a LoRA leaves: one file.

Which names it has, and so which programs read it, the family and `lora_format` say: by default diffusers, the studio
and, by the rules of its source, ComfyUI read all of it. Nothing in it depends on when or how often the training was
interrupted, so the same training writes the same bytes.
Not here: what a training of all weights leaves (model_folder.py).
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig
from safetensors.torch import save

from pipelines.errors import LumeshError
from pipelines.families.trainable import Learner
from pipelines.files.whole import write_whole
from pipelines.loras.file_names import FileNames
from pipelines.messages import english, say
from pipelines.runtime.weights.resolve import split_layers
from pipelines.training.engine.adapters import name_in_file, read_config
from pipelines.training.settings import SavePrecision, TrainingSettings

PRECISIONS: Mapping[SavePrecision, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
}
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
    """Writes LoRA weights, named as in the traced module with all its `layers`. Raises NotFiniteError."""
    check_finite(values)
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
    tensors = _name_tensors(pairs, names, alpha=alpha, precision=settings.save_precision)
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


def _name_tensors(
    pairs: Mapping[str, Pair], names: FileNames, *, alpha: float, precision: SavePrecision
) -> dict[str, torch.Tensor]:
    down_name, up_name = ("lora_down", "lora_up") if names.network_module else ("lora_A", "lora_B")
    tensors: dict[str, torch.Tensor] = {}
    for name, layers in names.layers.items():
        parts = [pairs.get(layer) for layer in layers]
        down, up = _join(parts)
        if name in names.exchanged:
            up = np.roll(up, len(up) // 2, axis=0)
        halves = {f"{name}.{down_name}.weight": down, f"{name}.{up_name}.weight": up}
        tensors |= {half: convert(half, value, precision) for half, value in halves.items()}
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


def check_finite(values: Mapping[str, Any]) -> None:
    """Raises NotFiniteError for weights that are no numbers."""
    for name, value in values.items():
        if not np.isfinite(value).all():
            raise NotFiniteError(
                say("The trained weight {name} is not a number; nothing was written.", name=name),
                advice=say("Train again with a lower learning rate."),
            )


def convert(name: str, value: np.ndarray, precision: SavePrecision) -> torch.Tensor:
    """Returns a weight in what it is written in; raises NotFiniteError for one that is too large for that."""
    converted = torch.from_numpy(np.array(value)).to(PRECISIONS[precision])
    if not torch.isfinite(converted).all():
        raise NotFiniteError(
            english(f"The trained weight {name} is too large for {precision}; nothing was written."),
            advice=english("Run the same command again with --save_precision bf16."),
        )
    return converted
