"""How Z-Image's checkpoints and LoRAs are recognised, and what sets the family apart."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.traits import FileHeader, FileLikeness, Likeness, Traits, Unsupported
from pipelines.families.z_image.lora_traits import LORA_TRAITS
from pipelines.messages import say
from pipelines.recipes.cache_kinds import TAYLOR
from pipelines.recipes.schedulers import FLOW_EULER, read_shift

TURBO, BASE = "z-image-turbo", "z-image"
_TURBO_SHIFT = 3.0  # of Turbo's scheduler; the base model's is 6
_OMNI = say("a Z-Image Omni, which follows reference pictures")


def _read_local(folder: Path, index: Mapping[str, Any]) -> Likeness:  # noqa: ARG001 - it says nothing of the kind
    """Tells Turbo from the base model by the scheduler's shift: their configs agree but for that."""
    transformer = json.loads((folder / "transformer" / "config.json").read_text("utf-8"))
    if transformer.get("siglip_feat_dim") is not None:
        raise Unsupported(_OMNI)
    shift = read_shift(json.loads((folder / "scheduler" / "scheduler_config.json").read_text("utf-8")))
    side = int(json.loads((folder / "vae" / "config.json").read_text("utf-8"))["sample_size"])
    model_id = TURBO if shift is not None and shift <= _TURBO_SHIFT else BASE
    return Likeness(model_id, None if side >= 1024 else (side, side))


_MARK = "cap_pad_token"


def _measure_file(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    width, patch = shapes["x_embedder.weight"]
    return {
        "width": width,
        "patch": patch,
        "text_width": shapes["cap_embedder.1.weight"][1],
        "layers": _count_blocks(shapes, "layers"),
        "refiners": _count_blocks(shapes, "noise_refiner"),
    }


def _count_blocks(shapes: Mapping[str, tuple[int, ...]], kind: str) -> int:
    return len({name.split(".")[1] for name in shapes if name.startswith(f"{kind}.")})


def _read_file(header: FileHeader) -> FileLikeness | None:
    """Tells Turbo from the base model, which has the same layers, by the file's name."""
    shapes = header.strip(_MARK)
    if shapes is None:
        return None
    if any(name.startswith("siglip_") for name in shapes):
        raise Unsupported(_OMNI)
    _measure_file(shapes)
    name = header.name.lower()
    notes = ()
    if "turbo" in name:
        model_ids = (TURBO, BASE)
    elif "base" in name:
        model_ids = (BASE, TURBO)
    else:
        model_ids = (TURBO, BASE)
        notes = (
            say(
                "Taken for a Z-Image Turbo: its layers are those of the base model too, and its name says neither. "
                'Write configs = "z-image" in models.toml if it needs many steps, and guidance.'
            ),
        )
    return FileLikeness(
        layout=say("its authors' own, as in ComfyUI"),
        components=frozenset({"transformer"}),
        model_ids=model_ids,
        notes=notes,
    )


def _fits_file(header: FileHeader, folder: Path) -> bool:
    config = json.loads((folder / "transformer" / "config.json").read_text("utf-8"))
    return _measure_file(header.strip(_MARK) or {}) == {
        "width": config["dim"],
        "patch": config["in_channels"] * config["all_patch_size"][0] ** 2,
        "text_width": config["cap_feat_dim"],
        "layers": config["n_layers"],
        "refiners": config["n_refiner_layers"],
    }


TRAITS = Traits(
    title="Z-Image",
    pipeline_classes=("ZImagePipeline", "ZImageImg2ImgPipeline"),
    unsupported={
        "ZImageOmniPipeline": _OMNI,
        "ZImageControlNetPipeline": say("a Z-Image with a ControlNet"),
        "ZImageControlNetInpaintPipeline": say("a Z-Image with a ControlNet"),
    },
    read_local=_read_local,
    read_file=_read_file,
    fits_file=_fits_file,
    loras=LORA_TRAITS,
    tokenizer="chat",
    cache_kinds=(TAYLOR,),
    schedulers=FLOW_EULER,
)
