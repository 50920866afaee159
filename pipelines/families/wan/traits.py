"""How Wan's checkpoints and LoRAs are recognised, and what sets the family apart."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.traits import FileHeader, FileLikeness, Likeness, Traits, Unsupported
from pipelines.families.wan.lora_traits import LORA_TRAITS
from pipelines.messages import say
from pipelines.recipes.cache_kinds import MAGCACHE, TAYLOR
from pipelines.recipes.schedulers import FLOW, read_shift

_PIXELS_480P = 832 * 480
_MASK_CHANNELS = 4  # one for each frame that a latent frame stands for

# (has two experts, takes a first picture as channels) -> the shipped model; the size of the first is told by its width.
_SHIPPED = {
    (False, False): "wan2.1-14b",
    (False, True): "wan2.1-i2v-14b",
    (True, False): "wan2.2-a14b",
    (True, True): "wan2.2-i2v-a14b",
}
_TO_LAST = "wan2.1-flf2v-14b"
_WIDTH_14B = 5120  # of the 14B models' tokens; those of the 1.3B models have 1536


def _read_local(folder: Path, index: Mapping[str, Any]) -> Likeness:
    """Finds the shipped model of the same kind; its sizes need not match, as the transformer takes any."""
    transformer = json.loads((folder / "transformer" / "config.json").read_text("utf-8"))
    vae = json.loads((folder / "vae" / "config.json").read_text("utf-8"))
    if transformer.get("pos_embed_seq_len") is not None:
        return Likeness(_TO_LAST)
    if index.get("expand_timesteps"):
        return Likeness("wan2.2-ti2v-5b")
    channels, latents = transformer["in_channels"], vae["z_dim"]
    if channels not in (latents, 2 * latents + _MASK_CHANNELS):
        raise Unsupported(
            say("a Wan that follows more than a first picture (its transformer takes {count} channels)", count=channels)
        )
    # Two traits that have nothing to do with each other: Wan 2.2 I2V A14B has both.
    takes_picture = channels != latents
    model_id = _SHIPPED[index.get("boundary_ratio") is not None, takes_picture]
    heads, features = transformer.get("num_attention_heads", 40), transformer.get("attention_head_dim", 128)
    is_small = heads * features < _WIDTH_14B
    if is_small and model_id == "wan2.1-14b":
        return Likeness("wan2.1-1.3b")
    is_480p = model_id == "wan2.1-i2v-14b" and (is_small or _is_for_480p(folder, index))
    return Likeness(model_id, most_pixels=_PIXELS_480P if is_480p else None)


def _is_for_480p(folder: Path, index: Mapping[str, Any]) -> bool:
    """Tells the two Wan 2.1 I2V 14B apart: their configs agree but for the scheduler's shift, 3 or 5."""
    names = f"{folder.name} {index.get('_name_or_path', '')}".lower()
    if "480p" in names or "720p" in names:
        return "480p" in names
    file = folder / "scheduler" / "scheduler_config.json"
    shift = read_shift(json.loads(file.read_text("utf-8"))) if file.is_file() else None
    return shift is not None and shift <= 3


_MARK = "head.modulation"
_LAYERS = {"blocks", "head", "img_emb", "patch_embedding", "text_embedding", "time_embedding", "time_projection"}
_PATCH = 4  # latent pixels of a token
_RELATIVES = {
    "vace_blocks": say("a Wan VACE, which edits videos and follows reference pictures"),
    "vace_patch_embedding": say("a Wan VACE, which edits videos and follows reference pictures"),
    "motion_encoder": say("a Wan Animate, which moves a person as another video does"),
    "face_adapter": say("a Wan Animate, which moves a person as another video does"),
}
_EXPERT = re.compile(r"(high|low)[-_ ]?noise")


_OF_FILES = (
    *("wan2.1-14b", "wan2.1-1.3b", "wan2.1-i2v-14b", _TO_LAST),
    *("wan2.2-ti2v-5b", "wan2.2-a14b", "wan2.2-i2v-a14b"),
)


def _measure_file(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    width, channels = shapes["patch_embedding.weight"][:2]
    return {
        "width": width,
        "channels": channels,
        "latents": shapes["head.head.weight"][0] // _PATCH,
        "text_width": shapes["text_embedding.0.weight"][1],
        "hidden": shapes["blocks.0.ffn.0.weight"][0],
        "layers": len({name.split(".")[1] for name in shapes if name.startswith("blocks.")}),
        "reads_picture": "img_emb.proj.0.weight" in shapes,
        "reads_last": "img_emb.emb_pos" in shapes,
    }


def _read_file(header: FileHeader) -> FileLikeness | None:
    """Tells Wan's relatives by what else they have; experts of one model have the same layers as whole models."""
    shapes = header.strip(_MARK)
    if shapes is None:
        return None
    tops = {name.split(".")[0] for name in shapes}
    for top in sorted(tops - _LAYERS):
        raise Unsupported(_RELATIVES.get(top, say("a Wan with further layers ({name})", name=top)))
    sizes = _measure_file(shapes)
    if sizes["channels"] not in (sizes["latents"], 2 * sizes["latents"] + _MASK_CHANNELS):
        raise Unsupported(
            say(
                "a Wan that follows more than a first picture (its transformer takes {count} channels)",
                count=sizes["channels"],
            )
        )
    takes_channels = sizes["channels"] != sizes["latents"]
    is_expert = bool(_EXPERT.search(header.name.lower())) or (takes_channels and not sizes["reads_picture"])
    return FileLikeness(
        layout=say("its authors' own, as in ComfyUI"),
        components=frozenset({"transformer"}),
        model_ids=(*(["wan2.1-i2v-14b-480p"] if "480p" in header.name.lower() else []), *_OF_FILES),
        is_expert=is_expert,
    )


def _fits_file(header: FileHeader, folder: Path) -> bool:
    config = json.loads((folder / "transformer" / "config.json").read_text("utf-8"))
    return _measure_file(header.strip(_MARK) or {}) == {
        "width": config["num_attention_heads"] * config["attention_head_dim"],
        "channels": config["in_channels"],
        "latents": config["out_channels"],
        "text_width": config["text_dim"],
        "hidden": config["ffn_dim"],
        "layers": config["num_layers"],
        "reads_picture": config.get("image_dim") is not None,
        "reads_last": config.get("pos_embed_seq_len") is not None,
    }


TRAITS = Traits(
    title="Wan",
    pipeline_classes=("WanPipeline", "WanImageToVideoPipeline"),
    unsupported={
        "WanVACEPipeline": say("a Wan VACE, which edits videos and follows reference pictures"),
        "WanAnimatePipeline": say("a Wan Animate, which moves a person as another video does"),
    },
    read_local=_read_local,
    read_file=_read_file,
    fits_file=_fits_file,
    loras=LORA_TRAITS,
    takes_attention_options=True,
    tokenizer="t5",
    cache_kinds=(MAGCACHE, TAYLOR),
    schedulers=FLOW,
)
