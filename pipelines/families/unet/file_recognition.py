"""What a single-file checkpoint with a UNet is: from the names and shapes in its header, without its weights.

The names are those of CompVis' and Stability AI's own code (LDM), which nearly all fine-tunes are published in.
Not here: reading the weights (single_file.py), folders in diffusers layout (recognition.py).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.families.traits import FileHeader
from pipelines.messages import Message, say

UNET = "model.diffusion_model."
LAYOUT = say("its authors' own (LDM)")
_VAE = ("first_stage_model.", "vae.")
_NAMED_V = re.compile(r"v[-_ ]?pred")


@dataclass(frozen=True, kw_only=True)
class UNetShape:
    """A UNet's sizes: `blocks` are (channels, transformer layers) of each block on its way down."""

    channels: int
    latents: int
    text_width: int
    label_width: int
    blocks: tuple[tuple[int, int], ...]
    middle_depth: int


def find_prefix(header: FileHeader) -> str | None:
    """Returns what stands before the UNet's names: nothing in a file of a UNet alone; None without a UNet."""
    return next((prefix for prefix in (UNET, "") if f"{prefix}input_blocks.0.0.weight" in header.shapes), None)


def measure_file(header: FileHeader) -> UNetShape | None:
    """Measures the UNet in a file; None without one. Raises KeyError for one that lacks layers which all have."""
    prefix = find_prefix(header)
    if prefix is None:
        return None
    shapes = {name.removeprefix(prefix): shape for name, shape in header.shapes.items() if name.startswith(prefix)}
    numbers = sorted({int(name.split(".")[1]) for name in shapes if name.startswith("input_blocks.")})
    blocks: list[tuple[int, int]] = []
    for number in numbers[1:]:
        block = f"input_blocks.{number}"
        ends = (f"{block}.0.out_layers.3.weight", f"{block}.0.op.weight")
        channels = next(shapes[name][0] for name in ends if name in shapes)
        blocks.append((channels, _count_layers(shapes, f"{block}.1")))
    reads_text = (shape[1] for name, shape in shapes.items() if name.endswith("attn2.to_k.weight"))
    return UNetShape(
        channels=shapes["input_blocks.0.0.weight"][1],
        latents=shapes["out.2.weight"][0],
        text_width=next(reads_text, 0),
        label_width=shapes.get("label_emb.0.0.weight", (0, 0))[1],
        blocks=tuple(blocks),
        middle_depth=_count_layers(shapes, "middle_block.1"),
    )


def fits_file(header: FileHeader, folder: Path) -> bool:
    """Tells whether the UNet's config in a folder is that of the UNet in a file."""
    config = json.loads((folder / "unet" / "config.json").read_text("utf-8"))
    return measure_file(header) == _measure_config(config)


def list_components(header: FileHeader, encoders: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Returns the components in a file; `encoders` maps each text encoder to what its names may begin with."""
    prefixes = {"vae": _VAE, **encoders}
    found = {one for one, own in prefixes.items() if any(name.startswith(own) for name in header.shapes)}
    return frozenset(found | {"unet"})


def read_prediction(header: FileHeader) -> tuple[str, bool, tuple[Message, ...]]:
    """Returns what a UNet predicts, whether its noise schedule ends without any signal, and what to tell of that.

    The first is `v_prediction`, `epsilon`, or "" if nothing says it. Trainers mark it by empty tensors `v_pred` and
    `ztsnr`, as NoobAI's and ComfyUI do, or in the metadata as ModelSpec (github.com/Stability-AI/ModelSpec) and kohya's
    trainers do; else a file's name may say it.
    """
    said = header.metadata.get("modelspec.prediction_type", "").lower()
    has_zero_snr = "ztsnr" in header.shapes or header.metadata.get("ss_zero_terminal_snr") == "True"
    if "v_pred" in header.shapes or said.startswith("v"):
        notes = [say("It predicts velocity, as the file says.")]
    elif said.startswith("eps"):
        return "epsilon", has_zero_snr, ()
    elif _NAMED_V.search(header.name.lower()):
        notes = [say("Its name says that it predicts velocity; prediction_type in models.toml says otherwise.")]
    else:
        return "", has_zero_snr, ()
    if has_zero_snr:
        notes.append(say("Its noise ends at zero signal."))
    return "v_prediction", has_zero_snr, tuple(notes)


def change_scheduler(prediction: str, *, has_zero_snr: bool) -> dict[str, Any]:
    """Returns the fields of diffusers' scheduler configs that say so.

    With zero terminal SNR the first step is the last timestep (arXiv 2305.08891, 3.3): `trailing`.
    """
    changes = {"prediction_type": prediction} if prediction else {}
    return changes | ({"rescale_betas_zero_snr": True, "timestep_spacing": "trailing"} if has_zero_snr else {})


def _count_layers(shapes: Mapping[str, tuple[int, ...]], block: str) -> int:
    number = 0
    while f"{block}.transformer_blocks.{number}.norm1.weight" in shapes:
        number += 1
    return number


def _measure_config(config: Mapping[str, Any]) -> UNetShape:
    channels, layers = config["block_out_channels"], config.get("layers_per_block", 2)
    depth = config.get("transformer_layers_per_block", 1)
    depths = [depth] * len(channels) if isinstance(depth, int) else depth
    blocks: list[tuple[int, int]] = []
    for level, width in enumerate(channels):
        has_attention = "CrossAttn" in config["down_block_types"][level]
        blocks += [(width, depths[level] if has_attention else 0)] * layers
        blocks += [(width, 0)] if level + 1 < len(channels) else []
    has_labels = config.get("addition_embed_type") == "text_time"
    return UNetShape(
        channels=config.get("in_channels", 4),
        latents=config.get("out_channels", 4),
        text_width=config["cross_attention_dim"],
        label_width=config["projection_class_embeddings_input_dim"] if has_labels else 0,
        blocks=tuple(blocks),
        middle_depth=depths[-1],
    )
