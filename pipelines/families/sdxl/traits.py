"""How SDXL's checkpoints and LoRAs are recognised."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.sdxl.lora_traits import LORA_TRAITS
from pipelines.families.traits import FileHeader, FileLikeness, Likeness, Traits, Unsupported
from pipelines.families.unet.file_recognition import (
    LAYOUT,
    change_scheduler,
    fits_file,
    list_components,
    measure_file,
    read_prediction,
)
from pipelines.families.unet.recognition import read_unet
from pipelines.messages import say
from pipelines.recipes.cache_kinds import TAYLOR
from pipelines.recipes.schedulers import DIFFUSION


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


_ENCODERS = {
    "text_encoder": ("conditioner.embedders.0.transformer.",),
    "text_encoder_2": ("conditioner.embedders.1.model.",),
}
_REFINER_LABELS = 2560  # what the refiner's UNet is told besides text: 1280 of it, and 5 numbers as 256 each


def _read_file(header: FileHeader) -> FileLikeness | None:
    """Tells SDXL from Stable Diffusion by its UNet's labels, and from its own relatives."""
    unet = measure_file(header)
    if unet is None or not unet.label_width or any(name.startswith("cond_stage_model.") for name in header.shapes):
        return None
    components = list_components(header, _ENCODERS | {"refiner": ("conditioner.embedders.0.model.",)})
    if "refiner" in components or unet.label_width == _REFINER_LABELS:
        raise Unsupported(say("SDXL's refiner, which only finishes the pictures of another model"))
    if unet.channels != unet.latents:
        raise Unsupported(
            say("an SDXL for inpainting or editing (its UNet takes {count} channels)", count=unet.channels)
        )
    if "edm_mean" in header.shapes:
        raise Unsupported(say("a Playground v2.5, whose noise levels are EDM's"))
    if "edm_vpred.sigma_max" in header.shapes:
        raise Unsupported(say("an SDXL whose noise levels are EDM's (CosXL)"))
    prediction, has_zero_snr, notes = read_prediction(header)
    return FileLikeness(
        layout=LAYOUT,
        components=components,
        model_ids=("sdxl-base",),
        scheduler_changes=change_scheduler(prediction, has_zero_snr=has_zero_snr),
        notes=notes,
    )


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
    read_file=_read_file,
    fits_file=fits_file,
    has_fixed_text_length=True,
    loras=LORA_TRAITS,
    tokenizer="clip",
    reads_weights=True,
    text_chunks=4,  # 300 word pieces: each number of chunks is a program of its own
    cache_kinds=(TAYLOR,),
    schedulers=DIFFUSION,
)
