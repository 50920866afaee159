"""What a loaded FLUX.2 consists of: modules, weights on the mesh, the tokenizer, and the checkpoint's own settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh

from pipelines.catalog import Shape
from pipelines.families.flux2.variants import Guidance, Variant
from pipelines.runtime.bridge.modules import TracedModule

COMPONENTS = ("text_encoder", "transformer", "vae", "tokenizer", "scheduler")
# The autoencoder decodes pictures, and reads the references that denoising starts from.
STAGES_OF = {"text_encoder": ("encode",), "transformer": ("denoise",), "vae": ("denoise", "decode")}

PATCH = 2  # latents of the autoencoder along each side of a token


@dataclass(frozen=True, kw_only=True)
class Parts:
    """`weights` holds only the components of the loaded `stages`; `dtype` is what all of them compute in.

    `text_length` counts tokens, padding included; `preview_cells` are preview pixels along each side of a token.
    """

    mesh: Mesh
    stages: tuple[str, ...]
    variant: Variant
    guidance: Guidance
    modules: Mapping[str, TracedModule]
    weights: dict[str, dict[str, jax.Array]]
    tokenizer: Any
    text_length: int
    out_layers: tuple[int, ...]
    scheduler_config: Mapping[str, Any]
    dtype: Any
    preview_cells: int

    @property
    def text_width(self) -> int:
        """Features of `prompt_embeds`."""
        return self.config_of("transformer").joint_attention_dim

    def latents_CHW(self, shape: Shape) -> tuple[int, int, int]:  # noqa: N802 - the shape is the name
        """One picture's latents, already in patches: a token for each place."""
        config = self.config_of("vae")
        scale = 2 ** (len(config.block_out_channels) - 1) * PATCH
        return self.config_of("transformer").in_channels, shape.height // scale, shape.width // scale

    def config_of(self, component: str) -> Any:
        """The component's own config.json, as diffusers or transformers hold it."""
        return self.modules[component].module.config
