"""Two tiny Stable Diffusions with random weights: one like 1.5, and one like 2.1, which predicts velocity."""

from pathlib import Path
from typing import Any

# 1.5 says one number of heads for all levels, and projects by convolutions; 2.1 says one for each, and is linear.
KINDS: dict[str, dict[str, Any]] = {
    "sd-one": {"attention_head_dim": 2, "cross_attention_dim": 32, "use_linear_projection": False},
    "sd-two": {"attention_head_dim": (2, 4), "cross_attention_dim": 40, "use_linear_projection": True},
}
SCHEDULERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sd-one": ("PNDMScheduler", {"prediction_type": "epsilon", "skip_prk_steps": True}),
    "sd-two": ("DDIMScheduler", {"prediction_type": "v_prediction"}),
}


def write_sd(folder: Path, tokenizer_folder: Path, kind: str, *, seed: int) -> None:
    """Saves a Stable Diffusion of 64 x 64 pixels through diffusers' save_pretrained."""
    import diffusers
    import torch
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(tokenizer_folder)
    if kind == "sd-two":  # as OpenCLIP's, whose padding is another token than the end
        tokenizer.pad_token = "!"
    torch.manual_seed(seed)
    width = KINDS[kind]["cross_attention_dim"]
    text_encoder = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers={"sd-one": 2, "sd-two": 5}[kind],  # five run as a scan
            num_attention_heads=4,
            max_position_embeddings=tokenizer.model_max_length,
            hidden_act={"sd-one": "quick_gelu", "sd-two": "gelu"}[kind],
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    unet = diffusers.UNet2DConditionModel(
        sample_size=16,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        **KINDS[kind],
    )
    vae = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(8, 16, 16),
        latent_channels=4,
        norm_num_groups=4,
    )
    with torch.no_grad():
        unet.conv_out.weight *= 3  # so that prompt and guidance show in the picture
        vae.decoder.conv_out.weight *= 2
    name, options = SCHEDULERS[kind]
    diffusers.StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=getattr(diffusers, name).from_config(
            {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
            | {"clip_sample": False, "set_alpha_to_one": False}
            | options
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder, safe_serialization=True)
