"""How FLUX.2 is loaded, planned and run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diffusers.loaders.single_file_utils import convert_flux2_transformer_checkpoint_to_diffusers

from pipelines.families.flux2 import programs
from pipelines.families.flux2.family import Flux2Family
from pipelines.families.flux2.load import build_parts, read_variant
from pipelines.families.flux2.loras import spell
from pipelines.families.flux2.parts import COMPONENTS, STAGES_OF
from pipelines.families.flux2.sharding import choose_sizes
from pipelines.families.flux2.traits import TRAITS
from pipelines.families.loading import CheckpointArchitecture, read_tokenizer
from pipelines.runtime.weights.single_file import strip_prefix

SHORT = 64  # tokens of an empty prompt


def _read_tokenizers(folder: Path) -> tuple[Any, ...]:
    (tokenizer,) = read_tokenizer(folder)
    read_variant(folder).tokenize(tokenizer, "", SHORT)  # fails here if the chat template is missing
    return (tokenizer,)


def _convert_transformer(tensors: dict[str, Any], _config: Mapping[str, Any]) -> Mapping[str, Any]:
    return convert_flux2_transformer_checkpoint_to_diffusers(strip_prefix(tensors))


ARCHITECTURE = CheckpointArchitecture(
    traits=TRAITS,
    components=COMPONENTS,
    stages_of=STAGES_OF,
    adaptable=("transformer",),
    int8={"transformer": None, "text_encoder": None},
    programs=programs,
    loaded_class=Flux2Family,
    build_parts=build_parts,
    spell=spell,
    converters={"transformer": _convert_transformer},
    read_tokenizers=_read_tokenizers,
    limit_text=lambda model, _length: model.text_length,
    choose_sizes=choose_sizes,
)
