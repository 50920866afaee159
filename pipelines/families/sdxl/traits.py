"""How SDXL's checkpoints and LoRAs are recognised."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.sdxl.lora_traits import LORA_TRAITS
from pipelines.families.traits import Likeness, Traits, Unsupported
from pipelines.families.unet.recognition import read_unet
from pipelines.messages import say
from pipelines.schedulers import DIFFUSION


def _read_local(folder: Path, index: Mapping[str, Any]) -> Likeness:
    """Tells pieces of SDXL, whose pipelines have the same names, from what makes a picture of a prompt."""
    unet, side, channels = read_unet(folder)
    if index.get("requires_aesthetics_score"):  # also: one text encoder instead of two
        raise Unsupported(say("SDXL's refiner, which only finishes the pictures of another model"))
    if channels is not None:
        raise Unsupported(say("an SDXL for inpainting or editing (its UNet takes {count} channels)", count=channels))
    if unet.get("time_cond_proj_dim") is not None:
        raise Unsupported(say("an SDXL distilled to take its guidance as an input (LCM)"))
    return Likeness("sdxl-base", None if side >= 1024 else (side, side))


TRAITS = Traits(
    title="SDXL",
    # Those for pictures to start from have the same weights.
    pipeline_classes=(
        "StableDiffusionXLPipeline",
        "StableDiffusionXLImg2ImgPipeline",
        "StableDiffusionXLInpaintPipeline",
    ),
    unsupported={"StableDiffusionXLInstructPix2PixPipeline": say("an SDXL that edits pictures")},
    read_local=_read_local,
    has_fixed_text_length=True,
    loras=LORA_TRAITS,
    tokenizer="clip",
    reads_weights=True,
    text_chunks=4,  # 300 word pieces: each number of chunks is a program of its own
    schedulers=DIFFUSION,
)
