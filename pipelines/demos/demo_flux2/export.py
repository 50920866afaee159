"""Exports the trained parameters as a genuine diffusers folder of Flux2KleinPipeline, in fp16.

Tests load the folder with that pipeline (tests/pipelines/demos/demo_flux2).
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from diffusers import FlowMatchEulerDiscreteScheduler
from transformers import AutoTokenizer, Qwen3ForCausalLM

from pipelines.demos.demo_flux2 import architecture
from pipelines.demos.network import save_module, take_part
from pipelines.runtime.sampling.preview import LatentsToRgb, write_map

MODEL_INDEX: dict[str, Any] = {
    "_class_name": "Flux2KleinPipeline",
    "_diffusers_version": "0.42.1",
    "_max_sequence_length": architecture.TEXT_LENGTH,
    "is_distilled": False,
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "Qwen3ForCausalLM"],
    "tokenizer": ["transformers", "Qwen2TokenizerFast"],
    "transformer": ["diffusers", "Flux2Transformer2DModel"],
    "vae": ["diffusers", "AutoencoderKLFlux2"],
}


def export(
    *,
    vae: Mapping[str, np.ndarray],
    network: Mapping[str, np.ndarray],
    tokenizer_folder: Path,
    latents_to_rgb: LatentsToRgb,
    folder: Path,
) -> None:
    """Writes the whole model; `network` has the prefixes `text_encoder.` and `transformer.`."""
    tokenizer: Any = AutoTokenizer.from_pretrained(tokenizer_folder)
    config = architecture.text_config(len(tokenizer))
    folder.mkdir(parents=True, exist_ok=True)
    autoencoder = architecture.build_vae()
    buffers = {name: value.numpy() for name, value in autoencoder.named_buffers()}
    save_module(autoencoder, dict(vae) | buffers, folder / "vae")
    save_module(architecture.build_transformer(), take_part(network, "transformer"), folder / "transformer")
    text_encoder: Any = Qwen3ForCausalLM(config)
    words = {f"model.{name}": value for name, value in take_part(network, "text_encoder").items()}
    words["lm_head.weight"] = words["model.embed_tokens.weight"]
    save_module(text_encoder, words, folder / "text_encoder")
    shutil.copytree(tokenizer_folder, folder / "tokenizer", dirs_exist_ok=True)
    scheduler: Any = FlowMatchEulerDiscreteScheduler(**architecture.SCHEDULER_CONFIG)
    scheduler.save_pretrained(folder / "scheduler")
    (folder / "model_index.json").write_text(json.dumps(MODEL_INDEX, indent=2) + "\n", "utf-8")
    write_map(latents_to_rgb, folder)
