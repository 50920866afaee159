"""How FLUX.2's LoRAs are recognised, and for which size of the model one is."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pipelines.families.traits import LORA_PREFIX, LORA_STEM, LoraTraits, Sizes
from pipelines.messages import say

WIDTH, ROWS = say("width"), say("rows of linear1")  # the second tells FLUX.2 from FLUX.1, whose width may be the same
_SINGLE = re.compile(r"(to_qkv_mlp_proj|single_blocks[._]\d+[._]linear1)$")
_READS_WIDTH = re.compile(r"attn[._](qkv|to_[qkv]|add_[qkv]_proj|to_qkv_mlp_proj)$|linear1$")


def _measure_layers(layers: Mapping[str, tuple[int, int]]) -> Sizes:
    sizes: dict[str, int] = {}
    for name, (rows, columns) in layers.items():
        if columns and _READS_WIDTH.search(name):
            sizes.setdefault(WIDTH, columns)
        if rows and _SINGLE.search(name):
            sizes.setdefault(ROWS, rows)
    return sizes


def _measure_model(folder: Path) -> Sizes:
    config = json.loads((folder / "transformer" / "config.json").read_text("utf-8"))
    width = config["num_attention_heads"] * config["attention_head_dim"]
    return {WIDTH: width, ROWS: 3 * width + int(2 * config.get("mlp_ratio", 3.0) * width)}


LORA_TRAITS = LoraTraits(
    names=re.compile(
        rf"{LORA_PREFIX}((double|single)_blocks|(single_)?transformer_blocks|sformer_blocks)\.\d+\."
        rf"|{LORA_STEM}((double|single)_blocks|(single_)?transformer_blocks)_\d+_"
    ),
    measure_layers=_measure_layers,
    measure_model=_measure_model,
    example="transformer.single_transformer_blocks.0.attn.to_out.lora_A.weight",
)
