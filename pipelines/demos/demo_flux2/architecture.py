"""Sizes of the tiny FLUX.2 klein: the same classes, layout and conditioning, 1/900 of the weights.

The transformer's tokens are patches of 2x2 latents, as in FLUX.2: 64 of them for 256x256 pixels. It has no mask for the
text, so every prompt has TEXT_LENGTH tokens here and in diffusers (`max_sequence_length`).
"""

from typing import Any

from diffusers import AutoencoderKLFlux2, Flux2Transformer2DModel
from transformers import Qwen3Config, Qwen3Model

from pipelines.demos.stills.architecture import LATENT_CHANNELS, VAE_CONFIG

TEXT_LENGTH = 40  # tokens; the longest caption has 32
TEXT_WIDTH = 96
OUT_LAYERS = (1, 2, 3)  # hidden states used; klein uses 9, 18 and 27 of its 27 layers
PATCH = 2

TEXT_CONFIG: dict[str, Any] = {
    "hidden_size": TEXT_WIDTH,
    "intermediate_size": 3 * TEXT_WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": TEXT_LENGTH,
    "tie_word_embeddings": True,
    "text_encoder_out_layers": list(OUT_LAYERS),
}

TRANSFORMER_CONFIG: dict[str, Any] = {
    "in_channels": PATCH**2 * LATENT_CHANNELS,
    "num_layers": 2,
    "num_single_layers": 4,
    "num_attention_heads": 3,
    "attention_head_dim": 64,
    "joint_attention_dim": len(OUT_LAYERS) * TEXT_WIDTH,
    "timestep_guidance_channels": 64,
    "axes_dims_rope": (16, 16, 16, 16),
    "guidance_embeds": False,
}

SCHEDULER_CONFIG: dict[str, Any] = {"shift": 3.0, "use_dynamic_shifting": True}  # as in klein


def text_config(vocabulary_size: int) -> Qwen3Config:
    return Qwen3Config(vocab_size=vocabulary_size, **TEXT_CONFIG)


def build_text_encoder(config: Qwen3Config) -> Qwen3Model:
    return Qwen3Model(config)


def build_transformer() -> Flux2Transformer2DModel:
    return Flux2Transformer2DModel(**TRANSFORMER_CONFIG)


def build_vae() -> AutoencoderKLFlux2:
    """Builds the picture demos' AutoencoderKL; its latents are normalised already, so the batch norm does nothing."""
    return AutoencoderKLFlux2(**VAE_CONFIG, batch_norm_eps=0.0)
