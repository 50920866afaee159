"""Exports the trained parameters as a genuine diffusers folder: fp16 safetensors, old CLIP names, both tokenizer files.

Tests load it with StableDiffusionXLPipeline (tests/pipelines/test_demo_model.py). transformers 5 drops the
`text_model.` prefix of CLIPTextModel when it saves; it is restored here, since every other reader of SDXL expects it.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from diffusers import EulerDiscreteScheduler
from safetensors.numpy import load_file, save_file
from transformers import CLIPTokenizer

from pipelines.demos.demo_sdxl import architecture
from pipelines.demos.network import save_module, take_part
from pipelines.demos.stills.architecture import build_vae
from pipelines.runtime.sampling.preview import LatentsToRgb, write_map

Values = Mapping[str, np.ndarray]


def export(
    *,
    vae: Values,
    network: Values,
    tokenizer_folder: Path,
    latents_to_rgb: LatentsToRgb,
    folder: Path,
) -> None:
    """Writes the whole model; `network` has the prefixes `unet.`, `text_encoder.`, `text_encoder_2.`."""
    tokenizer = CLIPTokenizer.from_pretrained(tokenizer_folder)
    config = architecture.text_config(
        vocabulary_size=len(tokenizer),
        **architecture.special_ids(tokenizer),
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_module(build_vae(), vae, folder / "vae")
    save_module(architecture.build_unet(), take_part(network, "unet"), folder / "unet")
    save_module(architecture.build_text_encoder(config), take_part(network, "text_encoder"), folder / "text_encoder")
    save_module(
        architecture.build_text_encoder_2(config), take_part(network, "text_encoder_2"), folder / "text_encoder_2"
    )
    _restore_prefix(folder / "text_encoder" / "model.safetensors")
    for name in ("tokenizer", "tokenizer_2"):
        shutil.copytree(tokenizer_folder, folder / name, dirs_exist_ok=True)
    # SDXL's own scheduler config has these too; DDIM and others read them.
    extra = {"clip_sample": False, "set_alpha_to_one": False, "skip_prk_steps": True}
    scheduler: Any = EulerDiscreteScheduler.from_config(architecture.SCHEDULER_CONFIG | extra)
    scheduler.save_pretrained(folder / "scheduler")
    _write_json(folder / "model_index.json", _model_index())
    write_map(latents_to_rgb, folder)


def _restore_prefix(file: Path) -> None:
    tensors = {
        name if name.startswith("text_model.") else f"text_model.{name}": value
        for name, value in load_file(file).items()
    }
    save_file(tensors, file, metadata={"format": "pt"})


def _model_index() -> dict[str, Any]:
    return {
        "_class_name": "StableDiffusionXLPipeline",
        "_diffusers_version": "0.42.1",
        "force_zeros_for_empty_prompt": True,
        "scheduler": ["diffusers", "EulerDiscreteScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
