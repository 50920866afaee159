"""Exports the trained parameters as a genuine diffusers folder of WanPipeline, in fp16.

Tests load the folder with that pipeline (tests/pipelines/demos/demo_wan).
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from diffusers import UniPCMultistepScheduler
from transformers import AutoTokenizer

from pipelines.demos.demo_wan import architecture
from pipelines.demos.network import save_module, take_part
from pipelines.runtime.sampling.preview import LatentsToRgb, write_map

MODEL_INDEX: dict[str, Any] = {
    "_class_name": "WanPipeline",
    "_diffusers_version": "0.42.1",
    "_max_sequence_length": architecture.TEXT_LENGTH,
    "boundary_ratio": None,
    "expand_timesteps": False,
    "scheduler": ["diffusers", "UniPCMultistepScheduler"],
    "text_encoder": ["transformers", "UMT5EncoderModel"],
    "tokenizer": ["transformers", "T5TokenizerFast"],
    "transformer": ["diffusers", "WanTransformer3DModel"],
    "transformer_2": [None, None],
    "vae": ["diffusers", "AutoencoderKLWan"],
}


def export(
    *,
    vae: Mapping[str, np.ndarray],
    statistics: tuple[list[float], list[float]],
    network: Mapping[str, np.ndarray],
    tokenizer_folder: Path,
    latents_to_rgb: LatentsToRgb,
    folder: Path,
) -> None:
    """Writes the whole model; `network` has the prefixes `text_encoder.` and `transformer.`."""
    tokenizer: Any = AutoTokenizer.from_pretrained(tokenizer_folder)
    config = architecture.text_config(len(tokenizer))
    folder.mkdir(parents=True, exist_ok=True)
    save_module(architecture.build_vae(*statistics), vae, folder / "vae")
    save_module(architecture.build_transformer(), take_part(network, "transformer"), folder / "transformer")
    save_module(architecture.build_text_encoder(config), take_part(network, "text_encoder"), folder / "text_encoder")
    shutil.copytree(tokenizer_folder, folder / "tokenizer", dirs_exist_ok=True)
    scheduler: Any = UniPCMultistepScheduler(**architecture.SCHEDULER_CONFIG)
    scheduler.save_pretrained(folder / "scheduler")
    (folder / "model_index.json").write_text(json.dumps(MODEL_INDEX, indent=2) + "\n", "utf-8")
    write_map(latents_to_rgb, folder)
