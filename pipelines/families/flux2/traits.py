"""How FLUX.2's checkpoints and LoRAs are recognised, and what sets the family apart."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.flux2.lora_traits import LORA_TRAITS
from pipelines.families.traits import FileHeader, FileLikeness, Likeness, Traits
from pipelines.messages import say
from pipelines.recipes.cache_kinds import MAGCACHE, TAYLOR
from pipelines.recipes.schedulers import FLOW_EULER


def _read_local(folder: Path, index: Mapping[str, Any]) -> Likeness:
    """Gives distilled models klein's settings with few steps, and all others dev's: base models need as many steps."""
    side = int(json.loads((folder / "vae" / "config.json").read_text("utf-8"))["sample_size"])
    template_id = "flux2-klein-4b" if index.get("is_distilled") else "flux2-dev"
    return Likeness(template_id, None if side >= 1024 else (side, side))


_MARK = "double_stream_modulation_img.lin.weight"


def _measure_file(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    width, channels = shapes["img_in.weight"]
    return {
        "width": width,
        "channels": channels,
        "text_width": shapes["txt_in.weight"][1],
        "double": _count_blocks(shapes, "double_blocks"),
        "single": _count_blocks(shapes, "single_blocks"),
        "takes_guidance": "guidance_in.in_layer.weight" in shapes,
    }


def _count_blocks(shapes: Mapping[str, tuple[int, ...]], kind: str) -> int:
    return len({name.split(".")[1] for name in shapes if name.startswith(f"{kind}.")})


def _read_file(header: FileHeader) -> FileLikeness | None:
    """Tells distilled models from their bases, which have the same layers, by the file's name."""
    shapes = header.strip(_MARK)
    if shapes is None:
        return None
    _measure_file(shapes)
    ids = ("flux2-klein-4b", "flux2-klein-9b", "flux2-dev")
    notes = ()
    if "base" in header.name.lower():
        ids = ("flux2-klein-base-4b", "flux2-klein-base-9b", *ids)
        notes = (
            say("Its name says that it is a base model: unlike a distilled one it needs many steps, and guidance."),
        )
    return FileLikeness(
        layout=say("its authors' own, as in ComfyUI"),
        components=frozenset({"transformer"}),
        model_ids=ids,
        notes=notes,
    )


def _fits_file(header: FileHeader, folder: Path) -> bool:
    config = json.loads((folder / "transformer" / "config.json").read_text("utf-8"))
    return _measure_file(header.strip(_MARK) or {}) == {
        "width": config["num_attention_heads"] * config["attention_head_dim"],
        "channels": config["in_channels"],
        "text_width": config["joint_attention_dim"],
        "double": config["num_layers"],
        "single": config["num_single_layers"],
        "takes_guidance": config.get("guidance_embeds", True),
    }


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
    read_file=_read_file,
    fits_file=_fits_file,
    loras=LORA_TRAITS,
    has_references=True,
    has_remote_encoder=True,  # language models of 3 to 17 billion parameters are worth a machine of their own
    takes_distilled_guidance=True,
    tokenizer="chat",
    cache_kinds=(MAGCACHE, TAYLOR),
    schedulers=FLOW_EULER,
)
