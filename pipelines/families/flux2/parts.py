"""What a loaded FLUX.2 consists of: modules, weights on the mesh, the tokenizer, and the checkpoint's own settings."""

from dataclasses import dataclass

from pipelines.catalog import Shape
from pipelines.families.flux2.variants import Guidance, Variant
from pipelines.families.learnt_preview import PreviewedParts

COMPONENTS = ("text_encoder", "transformer", "vae", "tokenizer", "scheduler")
# The autoencoder decodes pictures, and reads the references that denoising starts from.
STAGES_OF = {"text_encoder": ("encode",), "transformer": ("denoise",), "vae": ("denoise", "decode")}

PATCH = 2  # latents of the autoencoder along each side of a token


@dataclass(frozen=True, kw_only=True)
class Parts(PreviewedParts):
    """`out_layers` are the hidden states of the text encoder that make up a prompt's embeddings."""

    variant: Variant
    guidance: Guidance
    out_layers: tuple[int, ...]

    @property
    def text_width(self) -> int:
        """Features of `prompt_embeds`."""
        return self.config_of("transformer").joint_attention_dim

    def latents_CHW(self, shape: Shape) -> tuple[int, int, int]:  # noqa: N802 - the shape is the name
        """One picture's latents, already in patches: a token for each place."""
        config = self.config_of("vae")
        scale = 2 ** (len(config.block_out_channels) - 1) * PATCH
        return self.config_of("transformer").in_channels, shape.height // scale, shape.width // scale
