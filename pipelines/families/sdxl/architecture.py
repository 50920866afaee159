"""How SDXL is loaded, planned and run."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import CLIPTokenizer

from pipelines.families.loading import CheckpointArchitecture, run_all_steps
from pipelines.families.sdxl import programs
from pipelines.families.sdxl.family import SdxlFamily
from pipelines.families.sdxl.load import build_parts
from pipelines.families.sdxl.loras import TEXT_ENCODERS, rename
from pipelines.families.sdxl.parts import COMPONENTS, STAGES_OF
from pipelines.families.sdxl.traits import TRAITS
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.weights.lora import Rename


def _read_tokenizers(folder: Path) -> tuple[Any, ...]:
    return tuple(CLIPTokenizer.from_pretrained(folder / name) for name in ("tokenizer", "tokenizer_2"))


def _make_rename(modules: Mapping[str, TracedModule]) -> Rename:
    return functools.partial(rename, modules=modules)


ARCHITECTURE = CheckpointArchitecture(
    traits=TRAITS,
    components=COMPONENTS,
    stages_of=STAGES_OF,
    adaptable=("unet", *TEXT_ENCODERS),
    programs=programs,
    loaded_class=SdxlFamily,
    build_parts=build_parts,
    make_rename=_make_rename,
    read_tokenizers=_read_tokenizers,
    share_steps=run_all_steps("unet"),
)
