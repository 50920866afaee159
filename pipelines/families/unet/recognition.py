"""What is known of a UNet without its weights: from its configs, and from the headers of LoRAs for it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.traits import LORA_PREFIX, LORA_STEM, Sizes
from pipelines.messages import say

TEXT_WIDTH = say("width of texts")
_BLOCKS = r"(input_blocks|middle_block|output_blocks|down_blocks|mid_block|up_blocks)"
UNET_NAMES = rf"^unet\.|{LORA_STEM}{_BLOCKS}|{LORA_PREFIX}{_BLOCKS}\."
"""A pattern for the UNet's tensors, however a trainer writes them."""

_LATENT_CHANNELS = 4  # diffusers' default for an autoencoder
# Of the cross-attention, keys and values are projections of the texts.
_READS_TEXT = re.compile(r"attn2[._]to_[kv]$")


def measure_layers(layers: Mapping[str, tuple[int, int]]) -> Sizes:
    found = (columns for name, (_, columns) in layers.items() if columns and _READS_TEXT.search(name))
    width = next(found, 0)
    return {TEXT_WIDTH: width} if width else {}


def measure_model(folder: Path) -> Sizes:
    config = json.loads((folder / "unet" / "config.json").read_text("utf-8"))
    return {TEXT_WIDTH: int(config["cross_attention_dim"])}


def read_unet(folder: Path) -> tuple[Mapping[str, Any], int, int | None]:
    """Returns a checkpoint's UNet config, the side of the pictures that it makes, and how many channels it takes.

    The channels are None if they are the latents' alone, and so nothing but noise is denoised.
    """
    unet = json.loads((folder / "unet" / "config.json").read_text("utf-8"))
    vae = json.loads((folder / "vae" / "config.json").read_text("utf-8"))
    latents = vae.get("latent_channels", _LATENT_CHANNELS)
    channels = unet.get("in_channels", latents)
    side = int(unet["sample_size"]) * 2 ** (len(vae["block_out_channels"]) - 1)
    return unet, side, None if channels == latents else channels
