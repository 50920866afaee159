"""The parts of a loaded SDXL: modules, weights on the mesh, tokenizers, and the checkpoint's own settings."""

from dataclasses import dataclass

from pipelines.catalog import Shape
from pipelines.families.parts import CheckpointParts
from pipelines.runtime.sampling.preview import LatentsToRgb

COMPONENTS = ("text_encoder", "text_encoder_2", "unet", "vae", "tokenizer", "tokenizer_2", "scheduler")
# The autoencoder decodes pictures and also encodes the one that denoising starts from, hence both stages.
STAGES_OF = {
    "text_encoder": ("encode",),
    "text_encoder_2": ("encode",),
    "unet": ("denoise",),
    "vae": ("denoise", "decode"),
}


@dataclass(frozen=True, kw_only=True)
class Parts(CheckpointParts):
    """A loaded SDXL; with `zeroes_empty` an empty negative prompt means zeros instead of an encoded empty text."""

    zeroes_empty: bool
    latents_to_rgb: LatentsToRgb

    @property
    def text_width(self) -> int:
        """Returns the number of features of `prompt_embeds`: those of both encoders."""
        return sum(self.config_of(name).hidden_size for name in ("text_encoder", "text_encoder_2"))

    @property
    def pooled_width(self) -> int:
        """Returns the number of features of `pooled_prompt_embeds`."""
        return self.config_of("text_encoder_2").projection_dim

    def latents_CHW(self, shape: Shape) -> tuple[int, int, int]:  # noqa: N802 - the shape is the name
        """Returns the shape of one picture's latents."""
        config = self.config_of("vae")
        scale = 2 ** (len(config.block_out_channels) - 1)
        return config.latent_channels, shape.height // scale, shape.width // scale
