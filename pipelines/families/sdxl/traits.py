"""How SDXL's checkpoints and LoRAs are recognised."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.sdxl.lora_traits import LORA_TRAITS
from pipelines.families.traits import Likeness, Traits


def _read_local(folder: Path, _index: Mapping[str, Any]) -> Likeness:
    unet = json.loads((folder / "unet" / "config.json").read_text("utf-8"))
    vae = json.loads((folder / "vae" / "config.json").read_text("utf-8"))
    side = int(unet["sample_size"]) * 2 ** (len(vae["block_out_channels"]) - 1)
    return Likeness("sdxl-base", None if side >= 1024 else (side, side))


TRAITS = Traits(
    title="SDXL",
    pipeline_classes=("StableDiffusionXLPipeline",),
    read_local=_read_local,
    loras=LORA_TRAITS,
    tokenizer="clip",
    reads_weights=True,
    text_chunks=4,  # 300 word pieces: each number of chunks is a program of its own
)
