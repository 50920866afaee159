"""How trainers name the layers of Z-Image's transformer in LoRAs: diffusers, peft, kohya's, and the original."""

import re
from collections.abc import Collection, Mapping

from pipelines.loras.file_names import FileNames, flatten
from pipelines.runtime.weights.lora_spelling import Layers, Spellings

TRANSFORMER = "transformer"

PREFIXES: Mapping[str, str] = dict.fromkeys(
    (
        "",
        "transformer.",
        "diffusion_model.",
        "model.diffusion_model.",
        "base_model.model.",
        "base_model.model.transformer.",
        "lora_unet_",
        "lora_unet__",
        "lora_transformer_",
        "lycoris_",
    ),
    TRANSFORMER,
)

# Our layers within a block -> the original's; one of the original's is q, k and v in one.
_OF_BLOCK = {
    ("attention.to_q", "attention.to_k", "attention.to_v"): "attention.qkv",
    ("attention.to_out.0",): "attention.out",
    ("attention.norm_q",): "attention.q_norm",
    ("attention.norm_k",): "attention.k_norm",
}
_OTHERS = {
    "all_x_embedder.2-1": "x_embedder",
    "all_final_layer.2-1.linear": "final_layer.linear",
    "all_final_layer.2-1.adaLN_modulation.1": "final_layer.adaLN_modulation.1",
}
_BLOCK = re.compile(r"((layers|noise_refiner|context_refiner)\.\d+)\.")


def spell(layers: Layers) -> Spellings:
    """See `runtime.weights.lora_spelling.Spell`."""
    own = layers[TRANSFORMER]
    aliases: dict[str, tuple[str, ...]] = {theirs: (ours,) for ours, theirs in _OTHERS.items()}
    for block in dict.fromkeys(match[1] for layer in own if (match := _BLOCK.match(layer))):
        for ours, theirs in _OF_BLOCK.items():
            aliases[f"{block}.{theirs}"] = tuple(f"{block}.{layer}" for layer in ours)
    known = {*own}
    return Spellings(
        layers=layers,
        prefixes=PREFIXES,
        aliases={TRANSFORMER: {name: found for name, found in aliases.items() if known.issuperset(found)}},
    )


def name_for_kohya(learned: Collection[str]) -> FileNames:
    """Returns diffusers' names as kohya's trainers write them, whose own model has those within blocks."""
    return FileNames(layers={flatten(layer): (layer,) for layer in learned}, network_module="networks.lora_zimage")


def name_for_all(learned: Collection[str]) -> FileNames:
    """Returns diffusers' names, all of which ComfyUI knows."""
    return FileNames(layers={f"{TRANSFORMER}.{layer}": (layer,) for layer in learned})
