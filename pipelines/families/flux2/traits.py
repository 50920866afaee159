"""How FLUX.2's checkpoints and LoRAs are recognised, and what sets the family apart."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.flux2.lora_traits import LORA_TRAITS
from pipelines.families.traits import Likeness, Traits
from pipelines.messages import say
from pipelines.schedulers import FLOW_EULER


def _read_local(folder: Path, index: Mapping[str, Any]) -> Likeness:
    """Gives distilled models klein's settings with few steps, and all others dev's: base models need as many steps."""
    side = int(json.loads((folder / "vae" / "config.json").read_text("utf-8"))["sample_size"])
    template_id = "flux2-klein-4b" if index.get("is_distilled") else "flux2-dev"
    return Likeness(template_id, None if side >= 1024 else (side, side))


TRAITS = Traits(
    title="FLUX.2",
    pipeline_classes=("Flux2KleinPipeline", "Flux2KleinInpaintPipeline", "Flux2Pipeline"),
    unsupported={
        "Flux2KleinKVPipeline": say("a FLUX.2 klein that keeps the keys and values of its reference pictures"),
        "FluxPipeline": say("a FLUX.1"),
        "FluxImg2ImgPipeline": say("a FLUX.1"),
        "FluxInpaintPipeline": say("a FLUX.1"),
        "FluxKontextPipeline": say("a FLUX.1"),
        "FluxFillPipeline": say("a FLUX.1"),
    },
    read_local=_read_local,
    loras=LORA_TRAITS,
    has_references=True,
    has_remote_encoder=True,  # language models of 3 to 17 billion parameters are worth a machine of their own
    takes_distilled_guidance=True,
    tokenizer="chat",
    keeps_residuals=True,
    schedulers=FLOW_EULER,
)
