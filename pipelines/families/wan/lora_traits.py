"""How Wan's LoRAs are recognised, for which size of the model one is, and for which of two experts."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pipelines.families.traits import LORA_PREFIX, LORA_STEM, LoraTraits, Sizes
from pipelines.messages import say

WIDTH = say("width")
_READS_WIDTH = re.compile(r"blocks[._]\d+[._]((self|cross)_attn|attn[12])[._](to_)?[qkvo](_img|ut[._]0)?$")

# Words in file names: `HIGH`, `high_noise`, `HighNoise`, `HN`, and the same of the other expert.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LEVELS = {"high": "high", "highnoise": "high", "hn": "high", "low": "low", "lownoise": "low", "ln": "low"}
# What follows "low" and "high" where they are about the picture.
_OF_PICTURES = frozenset(
    (
        *("poly", "polygon", "res", "resolution", "quality", "angle", "key", "light", "lighting", "detail", "details"),
        *("detailed", "contrast", "rank", "vram", "fps", "fi", "speed", "tech", "shot", "rise", "fashion", "heels"),
        *("school", "definition", "def", "dynamic", "fantasy", "end", "life", "tide", "cut", "saturation", "motion"),
    )
)


def _measure_layers(layers: Mapping[str, tuple[int, int]]) -> Sizes:
    found = (columns for name, (_, columns) in layers.items() if columns and _READS_WIDTH.search(name))
    width = next(found, 0)
    return {WIDTH: width} if width else {}


def _measure_model(folder: Path) -> Sizes:
    config = json.loads((folder / "transformer" / "config.json").read_text("utf-8"))
    return {WIDTH: config["num_attention_heads"] * config["attention_head_dim"]}


def _find_expert(text: str) -> str:
    """Finds the one level of noise that a name speaks of, in any case and at any place; "" for none or both."""
    words = [word.lower() for word in _WORDS.findall(text)]
    found = {
        _LEVELS[word]
        for word, following in zip(words, [*words[1:], ""], strict=True)
        if word in _LEVELS and following not in _OF_PICTURES
    }
    return found.pop() if len(found) == 1 else ""


LORA_TRAITS = LoraTraits(
    names=re.compile(
        rf"{LORA_PREFIX}blocks\.\d+\.(attn[12]|self_attn|cross_attn|ffn)\."
        rf"|{LORA_STEM}blocks_\d+_(self_attn|cross_attn|attn[12]|ffn)_"
    ),
    measure_layers=_measure_layers,
    measure_model=_measure_model,
    find_expert=_find_expert,
    example="transformer.blocks.0.ffn.net.0.proj.lora_A.weight",
)
