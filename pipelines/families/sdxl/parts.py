"""What a loaded SDXL consists of: modules, weights on the mesh, tokenizers, and the checkpoint's own settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh
from transformers import CLIPTokenizer

from pipelines.catalog import Shape
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.sampling.preview import LatentsToRgb

COMPONENTS = ("text_encoder", "text_encoder_2", "unet", "vae", "tokenizer", "tokenizer_2", "scheduler")
# The autoencoder decodes pictures, and reads the one that denoising starts from.
STAGES_OF = {
    "text_encoder": ("encode",),
    "text_encoder_2": ("encode",),
    "unet": ("denoise",),
    "vae": ("denoise", "decode"),
}


@dataclass(frozen=True, kw_only=True)
class Parts:
    """`weights` holds only the components of the loaded `stages`; `dtype` is what text encoders and UNet compute in.

    `text_length` counts tokens of a prompt, padding included.
    """

    mesh: Mesh
    stages: tuple[str, ...]
    modules: Mapping[str, TracedModule]
    weights: dict[str, dict[str, jax.Array]]
    tokenizers: tuple[CLIPTokenizer, ...]
    text_length: int
    scheduler_config: Mapping[str, Any]
    zeroes_empty: bool
    latents_to_rgb: LatentsToRgb
    dtype: Any

    @property
    def text_width(self) -> int:
        """Features of `prompt_embeds`: both encoders side by side."""
        return sum(self.config_of(name).hidden_size for name in ("text_encoder", "text_encoder_2"))

    @property
    def pooled_width(self) -> int:
        """Features of `pooled_prompt_embeds`."""
        return self.config_of("text_encoder_2").projection_dim

    def latents_CHW(self, shape: Shape) -> tuple[int, int, int]:  # noqa: N802 - the shape is the name
        """One picture's latents."""
        config = self.config_of("vae")
        scale = 2 ** (len(config.block_out_channels) - 1)
        return config.latent_channels, shape.height // scale, shape.width // scale

    def config_of(self, component: str) -> Any:
        """The component's own config.json, as diffusers or transformers hold it."""
        return self.modules[component].module.config
