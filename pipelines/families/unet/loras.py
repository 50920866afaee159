"""How trainers name the layers of a UNet and its text encoders in LoRAs: diffusers, peft, kohya, and the original."""

import re
from collections.abc import Collection, Iterator, Mapping

from pipelines.loras.file_names import FileNames, flatten
from pipelines.runtime.weights.lora_spelling import Layers, Spell, Spellings

UNET = "unet"

_PREFIXES = (
    *("", "unet.", "diffusion_model.", "model.diffusion_model.", "base_model.model.", "base_model.model.unet."),
    *("lora_unet_", "lycoris_"),
)

# Layers outside of blocks, and those within a residual block, as the original code names them.
_ORIGINAL = {
    "conv_in": "input_blocks.0.0",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
}
_OF_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
_BLOCK = re.compile(r"(down|up)_blocks\.(\d+)\.(resnets|attentions|downsamplers|upsamplers)\.(\d+)\.(.+)")
_MID_BLOCK = re.compile(r"mid_block\.(resnets|attentions)\.(\d+)\.(.+)")
# diffusers' old attention processors name the projections of text encoders as those of the UNet.
_OF_PROCESSOR = {"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "out_proj": "to_out.0"}


def make_spell(text_prefixes: Mapping[str, str]) -> Spell:
    """Returns a family's `spell`; `text_prefixes` maps what a layer's name begins with to its text encoder."""

    def spell(layers: Layers) -> Spellings:
        aliases = {UNET: {name: (layer,) for layer, name in _name_originals(layers[UNET])}}
        for component in {*text_prefixes.values()}:
            own = layers.get(component, ())
            aliases[component] = {name: (layer,) for layer in own for name in _name_text_layer(layer)}
        return Spellings(layers=layers, prefixes=dict.fromkeys(_PREFIXES, UNET) | dict(text_prefixes), aliases=aliases)

    return spell


def name_for_kohya(learned: Collection[str], layers: Collection[str], *, is_original: bool) -> FileNames:
    """Returns the names of kohya's trainers, which are the original's or diffusers'; `layers` are all of the UNet.

    Its trainer of SDXL has the original's UNet, that of Stable Diffusion 1 and 2 has diffusers'.
    """
    names = dict(_name_originals(layers)) if is_original else {}
    return FileNames(
        layers={flatten(names.get(layer, layer)): (layer,) for layer in learned}, network_module="networks.lora"
    )


def _name_originals(layers: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields the UNet's layers with their names in the original code.

    That numbers all residual blocks of the way down, and of the way up, from the first to the last; one has its
    attention and its resampling within. The count of residual blocks a level is that of the first level.
    """
    per_level = len({match[4] for layer in layers if (match := _BLOCK.match(layer)) and match[3] == "resnets"
                     and match[1] == "down" and match[2] == "0"})  # fmt: skip
    with_attention = {match[2] for layer in layers if (match := _BLOCK.match(layer)) and match[1] == "up"
                      and match[3] == "attentions"}  # fmt: skip
    for layer in layers:
        if layer in _ORIGINAL:
            yield layer, _ORIGINAL[layer]
        elif match := _MID_BLOCK.fullmatch(layer):
            kind, number, rest = match.groups()
            place = 1 if kind == "attentions" else 2 * int(number)
            yield layer, f"middle_block.{place}.{_OF_RESNET.get(rest, rest) if kind == 'resnets' else rest}"
        elif match := _BLOCK.fullmatch(layer):
            way, level, kind, number, rest = match.groups()
            start = int(level) * (per_level + 1)
            if way == "down":
                if kind == "downsamplers":
                    yield layer, f"input_blocks.{start + per_level + 1}.0.op"
                    continue
                block = f"input_blocks.{start + int(number) + 1}"
            elif kind == "upsamplers":
                yield layer, f"output_blocks.{start + per_level}.{2 if level in with_attention else 1}.{rest}"
                continue
            else:
                block = f"output_blocks.{start + int(number)}"
            yield layer, f"{block}.0.{_OF_RESNET.get(rest, rest)}" if kind == "resnets" else f"{block}.1.{rest}"


def _name_text_layer(layer: str) -> Iterator[str]:
    """Yields a text encoder's layer with and without `text_model.`, and as old attention processors name it."""
    plain = layer.removeprefix("text_model.")
    head, _, last = plain.rpartition(".")
    for name in (plain, *([f"{head}.{_OF_PROCESSOR[last]}"] if last in _OF_PROCESSOR else [])):
        yield name
        yield f"text_model.{name}"
