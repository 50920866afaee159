"""How Z-Image's LoRAs are recognised, and for which size of the model one is."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pipelines.families.traits import LORA_PREFIX, LORA_STEM, LoraTraits, Sizes
from pipelines.messages import say

WIDTH = say("width")  # tells it from Lumina 2, whose layers have the same names
_STACKS = r"(layers|noise_refiner|context_refiner)"
_PARTS = r"(attention|feed_forward|adaLN_modulation)"
_READS_WIDTH = re.compile(r"(attention[._](to_[qkv]|qkv)|feed_forward[._]w[13])$")


def _measure_layers(layers: Mapping[str, tuple[int, int]]) -> Sizes:
    found = (columns for name, (_, columns) in layers.items() if columns and _READS_WIDTH.search(name))
    width = next(found, 0)
    return {WIDTH: width} if width else {}


def _measure_model(folder: Path) -> Sizes:
    return {WIDTH: json.loads((folder / "transformer" / "config.json").read_text("utf-8"))["dim"]}


LORA_TRAITS = LoraTraits(
    names=re.compile(
        rf"{LORA_PREFIX}{_STACKS}\.\d+\.{_PARTS}\.|{LORA_STEM}{_STACKS}_\d+_{_PARTS}_",
    ),
    measure_layers=_measure_layers,
    measure_model=_measure_model,
    example="transformer.layers.0.attention.to_q.lora_A.weight",
)
