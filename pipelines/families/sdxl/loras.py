"""Reads LoRAs of SDXL's UNet and text encoders, with the names of diffusers, peft, kohya's trainer or the original."""

from collections.abc import Mapping
from typing import Any

from diffusers.loaders import StableDiffusionXLLoraLoaderMixin
from diffusers.utils import state_dict_utils

from pipelines.loras import LoraFile
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.weights.lora import Tensors

TEXT_ENCODERS = ("text_encoder", "text_encoder_2")
_TEXT_NAMES = state_dict_utils.DIFFUSERS_OLD_TO_PEFT | state_dict_utils.DIFFUSERS_TO_PEFT
_PEFT = "base_model.model."


def rename(tensors: Tensors, _file: LoraFile, *, modules: Mapping[str, TracedModule]) -> Tensors:
    """See `runtime.lora.Rename`."""
    given = {f"unet.{name.removeprefix(_PEFT)}" if name.startswith(_PEFT) else name: tensors[name] for name in tensors}
    found = StableDiffusionXLLoraLoaderMixin.lora_state_dict(given, unet_config=modules["unet"].module.config)
    named: dict[str, Any] = found[0]
    parts: dict[str, Tensors] = {}
    for name, tensor in named.items():
        component, _, rest = name.partition(".")
        parts.setdefault(component, {})[rest] = tensor
    converted: Tensors = {}
    for component, own in parts.items():
        if component not in TEXT_ENCODERS:
            own = state_dict_utils.convert_unet_state_dict_to_peft(own)
        else:
            own = state_dict_utils.convert_state_dict(own, _TEXT_NAMES)
            if not hasattr(modules[component].module, "text_model"):
                own = {name.removeprefix("text_model."): tensor for name, tensor in own.items()}
        converted |= {f"{component}.{name}": tensor for name, tensor in own.items()}
    return converted
