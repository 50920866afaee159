"""Sizes of the autoencoder of both picture demos, and of its shallow teacher.

They have no attention in the middle block, so that training on crops carries over to whole pictures of any shape.
"""

from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL

from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta

LATENT_CHANNELS = 16
SHALLOW_CHANNELS = 4
VAE_SCALE = 16  # pixels per latent, each way

VAE_CONFIG: dict[str, Any] = {
    "down_block_types": ("DownEncoderBlock2D",) * 5,
    "up_block_types": ("UpDecoderBlock2D",) * 5,
    "block_out_channels": (16, 32, 64, 64, 96),
    "layers_per_block": 1,
    "latent_channels": LATENT_CHANNELS,
    "norm_num_groups": 4,
    "mid_block_add_attention": False,
    "sample_size": 256,
}
SCALING_FACTOR = 1.0  # mean and spread of the latents are folded into the quant convolutions

# The deep autoencoder's teacher has one level less: a latent covers 8 pixels each way.
SHALLOW_VAE_CONFIG: dict[str, Any] = VAE_CONFIG | {
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (16, 32, 64, 64),
    "latent_channels": SHALLOW_CHANNELS,
}


def build_vae() -> AutoencoderKL:
    return AutoencoderKL(**VAE_CONFIG, scaling_factor=SCALING_FACTOR)


def build_shallow_vae() -> AutoencoderKL:
    return AutoencoderKL(**SHALLOW_VAE_CONFIG, scaling_factor=SCALING_FACTOR)


def trace_and_initialise(build: Any, *arguments: Any, seed: int) -> tuple[TracedModule, dict[str, np.ndarray]]:
    """Returns a module for tracing, and PyTorch's random initial parameters for it."""
    torch.manual_seed(seed)
    initial = {name: value.detach().numpy() for name, value in build(*arguments).named_parameters()}
    with parameters_on_meta():
        module = build(*arguments)
    return TracedModule(module), initial
