"""How SDXL's LoRAs are recognised, and told from those of Stable Diffusion 1 and 2, whose layers are named alike."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pipelines.families.traits import LORA_PREFIX, LORA_STEM, LoraTraits, Sizes
from pipelines.messages import say

_UNET = r"(input_blocks|middle_block|output_blocks|down_blocks|mid_block|up_blocks)"
TEXT_WIDTH = say("width of texts")
# Of the cross-attention, keys and values are projections of the texts.
_READS_TEXT = re.compile(r"attn2[._]to_[kv]$")


def _measure_layers(layers: Mapping[str, tuple[int, int]]) -> Sizes:
    found = (columns for name, (_, columns) in layers.items() if columns and _READS_TEXT.search(name))
    width = next(found, 0)
    return {TEXT_WIDTH: width} if width else {}


def _measure_model(folder: Path) -> Sizes:
    config = json.loads((folder / "unet" / "config.json").read_text("utf-8"))
    return {TEXT_WIDTH: int(config["cross_attention_dim"])}


LORA_TRAITS = LoraTraits(
    names=re.compile(
        rf"^lora_te[12]_|^unet\.|^text_encoder(_2)?\.|^text_encoders\.clip_[lg]\.|{LORA_STEM}{_UNET}"
        rf"|{LORA_PREFIX}{_UNET}\."
    ),
    measure_layers=_measure_layers,
    measure_model=_measure_model,
)
