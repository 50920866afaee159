"""LoRAs of FLUX.2's transformer, under the names of diffusers, peft, ai-toolkit, kohya's trainer and the original."""

from typing import cast

from diffusers.loaders import Flux2LoraLoaderMixin

from pipelines.loras import LoraFile
from pipelines.runtime.weights.lora import Tensors

# Start of a tensor name that its trainer saved without a prefix -> the prefix that diffusers' converter expects.
_BARE = {
    "double_blocks.": "diffusion_model.",
    "single_blocks.": "diffusion_model.",
    "transformer_blocks.": "transformer.",
    "single_transformer_blocks.": "transformer.",
}


def rename(tensors: Tensors, _file: LoraFile) -> Tensors:
    """See `runtime.lora.Rename`."""
    prefix = next((to for start, to in _BARE.items() for name in tensors if name.startswith(start)), "")
    given = {prefix + name: tensor for name, tensor in tensors.items()}
    return cast(Tensors, Flux2LoraLoaderMixin.lora_state_dict(given))
