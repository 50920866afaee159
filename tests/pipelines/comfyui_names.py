"""Which layers of a LoRA file ComfyUI knows, and what they are in the original's module: its rules as facts, restated.

From its comfy/lora.py (17358c8) and comfy/utils.py (09708ea): of every model it knows `diffusion_model.` with the
original's names, and the same behind `lora_unet_` with _ for dots; of UNets `lora_unet_` with diffusers' names, and
those with a dot only with `.processor.` before the projections of attention; of FLUX.2 and Z-Image most of diffusers'
names behind `transformer.`. Parts may be called lora_A and lora_B, or lora_down and lora_up with an alpha; headers are
not read. It was not run for this.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np


class Place(NamedTuple):
    """A layer of the original: which third of its rows, if not all, and whether their halves change places."""

    layer: str
    third: int | None = None
    is_exchanged: bool = False


Names = Mapping[str, Place]
"""What a layer may be called in a file, without prefix, -> the place of it."""

FLUX2_LAYERS = {"img_in": "x_embedder", "txt_in": "context_embedder", "final_layer.linear": "proj_out"}
FLUX2_ALONE = ("time_in.in_layer", "time_in.out_layer", "guidance_in.in_layer", "guidance_in.out_layer",
               "double_stream_modulation_img.lin", "double_stream_modulation_txt.lin",
               "single_stream_modulation.lin")  # fmt: skip
FLUX2_LAST = "final_layer.adaLN_modulation.1"
OF_DOUBLE = {"attn.to_out.0": "img_attn.proj", "attn.to_add_out": "txt_attn.proj", "ff.linear_in": "img_mlp.0",
             "ff.linear_out": "img_mlp.2", "ff_context.linear_in": "txt_mlp.0",
             "ff_context.linear_out": "txt_mlp.2"}  # fmt: skip
WAN_OF_BLOCK = [f"{kind}_attn.{one}" for kind in ("self", "cross") for one in "qkvo"] + ["ffn.0", "ffn.2"]
WAN_OTHERS = ("text_embedding.0", "text_embedding.2", "time_embedding.0", "time_embedding.2", "time_projection.1",
              "head.head")  # fmt: skip


def name_originals(layers: Iterable[str]) -> dict[str, Place]:
    """The names that it knows of every model."""
    names: dict[str, Place] = {}
    for layer in layers:
        names[f"diffusion_model.{layer}"] = Place(layer)
        names["lora_unet_" + layer.replace(".", "_")] = Place(layer)
    return names


def name_flux2(doubles: int, singles: int) -> dict[str, Place]:
    theirs: dict[str, Place] = {ours: Place(name) for name, ours in FLUX2_LAYERS.items()}
    theirs["norm_out.linear"] = Place(FLUX2_LAST, is_exchanged=True)
    for number in range(doubles):
        block, original = f"transformer_blocks.{number}", f"double_blocks.{number}"
        theirs |= {f"{block}.{ours}": Place(f"{original}.{name}") for ours, name in OF_DOUBLE.items()}
        for third, one in enumerate("qkv"):
            theirs[f"{block}.attn.to_{one}"] = Place(f"{original}.img_attn.qkv", third)
            theirs[f"{block}.attn.add_{one}_proj"] = Place(f"{original}.txt_attn.qkv", third)
    for number in range(singles):
        block, original = f"single_transformer_blocks.{number}", f"single_blocks.{number}"
        theirs |= {f"{block}.attn.to_qkv_mlp_proj": Place(f"{original}.linear1")}
        theirs |= {f"{block}.attn.to_out": Place(f"{original}.linear2")}
    originals = {place.layer for place in theirs.values()} | {*FLUX2_ALONE}
    return name_originals(originals) | {f"transformer.{name}": place for name, place in theirs.items()}


def name_wan(blocks: int) -> dict[str, Place]:
    within = [f"blocks.{number}.{layer}" for number in range(blocks) for layer in WAN_OF_BLOCK]
    return name_originals([*within, *WAN_OTHERS])


def name_z_image(layers: int, refiners: int) -> dict[str, Place]:
    theirs = {"all_final_layer.2-1.linear": Place("final_layer.linear"), "all_x_embedder.2-1": Place("x_embedder"),
              "all_final_layer.2-1.adaLN_modulation.1": Place("final_layer.adaLN_modulation.1"),
              **{name: Place(name) for name in ("cap_embedder.1", "t_embedder.mlp.0", "t_embedder.mlp.2")}}  # fmt: skip
    for stack, count in {"layers": layers, "noise_refiner": refiners, "context_refiner": refiners}.items():
        for block in (f"{stack}.{number}" for number in range(count)):
            for third, one in enumerate("qkv"):
                theirs[f"{block}.attention.to_{one}"] = Place(f"{block}.attention.qkv", third)
            theirs[f"{block}.attention.to_out.0"] = Place(f"{block}.attention.out")
            same = [f"feed_forward.w{number}" for number in (1, 2, 3)]
            same += ["adaLN_modulation.0"] if stack != "context_refiner" else []
            theirs |= {f"{block}.{name}": Place(f"{block}.{name}") for name in same}
    originals = {place.layer for place in theirs.values()}
    return name_originals(originals) | {f"transformer.{name}": place for name, place in theirs.items()}


def name_unet(layers: Iterable[str], *, per_level: int, with_attention: Iterable[int]) -> dict[str, Place]:
    """`layers` are diffusers'; `with_attention` are the levels of the way up that have some."""
    theirs = dict(_name_unet([*layers], per_level=per_level, with_attention={*with_attention}))
    names = name_originals(theirs.values())
    for layer, original in theirs.items():
        names["lora_unet_" + layer.replace(".", "_")] = Place(original)
        with_processor = layer.replace(".to_", ".processor.to_").removesuffix(".0") if ".to_" in layer else layer
        names[f"unet.{with_processor}"] = names[with_processor] = Place(original)
    return names


def _name_unet(layers: list[str], *, per_level: int, with_attention: set[int]) -> Iterator[tuple[str, str]]:
    alone = {"conv_in": "input_blocks.0.0", "conv_out": "out.2", "time_embedding.linear_1": "time_embed.0",
             "time_embedding.linear_2": "time_embed.2", "add_embedding.linear_1": "label_emb.0.0",
             "add_embedding.linear_2": "label_emb.0.2"}  # fmt: skip
    resnet = {"conv1": "in_layers.2", "time_emb_proj": "emb_layers.1", "conv2": "out_layers.3",
              "conv_shortcut": "skip_connection"}  # fmt: skip
    for layer in layers:
        found = re.fullmatch(r"(?:(down|up)_blocks\.(\d)|mid_block)\.(\w+?)s\.(\d)\.(.+)", layer)
        if found is None:
            yield layer, alone[layer]
            continue
        way, level, kind, number, rest = found.groups()
        inner = resnet[rest] if kind == "resnet" else rest
        if way is None:
            yield layer, f"middle_block.{1 if kind == 'attention' else 2 * int(number)}.{inner}"
            continue
        first = int(level) * (per_level + 1) + (1 if way == "down" else 0)
        blocks = "input_blocks" if way == "down" else "output_blocks"
        if kind == "downsampler":
            yield layer, f"input_blocks.{first + per_level}.0.op"
        elif kind == "upsampler":
            yield layer, f"output_blocks.{first + per_level}.{2 if int(level) in with_attention else 1}.{rest}"
        else:
            yield layer, f"{blocks}.{first + int(number)}.{1 if kind == 'attention' else 0}.{inner}"


def read(tensors: Mapping[str, np.ndarray], names: Names) -> tuple[dict[str, np.ndarray], set[str]]:
    """What it adds to the weights of the original's layers, (out, in), and the file's layers that it leaves out."""
    changes: dict[str, list[tuple[Place, np.ndarray]]] = {}
    left_out: set[str] = set()
    for name in dict.fromkeys(re.split(r"\.(?:lora_|alpha)", one)[0] for one in tensors):
        if name not in names:
            left_out.add(name)
            continue
        halves = [(f"{name}.lora_up.weight", f"{name}.lora_down.weight"),
                  (f"{name}.lora_B.weight", f"{name}.lora_A.weight")]  # fmt: skip
        up, down = next((tensors[up], tensors[down]) for up, down in halves if up in tensors)
        alpha = float(tensors[f"{name}.alpha"]) if f"{name}.alpha" in tensors else len(down)
        change = alpha / len(down) * up.reshape(len(up), -1) @ down.reshape(len(down), -1)
        changes.setdefault(names[name].layer, []).append((names[name], change))
    return {layer: _add(parts) for layer, parts in changes.items()}, left_out


def _add(parts: list[tuple[Place, np.ndarray]]) -> np.ndarray:
    (first, change), *_ = parts
    if first.third is None:
        return sum(np.roll(one, len(one) // 2, axis=0) if place.is_exchanged else one for place, one in parts)
    rows = len(change)
    whole = np.zeros((3 * rows, change.shape[1]), change.dtype)
    for place, one in parts:
        assert place.third is not None
        whole[place.third * rows : (place.third + 1) * rows] += one
    return whole
