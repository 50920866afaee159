"""The parts of a loaded Z-Image: modules, weights on the mesh, the tokenizer, and the checkpoint's own settings."""

from dataclasses import dataclass
from typing import Any

from pipelines.families.learnt_preview import PreviewedParts
from pipelines.models.catalog import Shape

COMPONENTS = ("text_encoder", "transformer", "vae", "tokenizer", "scheduler")
# The autoencoder decodes pictures and also encodes the one that a recipe starts from, hence both stages.
STAGES_OF = {"text_encoder": ("encode",), "transformer": ("denoise",), "vae": ("denoise", "decode")}

PATCH = 2  # latents along each side of a token: the only patch size that the checkpoints have
FILLED = 32  # tokens of a picture and of a text are filled up to a multiple (SEQ_MULTI_OF in transformer_z_image.py)


def fill_up(length: int) -> int:
    """Returns the number of tokens with those that fill up."""
    return -(-length // FILLED) * FILLED


def count_pixels(vae_config: Any) -> int:
    """Returns the pixels along each side of a token."""
    return 2 ** (len(vae_config["block_out_channels"]) - 1) * PATCH


@dataclass(frozen=True, kw_only=True)
class Parts(PreviewedParts):
    """A loaded Z-Image; `out_layer` is the text encoder's hidden state that a prompt's embeddings are."""

    out_layer: int

    @property
    def text_width(self) -> int:
        """Returns the number of features of `prompt_embeds`."""
        return self.config_of("transformer").cap_feat_dim

    def count_tokens(self, shape: Shape) -> int:
        """Returns the tokens of one picture, without those that fill up."""
        side = count_pixels(self.config_of("vae"))
        return (shape.height // side) * (shape.width // side)

    def latents_CHW(self, shape: Shape) -> tuple[int, int, int]:  # noqa: N802 - the shape is the name
        """Returns the shape of one picture's latents."""
        config = self.config_of("vae")
        scale = 2 ** (len(config.block_out_channels) - 1)
        return config.latent_channels, shape.height // scale, shape.width // scale
