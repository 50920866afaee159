"""What a loaded Wan consists of: modules, weights on the mesh, tokenizer, and the checkpoint's own settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh
from transformers import CLIPImageProcessorPil

from pipelines.catalog import AttentionOptions, Shape
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.sampling.preview import PreviewMap

COMPONENTS = ("text_encoder", "transformer", "vae", "tokenizer", "scheduler")
# The autoencoder decodes frames, and reads the picture that some start from.
STAGES_OF = {
    "text_encoder": ("encode",),
    "image_encoder": ("denoise",),
    "transformer": ("denoise",),
    "transformer_2": ("denoise",),
    "vae": ("denoise", "decode"),
}
EXPERTS = ("transformer", "transformer_2")  # in the order in which they denoise


@dataclass(frozen=True, kw_only=True)
class Parts:
    """`weights` holds only the components of the loaded `stages`; `dtype` is what encoder and transformer compute in.

    `boundary_timestep` is where the second expert takes over; None with one transformer.
    """

    mesh: Mesh
    modules: Mapping[str, TracedModule]
    weights: dict[str, dict[str, jax.Array]]
    stages: frozenset[str]
    tokenizer: Any
    image_processor: CLIPImageProcessorPil | None
    scheduler_config: Mapping[str, Any]
    text_length: int
    boundary_timestep: float | None
    expands_timesteps: bool
    preview: PreviewMap
    dtype: Any
    attention: AttentionOptions = AttentionOptions()

    @property
    def text_width(self) -> int:
        return self.config_of("text_encoder").d_model

    @property
    def takes_channels(self) -> bool:
        """Whether the model needs a first picture, as further input channels."""
        return self.config_of("transformer").in_channels != self.config_of("vae").z_dim

    @property
    def takes_pictures(self) -> bool:
        return self.expands_timesteps or self.takes_channels

    def latents_CTHW(self, shape: Shape) -> tuple[int, int, int, int]:  # noqa: N802 - the shape is the name
        """One video's latents."""
        vae = self.config_of("vae")
        frames = (shape.frames - 1) // vae.scale_factor_temporal + 1
        return vae.z_dim, frames, shape.height // vae.scale_factor_spatial, shape.width // vae.scale_factor_spatial

    def config_of(self, component: str) -> Any:
        """The component's own config.json, as diffusers or transformers hold it."""
        return self.modules[component].module.config
