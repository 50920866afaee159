"""How SDXL is loaded, planned and run: what it reads of prompts, and what its UNet is told besides their text."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from transformers import CLIPTextModel, CLIPTextModelWithProjection

from pipelines.errors import ModelError
from pipelines.families.sdxl.traits import TRAITS
from pipelines.families.unet import parts
from pipelines.families.unet.architecture import make_architecture
from pipelines.families.unet.load import UNetLoader
from pipelines.families.unet.loras import make_spell
from pipelines.families.unet.single_file import make_text_converter
from pipelines.messages import say
from pipelines.models.catalog import Shape
from pipelines.runtime.bridge.modules import call_for_layers
from pipelines.runtime.sampling.preview import SDXL_LATENTS_TO_RGB

ENCODERS = {"text_encoder": CLIPTextModel, "text_encoder_2": CLIPTextModelWithProjection}


@dataclass(frozen=True, kw_only=True)
class Parts(parts.Parts):
    """A loaded SDXL: both encoders' penultimate hidden states, the second one's projection, and the picture's size."""

    text_encoders = tuple(ENCODERS)
    guess = SDXL_LATENTS_TO_RGB

    @staticmethod
    def read_text(encoder: Any, ids: Any) -> tuple[Any, Any]:
        """Returns the penultimate hidden states, and the text's projection or None if the encoder has none."""
        output, hidden_states = call_for_layers(encoder, ids)
        return hidden_states[-2], getattr(output, "text_embeds", None)

    def embedding_sizes(self, text_chunks: int) -> dict[str, tuple[int, ...]]:
        pooled = (self.config_of(self.text_encoders[-1]).projection_dim,)
        return super().embedding_sizes(text_chunks) | {"pooled_prompt_embeds": pooled}

    def describe_shape(self, shape: Shape) -> dict[str, np.ndarray]:
        """Returns the size conditioning: original size, crop corner, target size, each height first."""
        height, width = shape.height, shape.width
        return {"time_ids": np.asarray([[height, width, 0, 0, height, width]], np.float32)}

    def read_conditions(self, rows: Mapping[str, jax.Array], dtype: Any) -> dict[str, Any]:
        return {
            "added_cond_kwargs": {
                "text_embeds": rows["pooled_prompt_embeds"].astype(dtype),
                "time_ids": rows["time_ids"].astype(dtype),
            }
        }


def _check(folder: Path, unet: Any) -> None:
    if unet.addition_embed_type != "text_time":
        raise ModelError(
            say("{folder} holds a UNet without SDXL's size conditioning.", folder=folder),
            advice=say("If it is a Stable Diffusion 1 or 2, its model_index.json should name StableDiffusionPipeline."),
        )


def _read_index(_folder: Path, index: Mapping[str, Any]) -> dict[str, Any]:
    return {"zeroes_empty": bool(index.get("force_zeros_for_empty_prompt", True))}


spell = make_spell(
    {
        "text_encoder.": "text_encoder",
        "text_encoder_2.": "text_encoder_2",
        "lora_te1_": "text_encoder",
        "lora_te2_": "text_encoder_2",
        "text_encoders.clip_l.transformer.": "text_encoder",  # ComfyUI's names
        "text_encoders.clip_g.transformer.": "text_encoder_2",
    }
)

ARCHITECTURE = make_architecture(
    UNetLoader(
        traits=TRAITS,
        parts_class=Parts,
        encoders=ENCODERS,
        text_converters={
            "text_encoder": make_text_converter(clip="conditioner.embedders.0.transformer."),
            "text_encoder_2": make_text_converter(open_clip="conditioner.embedders.1.model."),
        },
        check=_check,
        read_index=_read_index,
    ),
    spell,
)
