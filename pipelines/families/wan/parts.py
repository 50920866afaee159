"""The parts of a loaded Wan: modules, weights on the mesh, the tokenizer, and the checkpoint's own settings."""

from dataclasses import dataclass

from transformers import CLIPImageProcessorPil

from pipelines.families.learnt_preview import PreviewedParts
from pipelines.models.catalog import AttentionOptions, Shape
from pipelines.runtime.sampling.schedules import COLUMNS, Schedule

COMPONENTS = ("text_encoder", "transformer", "vae", "tokenizer", "scheduler")
FURTHER_COMPONENTS = ("transformer_2", "image_encoder", "image_processor")  # only some checkpoints have these
# The autoencoder decodes frames and also encodes the picture that some models start from, hence both stages.
STAGES_OF = {
    "text_encoder": ("encode",),
    "image_encoder": ("denoise",),
    "transformer": ("denoise",),
    "transformer_2": ("denoise",),
    "vae": ("denoise", "decode"),
}
EXPERTS = ("transformer", "transformer_2")  # in the order in which they denoise


@dataclass(frozen=True, kw_only=True)
class Parts(PreviewedParts):
    """A loaded Wan; the second expert takes over at `boundary_timestep`, which is None with one transformer."""

    image_processor: CLIPImageProcessorPil | None
    boundary_timestep: float | None
    expands_timesteps: bool
    attention: AttentionOptions = AttentionOptions()

    @property
    def text_width(self) -> int:
        return self.config_of("text_encoder").d_model

    @property
    def takes_channels(self) -> bool:
        """Returns whether the model needs a first picture, as further input channels."""
        return self.config_of("transformer").in_channels != self.config_of("vae").z_dim

    @property
    def takes_pictures(self) -> bool:
        return self.expands_timesteps or self.takes_channels

    @property
    def picture_count(self) -> int:
        """Returns how many pictures a condition is made of: a first and a last one (FLF2V), or a first one alone."""
        return 1 if self.config_of("transformer").pos_embed_seq_len is None else 2

    def latents_CTHW(self, shape: Shape) -> tuple[int, int, int, int]:  # noqa: N802 - the shape is the name
        """Returns the shape of one video's latents."""
        vae = self.config_of("vae")
        frames = (shape.frames - 1) // vae.scale_factor_temporal + 1
        return vae.z_dim, frames, shape.height // vae.scale_factor_spatial, shape.width // vae.scale_factor_spatial

    def find_boundary(self, schedule: Schedule) -> int:
        """Returns the first step of the second expert, or the number of steps if there is none."""
        if self.boundary_timestep is None:
            return schedule.steps
        timesteps = schedule.table[: schedule.steps, COLUMNS.index("timestep")]
        return int((timesteps >= self.boundary_timestep).sum())
