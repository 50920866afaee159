"""How Wan's checkpoints and LoRAs are recognised, and what sets the family apart."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.traits import Likeness, Traits
from pipelines.families.wan.lora_traits import LORA_TRAITS


def _read_local(folder: Path, index: Mapping[str, Any]) -> Likeness:
    """Finds the shipped model of the same kind; its sizes need not match, as the transformer takes any."""
    transformer = json.loads((folder / "transformer" / "config.json").read_text("utf-8"))
    vae = json.loads((folder / "vae" / "config.json").read_text("utf-8"))
    if index.get("expand_timesteps"):
        return Likeness("wan2.2-ti2v-5b")
    if index.get("boundary_ratio") is not None:
        return Likeness("wan2.2-a14b")
    return Likeness("wan2.1-1.3b" if transformer["in_channels"] == vae["z_dim"] else "wan2.1-i2v-14b")


TRAITS = Traits(
    title="Wan",
    pipeline_classes=("WanPipeline", "WanImageToVideoPipeline"),
    read_local=_read_local,
    loras=LORA_TRAITS,
    takes_attention_options=True,
    tokenizer="t5",
)
