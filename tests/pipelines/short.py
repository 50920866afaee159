"""A tiny model with a UNet of one level and no middle, quick to trace and compile, for tests of what surrounds it."""

import json
import shutil
from pathlib import Path

ONE_LEVEL = {
    "mid_block_type": None,
    "down_block_types": ["CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D"],
    "block_out_channels": [32],
    "attention_head_dim": [4],
}


def write_short(folder: Path, tiny: Path) -> None:
    """Saves in a folder what the folder `tiny` has, but for the UNet."""
    import torch
    from diffusers import UNet2DConditionModel

    shutil.copytree(tiny, folder)
    torch.manual_seed(2)
    unet = UNet2DConditionModel.from_config(json.loads((tiny / "unet" / "config.json").read_text("utf-8")) | ONE_LEVEL)
    with torch.no_grad():
        unet.conv_out.weight *= 3  # so that prompt and guidance show in the picture
    unet.save_pretrained(folder / "unet")
