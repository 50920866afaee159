"""How Stable Diffusion 1 and 2 are loaded, planned and run."""

import functools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import CLIPTextModel

from pipelines.errors import ModelError
from pipelines.families.sd.traits import TRAITS
from pipelines.families.unet import parts
from pipelines.families.unet.architecture import make_architecture
from pipelines.families.unet.load import UNetLoader
from pipelines.families.unet.loras import make_spell
from pipelines.families.unet.single_file import make_text_converter
from pipelines.messages import say
from pipelines.runtime.sampling.preview import SD_LATENTS_TO_RGB

ENCODER = "text_encoder"

log = logging.getLogger(__name__)


class Parts(parts.Parts):
    """A loaded Stable Diffusion: its UNet is told the text's last hidden states and nothing else."""

    guess = SD_LATENTS_TO_RGB


def _check(folder: Path, unet: Any) -> None:
    if unet.addition_embed_type is not None:
        raise ModelError(
            say(
                "{folder} holds a UNet that takes more than text ({kind}).",
                folder=folder,
                kind=unet.addition_embed_type,
            ),
            advice=say("If it is an SDXL, its model_index.json should name StableDiffusionXLPipeline."),
        )


def read_index(folder: Path, index: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nothing, as the index decides nothing here, but tells of a safety checker that it names."""
    if any(index.get("safety_checker") or ()):
        _tell_of_checker(folder)
    return {}


@functools.cache
def _tell_of_checker(folder: Path) -> None:
    """Logs once for each checkpoint what of it does not run here."""
    log.warning("%s names a safety checker, which does not run here: pictures come as they are made", folder)


spell = make_spell(
    {
        "text_encoder.": ENCODER,
        "lora_te_": ENCODER,
        "text_encoders.clip_l.transformer.": ENCODER,  # ComfyUI's names, of 1 and of 2
        "text_encoders.clip_h.transformer.": ENCODER,
    }
)

ARCHITECTURE = make_architecture(
    UNetLoader(
        traits=TRAITS,
        parts_class=Parts,
        encoders={ENCODER: CLIPTextModel},
        text_converters={
            ENCODER: make_text_converter(clip="cond_stage_model.transformer.", open_clip="cond_stage_model.model.")
        },
        check=_check,
        read_index=read_index,
    ),
    spell,
)
