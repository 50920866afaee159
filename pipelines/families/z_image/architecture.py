"""How Z-Image is loaded, planned and run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diffusers.loaders.single_file_utils import convert_z_image_transformer_checkpoint_to_diffusers

from pipelines.families.loading import CheckpointArchitecture, read_tokenizer
from pipelines.families.z_image import programs
from pipelines.families.z_image.family import ZImageFamily
from pipelines.families.z_image.load import build_parts
from pipelines.families.z_image.loras import spell
from pipelines.families.z_image.parts import COMPONENTS, STAGES_OF
from pipelines.families.z_image.traits import TRAITS
from pipelines.runtime.weights.single_file import strip_prefix


def _read_tokenizers(folder: Path) -> tuple[Any, ...]:
    (tokenizer,) = read_tokenizer(folder)
    tokenizer.apply_chat_template([{"role": "user", "content": ""}], tokenize=False)  # fails here if it is missing
    return (tokenizer,)


def _convert_transformer(tensors: dict[str, Any], _config: Mapping[str, Any]) -> Mapping[str, Any]:
    return convert_z_image_transformer_checkpoint_to_diffusers(strip_prefix(tensors))


ARCHITECTURE = CheckpointArchitecture(
    traits=TRAITS,
    components=COMPONENTS,
    stages_of=STAGES_OF,
    adaptable=("transformer",),
    int8={"transformer": None, "text_encoder": None},
    programs=programs,
    loaded_class=ZImageFamily,
    build_parts=build_parts,
    spell=spell,
    converters={"transformer": _convert_transformer},
    read_tokenizers=_read_tokenizers,
    limit_text=lambda model, _length: model.text_length,
)
