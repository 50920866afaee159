"""The layers of full-size models are found by every spelling, and are those that diffusers' converters make of them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from diffusers import Flux2Transformer2DModel, UNet2DConditionModel, WanTransformer3DModel, ZImageTransformer2DModel
from diffusers.loaders import (
    Flux2LoraLoaderMixin,
    StableDiffusionXLLoraLoaderMixin,
    WanLoraLoaderMixin,
    ZImageLoraLoaderMixin,
)
from diffusers.utils.state_dict_utils import convert_unet_state_dict_to_peft

from pipelines.families.flux2 import loras as flux2
from pipelines.families.sd import architecture as sd
from pipelines.families.sdxl import architecture as sdxl
from pipelines.families.wan import loras as wan
from pipelines.families.z_image import loras as z_image
from pipelines.models.catalog import PRESETS_DIR
from pipelines.runtime.weights.lora_spelling import Spell

Shapes = Mapping[str, tuple[int, ...]]


def list_shapes(module: Any, config: str) -> Shapes:
    """Layer -> shape of its weight, of a model that is not built."""
    fields = json.loads((PRESETS_DIR / config / "config.json").read_text("utf-8"))
    with torch.device("meta"):
        parameters = module.from_config(fields).named_parameters()
    return {name.removesuffix(".weight"): tuple(one.shape) for name, one in parameters if name.endswith(".weight")}


def write_pair(name: str, rows: int) -> dict[str, torch.Tensor]:
    """A pair whose rows are numbered, so that it shows which of them go where."""
    up = torch.arange(rows).float()[:, None]
    return {f"{name}.lora_A.weight": torch.zeros(1, 1), f"{name}.lora_B.weight": up}


def find_starts(converted: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, int]]:
    """Layer -> the first of the rows that it gets, and their number."""
    ends = ".lora_B.weight"
    return {name.removesuffix(ends): (int(up[0, 0]), len(up)) for name, up in converted.items() if name.endswith(ends)}


@pytest.mark.parametrize(("model_id", "spell", "count"), [("sdxl-base", sdxl.spell, 700), ("sd15", sd.spell, 250)])
def test_a_unet_is_read_as_diffusers_reads_kohyas_names(model_id: str, spell: Spell, count: int) -> None:
    shapes = list_shapes(UNet2DConditionModel, f"configs/{model_id}/unet")
    config = json.loads((PRESETS_DIR / f"configs/{model_id}/unet/config.json").read_text("utf-8"))
    spellings = spell({"unet": list(shapes)})
    names = {name: layers for name, layers in spellings.aliases["unet"].items() if len(shapes[layers[0]]) > 1}
    assert len(names) > count
    kohya = {f"lora_unet_{name.replace('.', '_')}": layers for name, layers in names.items()}
    tensors = {f"{name}.lora_{side}.weight": torch.zeros(1, 1) for name in kohya for side in ("down", "up")}
    unet = type("Config", (), {"layers_per_block": config["layers_per_block"]})
    for name, layers in kohya.items():
        if model_id == "sd15" and layers == ("up_blocks.0.upsamplers.0.conv",):
            continue  # on a level without attention, diffusers takes it for one
        own = {key: tensor for key, tensor in tensors.items() if key.partition(".")[0] == name}
        found, _ = StableDiffusionXLLoraLoaderMixin.lora_state_dict(own, unet_config=unet)
        converted = convert_unet_state_dict_to_peft({key.partition(".")[2]: one for key, one in found.items()})
        assert {key.rpartition(".lora_")[0] for key in converted} == set(layers)
    for name, layers in names.items():
        for spelled in (f"diffusion_model.{name}", f"unet.{name}", f"lora_unet_{name.replace('.', '_')}", layers[0]):
            assert spellings.find(spelled) == ("unet", layers)


@pytest.mark.parametrize("config", ["flux2-klein-4b", "flux2-dev"])
def test_flux2_is_read_as_diffusers_reads_the_originals_names(config: str) -> None:
    shapes = list_shapes(Flux2Transformer2DModel, f"configs/{config}/transformer")
    spellings = flux2.spell({"transformer": list(shapes)})
    names = {
        name: layers
        for name, layers in spellings.aliases["transformer"].items()
        if len(shapes[layers[0]]) > 1 and "transformer_blocks" not in name and "sformer" not in name
    }
    rows = {name: [shapes[layer][0] for layer in layers] for name, layers in names.items()}
    tensors = {
        key: one for name in names for key, one in write_pair(f"diffusion_model.{name}", sum(rows[name])).items()
    }
    found = find_starts(Flux2LoraLoaderMixin.lora_state_dict(tensors))
    expected = {
        f"transformer.{layer}": (sum(rows[name][:number]), rows[name][number])
        for name, layers in names.items()
        for number, layer in enumerate(layers)
    }
    assert found == expected
    for name, layers in names.items():
        for spelled in (name, f"base_model.model.{name}", f"lora_unet_{name.replace('.', '_')}"):
            assert spellings.find(spelled) == ("transformer", layers)
            assert spellings.is_exchanged(spelled) == (name == "final_layer.adaLN_modulation.1")
        assert not any(map(spellings.is_exchanged, layers))


def test_wan_is_read_as_diffusers_reads_the_originals_names() -> None:
    shapes = list_shapes(WanTransformer3DModel, "configs/wan2.1-i2v-14b/transformer")
    spellings = wan.spell({"transformer": list(shapes)})
    names = {
        name: layers
        for name, layers in spellings.aliases["transformer"].items()
        if len(shapes[layers[0]]) == 2  # the patch embedding, a convolution, is nothing that diffusers converts
    }
    tensors = {key: one for name in names for key, one in write_pair(f"diffusion_model.{name}", 2).items()}
    found = find_starts(WanLoraLoaderMixin.lora_state_dict(tensors))
    assert found.keys() == {f"transformer.{layer}" for layers in names.values() for layer in layers}
    for name, layers in names.items():
        alone = {**write_pair(f"diffusion_model.{name}", 2), **write_pair("diffusion_model.blocks.0.self_attn.q", 2)}
        if "_img" not in name:  # diffusers asks for keys and values of the picture together
            assert f"transformer.{layers[0]}" in find_starts(WanLoraLoaderMixin.lora_state_dict(alone))
        for spelled in (name, f"transformer.{layers[0]}", f"lora_unet_{name.replace('.', '_')}"):
            assert spellings.find(spelled) == ("transformer", layers)


def test_peft_s_prefix_may_stand_behind_a_component_s_name() -> None:
    """Diffusers' scripts that distil UNets save `unet.base_model.model.`; so it may be of any component."""
    unet = sdxl.spell({"unet": ["conv_in"], "text_encoder": ["layers.0.fc1"]})
    assert unet.find("unet.base_model.model.conv_in") == ("unet", ("conv_in",))
    assert unet.find("text_encoder.base_model.model.layers.0.fc1") == ("text_encoder", ("layers.0.fc1",))
    transformer = wan.spell({"transformer": ["blocks.0.attn1.to_q"]})
    assert transformer.find("transformer.base_model.model.blocks.0.attn1.to_q") is not None
    assert unet.find("unet.base_model.model.base_model.model.conv_in") is None


@pytest.mark.parametrize("prefix", ["diffusion_model.", "lora_unet_"])
def test_z_image_is_read_as_diffusers_reads_other_trainers_names(prefix: str) -> None:
    """Only of the layers that its converter knows, which the original's fused projections are not."""
    shapes = list_shapes(ZImageTransformer2DModel, "configs/z-image/transformer")
    spellings = z_image.spell({"transformer": list(shapes)})
    layers = [name for name, shape in shapes.items() if len(shape) == 2 and ".0." in f"{name}." and "-" not in name]
    assert len(layers) > 20
    for layer in layers:
        name = layer.removesuffix(".0") if layer.endswith("to_out.0") and prefix == "diffusion_model." else layer
        name = name.replace("to_out", "out") if name != layer else layer
        spelled = prefix + (name.replace(".", "_") if prefix.endswith("unet_") else name)
        pair = {f"{spelled}.lora_down.weight": torch.zeros(1, 1), f"{spelled}.lora_up.weight": torch.zeros(2, 1)}
        found = ZImageLoraLoaderMixin.lora_state_dict(pair)
        assert {key.rpartition(".lora_")[0].removeprefix("transformer.") for key in found} == {layer}
        assert spellings.find(spelled) == ("transformer", (layer,))
