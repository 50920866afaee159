"""Sizes of the tiny SDXL: the same classes, layout and conditioning as SDXL base, 1/400 of the weights.

The UNet has three levels with attention on the lower two only, as in SDXL. The autoencoder's sizes are in
stills/architecture.py.
"""

from typing import Any

from diffusers import UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from pipelines.demos.stills.architecture import LATENT_CHANNELS

TEXT_LENGTH = 40  # tokens; the longest caption has 31
TEXT_WIDTH = 96
TIME_ID_WIDTH = 16  # features for each of SDXL's six time ids

UNET_CONFIG: dict[str, Any] = {
    "sample_size": 16,
    "in_channels": LATENT_CHANNELS,
    "out_channels": LATENT_CHANNELS,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "block_out_channels": (64, 96, 96),
    "layers_per_block": 1,
    "transformer_layers_per_block": 1,
    "attention_head_dim": (4, 3, 3),  # diffusers' name for the number of heads
    "cross_attention_dim": 2 * TEXT_WIDTH,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": TIME_ID_WIDTH,
    "projection_class_embeddings_input_dim": TEXT_WIDTH + 6 * TIME_ID_WIDTH,
    "use_linear_projection": True,
    "norm_num_groups": 16,
}

SCHEDULER_CONFIG: dict[str, Any] = {
    "num_train_timesteps": 1000,
    "beta_schedule": "linear",
    "beta_start": 1e-4,
    "beta_end": 0.02,
    "prediction_type": "v_prediction",
    "timestep_spacing": "trailing",
    "steps_offset": 0,
}


def text_config(*, vocabulary_size: int, bos_id: int, eos_id: int) -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=vocabulary_size,
        hidden_size=TEXT_WIDTH,
        intermediate_size=4 * TEXT_WIDTH,
        projection_dim=TEXT_WIDTH,
        num_hidden_layers=3,  # SDXL uses the penultimate one
        num_attention_heads=4,
        max_position_embeddings=TEXT_LENGTH,
        hidden_act="gelu",
        bos_token_id=bos_id,
        eos_token_id=eos_id,
        pad_token_id=eos_id,
    )


def special_ids(tokenizer: CLIPTokenizer) -> dict[str, int]:
    """Returns the ids of the begin and end tokens, as arguments of `text_config`."""
    vocabulary = tokenizer.get_vocab()
    return {"bos_id": vocabulary[str(tokenizer.bos_token)], "eos_id": vocabulary[str(tokenizer.eos_token)]}


def build_unet() -> UNet2DConditionModel:
    return UNet2DConditionModel(**UNET_CONFIG)


def build_text_encoder(config: CLIPTextConfig) -> CLIPTextModel:
    return CLIPTextModel(config)


def build_text_encoder_2(config: CLIPTextConfig) -> CLIPTextModelWithProjection:
    return CLIPTextModelWithProjection(config)
