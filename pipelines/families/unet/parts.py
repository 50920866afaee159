"""The parts of a loaded model with a UNet, and what its family's UNet is told besides latents and timestep."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from pipelines.families.parts import CheckpointParts
from pipelines.models.catalog import Shape
from pipelines.runtime.sampling.preview import LatentsToRgb


@dataclass(frozen=True, kw_only=True)
class Parts(CheckpointParts):
    """A loaded model; with `zeroes_empty` an empty negative prompt means zeros instead of an encoded empty text.

    `text_encoders` are its components that read a prompt, and `guess` draws previews where the checkpoint brings no map
    of its own. A family whose UNet takes more than hidden states of the text overrides the methods.
    """

    text_encoders: ClassVar[tuple[str, ...]] = ("text_encoder",)
    guess: ClassVar[LatentsToRgb]

    latents_to_rgb: LatentsToRgb
    zeroes_empty: bool = False

    @staticmethod
    def read_text(encoder: Any, ids: Any) -> tuple[Any, Any]:
        """Returns a text encoder's hidden states that the UNet attends to, and the pooled text or None.

        These are the last ones, after the final norm.
        """
        return encoder(ids).last_hidden_state, None

    @property
    def text_widths(self) -> list[int]:
        """Returns each text encoder's share of the features of `prompt_embeds`."""
        return [self.config_of(name).hidden_size for name in self.text_encoders]

    def embedding_sizes(self, text_chunks: int) -> dict[str, tuple[int, ...]]:
        """Maps each of a prompt's embeddings to its size, for one row."""
        return {"prompt_embeds": (text_chunks * self.text_length, sum(self.text_widths))}

    def describe_shape(self, shape: Shape) -> dict[str, np.ndarray]:  # noqa: ARG002 - a UNet with size conditioning does
        """Returns what the UNet is told of a picture's size, one row each."""
        return {}

    def read_conditions(self, rows: Mapping[str, jax.Array], dtype: Any) -> dict[str, Any]:  # noqa: ARG002 - text alone needs none
        """Returns the UNet's further arguments in `dtype`, from the rows of all embeddings and `describe_shape`."""
        return {}

    def latents_CHW(self, shape: Shape) -> tuple[int, int, int]:  # noqa: N802 - the shape is the name
        """Returns the shape of one picture's latents."""
        config = self.config_of("vae")
        scale = 2 ** (len(config.block_out_channels) - 1)
        return config.latent_channels, shape.height // scale, shape.width // scale
