"""Sizes of the tiny Wan 2.1: the same classes, layout and conditioning, 1/300 of the weights.

A latent covers 8x8 pixels and four frames, a token of the transformer 2x2 latents: 17 frames of 128x128 are 320 tokens.
The transformer attends to the zeros after a prompt too, so every prompt has TEXT_LENGTH tokens here and in diffusers
(`max_sequence_length`).
"""

from collections.abc import Sequence
from typing import Any

from diffusers import AutoencoderKLWan, WanTransformer3DModel
from transformers import UMT5Config, UMT5EncoderModel

LATENT_CHANNELS = 8
SCALE = 8  # pixels per latent, each way
FRAME_SCALE = 4
TEXT_LENGTH = 40  # tokens
TEXT_WIDTH = 96

VAE_CONFIG: dict[str, Any] = {
    "base_dim": 16,
    "dim_mult": [1, 2, 4, 4],
    "num_res_blocks": 1,
    "z_dim": LATENT_CHANNELS,
    "temperal_downsample": [False, True, True],
}

TEXT_CONFIG: dict[str, Any] = {
    "d_model": TEXT_WIDTH,
    "d_kv": 24,
    "d_ff": 2 * TEXT_WIDTH,
    "num_layers": 2,
    "num_heads": 4,
    "dropout_rate": 0.0,
    "pad_token_id": 0,
    "eos_token_id": 1,
}

TRANSFORMER_CONFIG: dict[str, Any] = {
    "patch_size": (1, 2, 2),
    "num_attention_heads": 4,
    "attention_head_dim": 48,
    "in_channels": LATENT_CHANNELS,
    "out_channels": LATENT_CHANNELS,
    "text_dim": TEXT_WIDTH,
    "freq_dim": 64,
    "ffn_dim": 768,
    "num_layers": 5,
    "cross_attn_norm": True,
    "rope_max_seq_len": 64,
}

SCHEDULER_CONFIG: dict[str, Any] = {
    "prediction_type": "flow_prediction",
    "use_flow_sigmas": True,
    "flow_shift": 3.0,
}


def text_config(vocabulary_size: int) -> UMT5Config:
    return UMT5Config(vocab_size=vocabulary_size, **TEXT_CONFIG)


def build_text_encoder(config: UMT5Config) -> UMT5EncoderModel:
    """Builds the encoder without the second name of its only embedding table."""
    encoder: Any = UMT5EncoderModel(config)
    encoder.encoder.embed_tokens = None
    return encoder


def build_transformer() -> WanTransformer3DModel:
    return WanTransformer3DModel(**TRANSFORMER_CONFIG)


def build_vae(mean: Sequence[float] | None = None, deviation: Sequence[float] | None = None) -> AutoencoderKLWan:
    """Builds the autoencoder with its latents' statistics, which Wan's pipelines read from its config."""
    return AutoencoderKLWan(
        **VAE_CONFIG,
        latents_mean=list(mean or [0.0] * LATENT_CHANNELS),
        latents_std=list(deviation or [1.0] * LATENT_CHANNELS),
    )
