"""A tiny model quick to trace and compile, for tests of what surrounds it.

Its UNet has one level and no middle, its autoencoder as few blocks as there can be.
"""

import json
import shutil
from pathlib import Path
from typing import Any

ONE_LEVEL = {
    "mid_block_type": None,
    "down_block_types": ["CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D"],
    "block_out_channels": [32],
    "attention_head_dim": [4],
}
FEW_BLOCKS = {"block_out_channels": [8, 8, 8], "layers_per_block": 0}


def write_short(folder: Path, tiny: Path) -> None:
    """Saves in a folder what the folder `tiny` has, but for the UNet and the autoencoder."""
    import torch
    from diffusers import AutoencoderKL, UNet2DConditionModel

    shutil.copytree(tiny, folder)
    torch.manual_seed(2)
    unet = UNet2DConditionModel.from_config(_read_config(tiny / "unet") | ONE_LEVEL)
    vae = AutoencoderKL.from_config(_read_config(tiny / "vae") | FEW_BLOCKS)
    with torch.no_grad():
        unet.conv_out.weight *= 3  # so that prompt and guidance show in the picture
        vae.decoder.conv_out.weight *= 2
    unet.save_pretrained(folder / "unet")
    vae.save_pretrained(folder / "vae")


def _read_config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text("utf-8"))
