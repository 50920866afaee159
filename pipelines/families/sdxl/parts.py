"""What a loaded SDXL consists of: modules, weights on the mesh, tokenizers, and the checkpoint's own settings."""

from dataclasses import dataclass

from pipelines.catalog import Shape
from pipelines.families.parts import CheckpointParts
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
class Parts(CheckpointParts):
    """`zeroes_empty`: an empty negative prompt means zeros instead of an encoded empty text."""

    zeroes_empty: bool
    latents_to_rgb: LatentsToRgb

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
