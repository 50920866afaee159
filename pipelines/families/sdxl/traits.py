"""How SDXL's checkpoints and LoRAs are recognised."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.traits import LORA_PREFIX, Likeness, Traits

_UNET = r"(input_blocks|middle_block|output_blocks|down_blocks|mid_block|up_blocks)"


def _read_local(folder: Path, _index: Mapping[str, Any]) -> Likeness:
    unet = json.loads((folder / "unet" / "config.json").read_text("utf-8"))
    vae = json.loads((folder / "vae" / "config.json").read_text("utf-8"))
    side = int(unet["sample_size"]) * 2 ** (len(vae["block_out_channels"]) - 1)
    return Likeness("sdxl-base", None if side >= 1024 else (side, side))


TRAITS = Traits(
    title="SDXL",
    pipeline_classes=("StableDiffusionXLPipeline",),
    read_local=_read_local,
    lora_names=re.compile(rf"^lora_te[12]_|^unet\.|^text_encoder(_2)?\.|^lora_unet_{_UNET}|{LORA_PREFIX}{_UNET}\."),
    tokenizer="clip",
    reads_weights=True,
    text_chunks=4,  # 300 word pieces: each number of chunks is a program of its own
)
