"""The architecture of a family with a UNet, made of what it says of itself."""

from pipelines.families.loading import CheckpointArchitecture, run_all_steps
from pipelines.families.unet import programs
from pipelines.families.unet.denoise import TEXT_PROJECTION
from pipelines.families.unet.family import UNetFamily
from pipelines.families.unet.load import UNetLoader
from pipelines.runtime.weights.lora_spelling import Spell


def make_architecture(loader: UNetLoader, spell: Spell) -> CheckpointArchitecture:
    """Returns how a family is loaded, planned and run."""
    return CheckpointArchitecture(
        traits=loader.traits,
        components=loader.components,
        stages_of=loader.stages_of,
        adaptable=("unet", *loader.encoders),
        int8={"unet": TEXT_PROJECTION.pattern},
        programs=programs,
        loaded_class=UNetFamily,
        build_parts=loader,
        spell=spell,
        converters=loader.converters,
        read_tokenizers=loader.read_tokenizers,
        share_steps=run_all_steps("unet"),
    )
