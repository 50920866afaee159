"""Writes checkpoints in the layouts of single files, from folders in diffusers layout: the converters' way back.

Written from the layouts themselves (CompVis' and Stability AI's modules), not from the tables that are tested.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from pipelines.models.weight_files import find_weight_files

Tensors = dict[str, torch.Tensor]

_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "time_emb_proj": "emb_layers.1",
    "conv_shortcut": "skip_connection",
}
_VAE_ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out.0": "proj_out"}
_OPEN_CLIP = {"layer_norm1": "ln_1", "layer_norm2": "ln_2", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}
_Z_IMAGE = {
    "all_x_embedder.2-1.": "x_embedder.",
    "all_final_layer.2-1.": "final_layer.",
    "attention.to_out.0.": "attention.out.",
    "attention.norm_q.": "attention.q_norm.",
    "attention.norm_k.": "attention.k_norm.",
}


def read_component(folder: Path) -> Tensors:
    return {name: tensor for file in find_weight_files(folder) for name, tensor in load_file(file).items()}


def read_config(folder: Path) -> Mapping[str, Any]:
    return json.loads((folder / "config.json").read_text("utf-8"))


def write_ldm(
    folder: Path,
    file: Path,
    *,
    without: tuple[str, ...] = (),
    has_open_clip: bool = False,
    change: Callable[[Tensors], Tensors] = dict,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Saves a folder's SDXL or Stable Diffusion as one file in the LDM layout.

    `change` is done to its tensors; `has_open_clip` is Stable Diffusion 2's layout of its text encoder.
    """
    is_xl = (folder / "text_encoder_2").is_dir()
    first = "conditioner.embedders.0.transformer" if is_xl else "cond_stage_model.transformer"
    tensors: Tensors = {}
    if "unet" not in without:
        config = read_config(folder / "unet")
        named = {name_unet(name, config): tensor for name, tensor in read_component(folder / "unet").items()}
        tensors |= {f"model.diffusion_model.{name}": tensor for name, tensor in named.items()}
    if "vae" not in without:
        tensors |= {f"first_stage_model.{name}": tensor for name, tensor in write_vae(folder / "vae").items()}
    if "text_encoder" not in without and has_open_clip:
        tensors |= write_open_clip(folder / "text_encoder", "cond_stage_model.model.")
    elif "text_encoder" not in without:
        read = read_component(folder / "text_encoder")
        tensors |= {f"{first}.text_model.{name.removeprefix('text_model.')}": one for name, one in read.items()}
    if is_xl and "text_encoder_2" not in without:
        tensors |= write_open_clip(folder / "text_encoder_2", "conditioner.embedders.1.model.")
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: one.contiguous() for name, one in change(tensors).items()}, file, metadata=dict(metadata or {}))
    return file


def name_unet(name: str, config: Mapping[str, Any]) -> str:
    """Returns the LDM name of a UNet's tensor: blocks are numbered through, one for each layer and halving."""
    layers, levels = config["layers_per_block"], len(config["block_out_channels"])
    tops = {
        "conv_in": "input_blocks.0.0",
        "time_embedding.linear_1": "time_embed.0",
        "time_embedding.linear_2": "time_embed.2",
        "add_embedding.linear_1": "label_emb.0.0",
        "add_embedding.linear_2": "label_emb.0.2",
        "conv_norm_out": "out.0",
        "conv_out": "out.2",
    }
    top, _, kind = name.rpartition(".")
    if top in tops:
        return f"{tops[top]}.{kind}"
    match = re.fullmatch(r"(down|up)_blocks\.(\d+)\.(resnets|attentions|downsamplers|upsamplers)\.(\d+)\.(.+)", name)
    if match is None:
        middle = re.fullmatch(r"mid_block\.(resnets|attentions)\.(\d+)\.(.+)", name)
        assert middle is not None, name
        part, number, rest = middle.groups()
        place = 1 if part == "attentions" else 2 * int(number)
        return f"middle_block.{place}.{_name_resnet(rest) if part == 'resnets' else rest}"
    way, level, part, number, rest = match[1], int(match[2]), match[3], int(match[4]), match[5]
    if way == "down":
        block = f"input_blocks.{1 + level * (layers + 1) + (layers if part == 'downsamplers' else number)}"
        inside = {"resnets": "0", "attentions": "1", "downsamplers": "0.op"}[part]
    else:
        block = f"output_blocks.{level * (layers + 1) + (layers if part == 'upsamplers' else number)}"
        has_attention = "CrossAttn" in config["up_block_types"][level]
        inside = {"resnets": "0", "attentions": "1", "upsamplers": "2.conv" if has_attention else "1.conv"}[part]
    assert level < levels
    rest = _name_resnet(rest) if part == "resnets" else rest.removeprefix("conv.")
    return f"{block}.{inside}.{rest}"


def _name_resnet(rest: str) -> str:
    layer, _, kind = rest.rpartition(".")
    return f"{_RESNET[layer]}.{kind}"


def write_vae(folder: Path) -> Tensors:
    """Returns an autoencoder's tensors in the LDM layout, whose attention is made of 1x1 convolutions."""
    levels = len(read_config(folder)["block_out_channels"])
    tensors: Tensors = {}
    for name, tensor in read_component(folder).items():
        name = name.replace("conv_norm_out", "norm_out")
        name = re.sub(r"down_blocks\.(\d+)\.resnets", r"down.\1.block", name)
        name = re.sub(r"down_blocks\.(\d+)\.downsamplers\.0", r"down.\1.downsample", name)
        name = re.sub(r"up_blocks\.(\d+)\.resnets", lambda one: f"up.{levels - 1 - int(one[1])}.block", name)
        name = re.sub(r"up_blocks\.(\d+)\.upsamplers\.0", lambda one: f"up.{levels - 1 - int(one[1])}.upsample", name)
        name = re.sub(r"mid_block\.resnets\.(\d)", lambda one: f"mid.block_{int(one[1]) + 1}", name)
        name = name.replace("conv_shortcut", "nin_shortcut")
        if "mid_block.attentions.0" in name:
            stem, _, kind = name.replace("mid_block.attentions.0", "mid.attn_1").rpartition(".")
            place, _, layer = stem.partition("mid.attn_1.")
            name = f"{place}mid.attn_1.{_VAE_ATTENTION[layer]}.{kind}"
            tensor = tensor[:, :, None, None] if kind == "weight" and layer != "group_norm" else tensor
        tensors[name] = tensor
    return tensors


def write_open_clip(folder: Path, prefix: str) -> Tensors:
    """Returns a text encoder's tensors in OpenCLIP's layout: q, k and v in one, and the projection turned."""
    read = {name.removeprefix("text_model."): tensor for name, tensor in read_component(folder).items()}
    tensors: Tensors = {}
    for name, tensor in read.items():
        if match := re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)\.(weight|bias)", name):
            number, layer, kind = match.groups()
            block = f"transformer.resblocks.{number}"
            if layer == "self_attn.q_proj":
                packed = [read[f"encoder.layers.{number}.self_attn.{one}_proj.{kind}"] for one in "qkv"]
                tensors[f"{block}.attn.in_proj_{kind}"] = torch.cat(packed)
            elif layer == "self_attn.out_proj":
                tensors[f"{block}.attn.out_proj.{kind}"] = tensor
            elif layer in _OPEN_CLIP:
                tensors[f"{block}.{_OPEN_CLIP[layer]}.{kind}"] = tensor
            continue
        renamed = {
            "embeddings.position_embedding.weight": "positional_embedding",
            "embeddings.token_embedding.weight": "token_embedding.weight",
            "final_layer_norm.weight": "ln_final.weight",
            "final_layer_norm.bias": "ln_final.bias",
            "text_projection.weight": "text_projection",
        }
        if name in renamed:
            tensors[renamed[name]] = tensor.T if name == "text_projection.weight" else tensor
    return {prefix + name: tensor for name, tensor in tensors.items()}


def scale_to_fp8(tensors: Tensors, *, suffix: str = "scale_weight", by_row: bool = False) -> Tensors:
    """Returns the tensors with the UNet's matrices in fp8, each with its scale beside it, as ComfyUI writes them."""
    scaled: Tensors = {"scaled_fp8": torch.zeros(2, dtype=torch.float8_e4m3fn)}
    for name, tensor in tensors.items():
        if tensor.ndim != 2 or not name.startswith("model.diffusion_model.") or not name.endswith(".weight"):
            scaled[name] = tensor
            continue
        largest = tensor.abs().amax(dim=1, keepdim=True) if by_row else tensor.abs().max()
        scale = (largest.float() / 448).clamp(min=1e-12)
        scaled[name] = (tensor.float() / scale).to(torch.float8_e4m3fn)
        scaled[f"{name.removesuffix('.weight')}.{suffix}"] = scale
    return scaled


def unscale(tensors: Tensors) -> Tensors:
    """Returns what tensors with scales beside them mean, in fp32."""
    plain: Tensors = {}
    for name, tensor in tensors.items():
        scale = tensors.get(f"{name.removesuffix('.weight')}.scale_weight")
        plain[name] = tensor.float() if scale is None else tensor.float() * scale
    return {name: one for name, one in plain.items() if "scale" not in name}


_FLUX2 = {
    "x_embedder": "img_in",
    "context_embedder": "txt_in",
    "time_guidance_embed.timestep_embedder.linear_1": "time_in.in_layer",
    "time_guidance_embed.timestep_embedder.linear_2": "time_in.out_layer",
    "time_guidance_embed.guidance_embedder.linear_1": "guidance_in.in_layer",
    "time_guidance_embed.guidance_embedder.linear_2": "guidance_in.out_layer",
    "double_stream_modulation_img.linear": "double_stream_modulation_img.lin",
    "double_stream_modulation_txt.linear": "double_stream_modulation_txt.lin",
    "single_stream_modulation.linear": "single_stream_modulation.lin",
    "proj_out": "final_layer.linear",
    "attn.to_out.0": "img_attn.proj",
    "attn.to_add_out": "txt_attn.proj",
    "ff.linear_in": "img_mlp.0",
    "ff.linear_out": "img_mlp.2",
    "ff_context.linear_in": "txt_mlp.0",
    "ff_context.linear_out": "txt_mlp.2",
    "attn.to_qkv_mlp_proj": "linear1",
    "attn.to_out": "linear2",
}
_FLUX2_NORMS = {
    "attn.norm_q": "img_attn.norm.query_norm.scale",
    "attn.norm_k": "img_attn.norm.key_norm.scale",
    "attn.norm_added_q": "txt_attn.norm.query_norm.scale",
    "attn.norm_added_k": "txt_attn.norm.key_norm.scale",
}
_WAN = {
    "condition_embedder.time_embedder.linear_1": "time_embedding.0",
    "condition_embedder.time_embedder.linear_2": "time_embedding.2",
    "condition_embedder.text_embedder.linear_1": "text_embedding.0",
    "condition_embedder.text_embedder.linear_2": "text_embedding.2",
    "condition_embedder.time_proj": "time_projection.1",
    "condition_embedder.image_embedder.norm1": "img_emb.proj.0",
    "condition_embedder.image_embedder.ff.net.0.proj": "img_emb.proj.1",
    "condition_embedder.image_embedder.ff.net.2": "img_emb.proj.3",
    "condition_embedder.image_embedder.norm2": "img_emb.proj.4",
    "attn2.add_k_proj": "cross_attn.k_img",
    "attn2.add_v_proj": "cross_attn.v_img",
    "attn2.norm_added_k": "cross_attn.norm_k_img",
    "proj_out": "head.head",
    "ffn.net.0.proj": "ffn.0",
    "ffn.net.2": "ffn.2",
    "norm2": "norm3",
}


def write_flux2(folder: Path, file: Path, *, prefix: str = "") -> Path:
    """Saves a FLUX.2 folder's transformer as one file in its authors' layout."""
    read, tensors = read_component(folder / "transformer"), Tensors()
    for name, tensor in read.items():
        block, layer, kind = re.fullmatch(r"((?:single_)?transformer_blocks\.\d+\.)?(.+)\.(\w+)", name).groups()
        place = (block or "").replace("single_transformer_", "single_").replace("transformer_", "double_")
        if name.startswith("norm_out.linear."):  # shift first, as its authors have it
            scale, shift = tensor.chunk(2)
            tensors[f"final_layer.adaLN_modulation.1.{kind}"] = torch.cat([shift, scale])
        elif layer in ("attn.to_q", "attn.add_q_proj"):
            side = "img" if layer == "attn.to_q" else "txt"
            packed = [read[f"{block}{layer.replace('_q', f'_{one}')}.{kind}"] for one in "qkv"]
            tensors[f"{place}{side}_attn.qkv.{kind}"] = torch.cat(packed)
        elif layer in _FLUX2_NORMS:
            own = _FLUX2_NORMS[layer]
            tensors[place + (own.removeprefix("img_attn.") if place.startswith("single") else own)] = tensor
        elif layer in _FLUX2:
            tensors[f"{place}{_FLUX2[layer]}.{kind}"] = tensor
    return _save(tensors, file, prefix)


def write_z_image(folder: Path, file: Path, *, prefix: str = "") -> Path:
    """Saves a Z-Image folder's transformer as one file in its authors' layout."""
    read, tensors = read_component(folder / "transformer"), Tensors()
    for name, tensor in read.items():
        block, _, layer = name.partition("attention.")
        if layer == "to_q.weight":
            packed = [read[f"{block}attention.to_{one}.weight"] for one in "qkv"]
            tensors[f"{block}attention.qkv.weight"] = torch.cat(packed)
        elif layer not in ("to_k.weight", "to_v.weight"):
            for ours, theirs in _Z_IMAGE.items():
                name = name.replace(ours, theirs)
            tensors[name] = tensor
    return _save(tensors, file, prefix)


def write_wan(folder: Path, file: Path, *, prefix: str = "", component: str = "transformer") -> Path:
    """Saves a Wan folder's transformer, or its second one, as one file in its authors' layout."""
    tensors: Tensors = {}
    for name, tensor in read_component(folder / component).items():
        if name.endswith("scale_shift_table"):
            own = "head.modulation" if name == "scale_shift_table" else name.replace("scale_shift_table", "modulation")
            tensors[own] = tensor
            continue
        if name.endswith("image_embedder.pos_embed"):
            tensors["img_emb.emb_pos"] = tensor
            continue
        block, layer, kind = re.fullmatch(r"(blocks\.\d+\.)?(.+)\.(\w+)", name).groups()
        attention = layer.replace("attn1.", "self_attn.").replace("attn2.", "cross_attn.").replace("to_out.0", "o")
        tensors[f"{block or ''}{_WAN.get(layer, attention.replace('.to_', '.'))}.{kind}"] = tensor
    return _save(tensors, file, prefix)


def _save(tensors: Tensors, file: Path, prefix: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({prefix + name: tensor.contiguous() for name, tensor in tensors.items()}, file)
    return file


def write_gguf(source: Path, file: Path, *, kind: str, recut: bool = False, architecture: str = "") -> Path:
    """Saves a safetensors file's tensors as GGUF by its authors' own writer: matrices as `kind`, others in fp32.

    Tensors whose rows are no whole blocks stay fp32, unless `recut` gives them other rows, as ComfyUI-GGUF does.
    """
    import gguf

    quantised = gguf.GGMLQuantizationType[kind]
    block, _ = gguf.GGML_QUANT_SIZES[quantised]
    writer = gguf.GGUFWriter(file, architecture)
    for name, tensor in load_file(source).items():
        array = tensor.float().numpy()
        if array.ndim < 2 and kind != "F16":
            writer.add_tensor(name, array)
            continue
        if recut and array.shape[-1] % block and array.size % block == 0:
            writer.add_array(f"comfy.gguf.orig_shape.{name}", [*array.shape])
            array = array.reshape(-1, block)
        if array.shape[-1] % block:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quantize(array, quantised), raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def write_dequantised(source: Path, file: Path) -> Path:
    """Saves what a GGUF file's tensors mean as safetensors in fp32, read by its authors' own reader."""
    import gguf

    reader = gguf.GGUFReader(source)
    tensors: Tensors = {}
    for one in reader.tensors:
        field = reader.fields.get(f"comfy.gguf.orig_shape.{one.name}")
        shape = [int(size) for size in (field.contents() if field else reversed(one.shape))]
        tensors[one.name] = torch.from_numpy(gguf.dequantize(one.data, one.tensor_type).reshape(shape).copy())
    save_file(tensors, file)
    return file
