"""How SDXL is loaded, planned and run."""

from pathlib import Path
from typing import Any

from transformers import CLIPTokenizer

from pipelines.families.loading import CheckpointArchitecture, run_all_steps
from pipelines.families.sdxl import programs
from pipelines.families.sdxl.family import SdxlFamily
from pipelines.families.sdxl.load import build_parts
from pipelines.families.sdxl.loras import TEXT_ENCODERS, spell
from pipelines.families.sdxl.parts import COMPONENTS, STAGES_OF
from pipelines.families.sdxl.traits import TRAITS


def _read_tokenizers(folder: Path) -> tuple[Any, ...]:
    return tuple(CLIPTokenizer.from_pretrained(folder / name) for name in ("tokenizer", "tokenizer_2"))


ARCHITECTURE = CheckpointArchitecture(
    traits=TRAITS,
    components=COMPONENTS,
    stages_of=STAGES_OF,
    adaptable=("unet", *TEXT_ENCODERS),
    programs=programs,
    loaded_class=SdxlFamily,
    build_parts=build_parts,
    spell=spell,
    read_tokenizers=_read_tokenizers,
    share_steps=run_all_steps("unet"),
)
