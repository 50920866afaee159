"""The parts of a loaded FLUX.2: modules, weights on the mesh, the tokenizer, and the checkpoint's own settings."""

from dataclasses import dataclass

from pipelines.families.flux2.variants import Guidance, Variant
from pipelines.families.learnt_preview import PreviewedParts
from pipelines.models.catalog import Shape

COMPONENTS = ("text_encoder", "transformer", "vae", "tokenizer", "scheduler")
# The autoencoder decodes pictures and also encodes the references, hence both stages.
STAGES_OF = {"text_encoder": ("encode",), "transformer": ("denoise",), "vae": ("denoise", "decode")}

PATCH = 2  # the autoencoder's latents along each side of a token


@dataclass(frozen=True, kw_only=True)
class Parts(PreviewedParts):
    """A loaded FLUX.2; `out_layers` are the text encoder's hidden states that make up a prompt's embeddings."""

    variant: Variant
    guidance: Guidance
    out_layers: tuple[int, ...]

    @property
    def text_width(self) -> int:
        """Returns the number of features of `prompt_embeds`."""
        return self.config_of("transformer").joint_attention_dim

    def latents_CHW(self, shape: Shape) -> tuple[int, int, int]:  # noqa: N802 - the shape is the name
        """Returns the shape of one picture's patchified latents: each position is a token."""
        config = self.config_of("vae")
        scale = 2 ** (len(config.block_out_channels) - 1) * PATCH
        return self.config_of("transformer").in_channels, shape.height // scale, shape.width // scale
