"""How trainers name the layers of Wan's transformers in LoRAs: diffusers, peft, kohya's trainer, and the original.

A LoRA changes both of Wan 2.2's experts, unless it is for one: the recipe says so, or its tensors are those of
`transformer_2`, or its name tells (wan/traits.py).
"""

import re
from collections.abc import Collection, Iterator

from pipelines.families.wan.parts import EXPERTS
from pipelines.loras.file_names import FileNames, flatten
from pipelines.runtime.weights.lora_spelling import Layers, Spellings

PREFIXES = {
    **dict.fromkeys(
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
        EXPERTS[0],
    ),
    "transformer_2.": EXPERTS[1],
    "lora_transformer_2_": EXPERTS[1],
}

# Our layers -> the original's; of those within a block only the end is given.
_OF_BLOCK = {
    "attn1.to_q": "self_attn.q",
    "attn1.to_k": "self_attn.k",
    "attn1.to_v": "self_attn.v",
    "attn1.to_out.0": "self_attn.o",
    "attn1.norm_q": "self_attn.norm_q",
    "attn1.norm_k": "self_attn.norm_k",
    "attn2.to_q": "cross_attn.q",
    "attn2.to_k": "cross_attn.k",
    "attn2.to_v": "cross_attn.v",
    "attn2.to_out.0": "cross_attn.o",
    "attn2.norm_q": "cross_attn.norm_q",
    "attn2.norm_k": "cross_attn.norm_k",
    "attn2.add_k_proj": "cross_attn.k_img",
    "attn2.add_v_proj": "cross_attn.v_img",
    "attn2.norm_added_k": "cross_attn.norm_k_img",
    "norm2": "norm3",
    "ffn.net.0.proj": "ffn.0",
    "ffn.net.2": "ffn.2",
}
_OTHERS = {
    "patch_embedding": "patch_embedding",
    "condition_embedder.text_embedder.linear_1": "text_embedding.0",
    "condition_embedder.text_embedder.linear_2": "text_embedding.2",
    "condition_embedder.time_embedder.linear_1": "time_embedding.0",
    "condition_embedder.time_embedder.linear_2": "time_embedding.2",
    "condition_embedder.time_proj": "time_projection.1",
    "condition_embedder.image_embedder.norm1": "img_emb.proj.0",
    "condition_embedder.image_embedder.ff.net.0.proj": "img_emb.proj.1",
    "condition_embedder.image_embedder.ff.net.2": "img_emb.proj.3",
    "condition_embedder.image_embedder.norm2": "img_emb.proj.4",
    "proj_out": "head.head",
    "": "head",  # whose modulation is the model's own
}
_BLOCK = re.compile(r"(blocks\.\d+)\.(.+)")


def spell(layers: Layers) -> Spellings:
    """See `runtime.weights.lora_spelling.Spell`."""
    aliases = {component: dict(_name_originals(own)) for component, own in layers.items()}
    experts = EXPERTS if EXPERTS[1] in layers else ()
    return Spellings(layers=layers, prefixes=PREFIXES, aliases=aliases, experts=experts)


def name_for_kohya(learned: Collection[str]) -> FileNames:
    """Returns the original's names, as kohya's trainers write them."""
    return FileNames(
        layers={flatten(name): found for name, found in _name_originals(learned)},
        network_module="networks.lora_wan",
    )


def name_for_all(learned: Collection[str]) -> FileNames:
    """Returns the original's names behind ComfyUI's prefix, which diffusers converts; ComfyUI knows no others."""
    return FileNames(layers={f"diffusion_model.{name}": found for name, found in _name_originals(learned)})


def _name_originals(layers: Collection[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the layers' names in the original code, each with the layer."""
    for layer in layers:
        match = _BLOCK.fullmatch(layer)
        if match is not None and match[2] in _OF_BLOCK:
            yield f"{match[1]}.{_OF_BLOCK[match[2]]}", (layer,)
        elif layer in _OTHERS:
            yield _OTHERS[layer], (layer,)
