"""How FLUX.2 is loaded, planned and run."""

from pathlib import Path
from typing import Any

from pipelines.families.flux2 import programs
from pipelines.families.flux2.family import Flux2Family
from pipelines.families.flux2.load import build_parts, read_variant
from pipelines.families.flux2.loras import spell
from pipelines.families.flux2.parts import COMPONENTS, STAGES_OF
from pipelines.families.flux2.sharding import choose_sizes
from pipelines.families.flux2.traits import TRAITS
from pipelines.families.loading import CheckpointArchitecture, read_tokenizer

SHORT = 64  # tokens of an empty prompt


def _read_tokenizers(folder: Path) -> tuple[Any, ...]:
    (tokenizer,) = read_tokenizer(folder)
    read_variant(folder).tokenize(tokenizer, "", SHORT)  # fails here if the chat template is missing
    return (tokenizer,)


ARCHITECTURE = CheckpointArchitecture(
    traits=TRAITS,
    components=COMPONENTS,
    stages_of=STAGES_OF,
    adaptable=("transformer",),
    programs=programs,
    loaded_class=Flux2Family,
    build_parts=build_parts,
    spell=spell,
    read_tokenizers=_read_tokenizers,
    limit_text=lambda model, _length: model.text_length,
    choose_sizes=choose_sizes,
)
