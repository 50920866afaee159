"""How checkpoints and LoRAs of Stable Diffusion 1 and 2 are recognised."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.sd.lora_traits import LORA_TRAITS
from pipelines.families.traits import Likeness, Traits, Unsupported
from pipelines.families.unet.recognition import read_unet
from pipelines.messages import say
from pipelines.schedulers import DIFFUSION


def _read_local(folder: Path, _index: Mapping[str, Any]) -> Likeness:
    """Tells 1 from 2 by the width of their texts, and 2's two kinds by what they predict."""
    unet, side, channels = read_unet(folder)
    if channels is not None:
        raise Unsupported(
            say("a Stable Diffusion for inpainting or editing (its UNet takes {count} channels)", count=channels)
        )
    if unet.get("time_cond_proj_dim") is not None:
        raise Unsupported(say("a Stable Diffusion distilled to take its guidance as an input (LCM)"))
    scheduler = json.loads((folder / "scheduler" / "scheduler_config.json").read_text("utf-8"))
    if scheduler.get("prediction_type") == "v_prediction":
        return Likeness("sd21", None if side >= 768 else (side, side))
    model_id = "sd2-base" if unet["cross_attention_dim"] == 1024 else "sd15"
    return Likeness(model_id, None if side >= 512 else (side, side))


TRAITS = Traits(
    title="Stable Diffusion 1 and 2",
    # Those for pictures to start from have the same weights.
    pipeline_classes=(
        "StableDiffusionPipeline",
        "StableDiffusionImg2ImgPipeline",
        "StableDiffusionInpaintPipeline",
    ),
    unsupported={
        "StableDiffusionInstructPix2PixPipeline": say("a Stable Diffusion that edits pictures"),
        "StableDiffusionDepth2ImgPipeline": say("a Stable Diffusion that takes a depth map"),
        "StableDiffusionUpscalePipeline": say("a Stable Diffusion that upscales pictures"),
        "StableUnCLIPPipeline": say("a Stable Diffusion that takes embeddings of pictures"),
        "StableUnCLIPImg2ImgPipeline": say("a Stable Diffusion that takes embeddings of pictures"),
    },
    read_local=_read_local,
    has_fixed_text_length=True,
    loras=LORA_TRAITS,
    tokenizer="clip",
    reads_weights=True,
    text_chunks=4,  # 300 word pieces, as for SDXL
    schedulers=DIFFUSION,
)
