"""How checkpoints and LoRAs of Stable Diffusion 1 and 2 are recognised."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.sd.lora_traits import LORA_TRAITS
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


_ENCODERS = {"text_encoder": ("cond_stage_model.transformer.", "cond_stage_model.model.")}
_WIDTH_2 = 1024  # of texts in Stable Diffusion 2; in 1 it is 768
_OF_512 = re.compile(r"512|base")
_OF_768 = re.compile(r"768")
_KINDS = {
    5: say("a Stable Diffusion that takes a depth map"),
    7: say("a Stable Diffusion that upscales pictures"),
}


def _read_file(header: FileHeader) -> FileLikeness | None:
    """Tells 1 from 2 by the width of their texts; what 2 predicts only the file itself or its name can say."""
    unet = measure_file(header)
    if unet is None:
        return None
    if unet.channels != unet.latents:
        other = say(
            "a Stable Diffusion for inpainting or editing (its UNet takes {count} channels)", count=unet.channels
        )
        raise Unsupported(_KINDS.get(unet.channels, other))
    if unet.label_width or any(name.startswith("embedder.") for name in header.shapes):
        raise Unsupported(say("a Stable Diffusion that takes embeddings of pictures"))
    prediction, has_zero_snr, notes = read_prediction(header)
    model_ids = ("sd15",)
    if unet.text_width == _WIDTH_2:
        size = f"{header.name} {header.metadata.get('modelspec.resolution', '')}".lower()
        is_base = prediction == "epsilon" or (not prediction and _OF_512.search(size) and not _OF_768.search(size))
        model_ids = ("sd2-base", "sd21") if is_base else ("sd21", "sd2-base")
        if not prediction:
            guess = (
                say("Nothing in the file says what it predicts; it is taken for a model of 512 pixels by its name.")
                if is_base
                else say("Nothing in the file says what it predicts; velocity is assumed, as by diffusers.")
            )
            notes = (guess,)
        elif prediction == "v_prediction":
            prediction = ""  # as the model says that it is like
    return FileLikeness(
        layout=LAYOUT,
        components=list_components(header, _ENCODERS),
        model_ids=model_ids,
        scheduler_changes=change_scheduler(prediction, has_zero_snr=has_zero_snr),
        notes=notes,
    )


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
    read_file=_read_file,
    fits_file=fits_file,
    has_fixed_text_length=True,
    loras=LORA_TRAITS,
    tokenizer="clip",
    reads_weights=True,
    text_chunks=4,  # 300 word pieces, as for SDXL
    cache_kinds=(TAYLOR,),
    schedulers=DIFFUSION,
)
