"""How trainers name the layers of FLUX.2's transformer in LoRAs: diffusers, peft, ai-toolkit, kohya, the original."""

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
        "lora_transformer_",
        "lycoris_",
    ),
    TRANSFORMER,
)

# Our layers within a block -> the original's; one of the original's is q, k and v in one.
_OF_BLOCK = {
    ("attn.to_q", "attn.to_k", "attn.to_v"): "img_attn.qkv",
    ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"): "txt_attn.qkv",
    ("attn.to_out.0",): "img_attn.proj",
    ("attn.to_add_out",): "txt_attn.proj",
    ("ff.linear_in",): "img_mlp.0",
    ("ff.linear_out",): "img_mlp.2",
    ("ff_context.linear_in",): "txt_mlp.0",
    ("ff_context.linear_out",): "txt_mlp.2",
    ("attn.norm_q",): "img_attn.norm.query_norm",
    ("attn.norm_k",): "img_attn.norm.key_norm",
    ("attn.norm_added_q",): "txt_attn.norm.query_norm",
    ("attn.norm_added_k",): "txt_attn.norm.key_norm",
}
# diffusers' name of what a LoKr, which cannot be split into factors, changes as one.
_FUSED = {"img_attn.qkv": "attn.to_qkv", "txt_attn.qkv": "attn.to_added_qkv"}
_OF_SINGLE_BLOCK = {
    "attn.to_qkv_mlp_proj": "linear1",
    "attn.to_out": "linear2",
    "attn.norm_q": "norm.query_norm",
    "attn.norm_k": "norm.key_norm",
}
_OTHERS = {
    "x_embedder": "img_in",
    "context_embedder": "txt_in",
    "time_guidance_embed.timestep_embedder.linear_1": "time_in.in_layer",
    "time_guidance_embed.timestep_embedder.linear_2": "time_in.out_layer",
    "time_guidance_embed.guidance_embedder.linear_1": "guidance_in.in_layer",
    "time_guidance_embed.guidance_embedder.linear_2": "guidance_in.out_layer",
    "proj_out": "final_layer.linear",
    "norm_out.linear": "final_layer.adaLN_modulation.1",
    "single_stream_modulation.linear": "single_stream_modulation.lin",
    "double_stream_modulation_img.linear": "double_stream_modulation_img.lin",
    "double_stream_modulation_txt.linear": "double_stream_modulation_txt.lin",
}
# The original has the shift before the scale, diffusers the scale before the shift.
_EXCHANGED = frozenset(("final_layer.adaLN_modulation.1",))
# Layers that ComfyUI knows by the original's names alone (flux_to_diffusers in its comfy/utils.py).
_ORIGINAL_IN_COMFYUI = ("time_guidance_embed.", "single_stream_modulation.", "double_stream_modulation_")
_BLOCK = re.compile(r"(single_)?transformer_blocks\.(\d+)\.")


def spell(layers: Layers) -> Spellings:
    """See `runtime.weights.lora_spelling.Spell`."""
    known = {*layers[TRANSFORMER]}
    aliases = _name_originals(known)
    for single, number in _list_blocks(known):
        aliases |= {} if single else _spell_as_others(number)
    return Spellings(
        layers=layers,
        prefixes=PREFIXES,
        aliases={TRANSFORMER: {name: found for name, found in aliases.items() if known.issuperset(found)}},
        exchanged=_EXCHANGED,
    )


def name_for_kohya(learned: Collection[str]) -> FileNames:
    """Returns the original's names, as kohya's trainers write them; q, k and v are one layer."""
    return FileNames(
        layers={flatten(name): found for name, found in _name_originals(learned).items()},
        exchanged=frozenset(map(flatten, _EXCHANGED)),
        network_module="networks.lora_flux_2",
    )


def name_for_all(learned: Collection[str]) -> FileNames:
    """Returns diffusers' names, of which ComfyUI knows most; the others are there by the original's names, too.

    The original's names alone are no choice: diffusers' reader of such LoRAs exchanges the halves of the last layer's
    modulation. The two names of a layer never meet: each program leaves out the one that it does not know.
    """
    twice = {name: found for name, found in _name_originals(learned).items()
             if found[0].startswith(_ORIGINAL_IN_COMFYUI)}  # fmt: skip
    return FileNames(
        layers={f"{TRANSFORMER}.{layer}": (layer,) for layer in learned}
        | {flatten(name): found for name, found in twice.items()}
    )


def _name_originals(layers: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Maps the original's layers to ours, for those of which some are among `layers`."""
    names: dict[str, tuple[str, ...]] = {theirs: (ours,) for ours, theirs in _OTHERS.items()}
    for single, number in _list_blocks(layers):
        names |= _spell_single_block(number) if single else _spell_block(number)
    return {name: found for name, found in names.items() if not {*found}.isdisjoint(layers)}


def _list_blocks(layers: Collection[str]) -> Collection[tuple[str | None, str]]:
    return dict.fromkeys((match[1], match[2]) for layer in layers if (match := _BLOCK.match(layer)))


def _spell_single_block(number: str) -> Mapping[str, tuple[str, ...]]:
    return {
        f"single_blocks.{number}.{theirs}": (f"single_transformer_blocks.{number}.{ours}",)
        for ours, theirs in _OF_SINGLE_BLOCK.items()
    }


def _spell_block(number: str) -> Mapping[str, tuple[str, ...]]:
    return {
        f"double_blocks.{number}.{theirs}": tuple(f"transformer_blocks.{number}.{layer}" for layer in ours)
        for ours, theirs in _OF_BLOCK.items()
    }


def _spell_as_others(number: str) -> Mapping[str, tuple[str, ...]]:
    """Maps names of a block's layers that are neither the original's nor diffusers' own."""
    aliases: dict[str, tuple[str, ...]] = {}
    for ours, theirs in _OF_BLOCK.items():
        found = tuple(f"transformer_blocks.{number}.{layer}" for layer in ours)
        if theirs in _FUSED:
            aliases[f"transformer_blocks.{number}.{_FUSED[theirs]}"] = found
        if len(ours) == 1:
            aliases[f"sformer_blocks.{number}.{ours[0]}"] = found  # some programs cut `transformer_blocks` so
    return aliases
