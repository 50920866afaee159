"""How the toy's checkpoints and LoRAs are recognised."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.traits import Likeness, LoraTraits, Traits


def _read_local(_folder: Path, index: Mapping[str, Any]) -> Likeness:
    return Likeness("toy-base", (index["side"], index["side"]))


TRAITS = Traits(
    title="Toy",
    pipeline_classes=("ToyPipeline",),
    read_local=_read_local,
    loras=LoraTraits(names=re.compile(r"^toy_layers\.")),
    has_references=True,
    has_remote_encoder=True,
    takes_attention_options=True,
    takes_distilled_guidance=True,
)
