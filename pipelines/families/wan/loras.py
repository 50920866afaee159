"""Reads LoRAs of Wan's transformers, under the names of diffusers, peft, kohya's trainer (musubi) and the original.

A LoRA changes both of Wan 2.2's experts, unless its file is for one: its name says so (trainers call the first expert
high_noise and the second low_noise), or its tensors are those of `transformer_2`. As in diffusers, full-rank
differences of norms (`.diff`), which some distilled LoRAs contain, are ignored.
"""

import re
from collections.abc import Collection
from typing import cast

from diffusers.loaders import WanLoraLoaderMixin

from pipelines.families.wan.parts import EXPERTS
from pipelines.loras import LoraFile
from pipelines.runtime.weights.lora import Tensors

_PEFT = "base_model.model."
_ORIGINAL = re.compile(r"blocks\.\d+\.(self_attn|cross_attn|ffn\.\d)\b")


def rename(tensors: Tensors, file: LoraFile, *, components: Collection[str]) -> Tensors:
    """See `runtime.lora.Rename`; `components` are those of the model."""
    given = {name.removeprefix(_PEFT): tensor for name, tensor in tensors.items()}
    if any(name.startswith("blocks.") for name in given):
        prefix = "diffusion_model." if any(map(_ORIGINAL.match, given)) else "transformer."
        given = {prefix + name: tensor for name, tensor in given.items()}
    named = cast(Tensors, WanLoraLoaderMixin.lora_state_dict(given))
    if any(name.startswith(f"{EXPERTS[1]}.") for name in named):
        return named
    changed = choose_experts(file.ref) if EXPERTS[1] in components else EXPERTS[:1]
    return {
        f"{expert}.{name.removeprefix('transformer.')}": tensor for name, tensor in named.items() for expert in changed
    }


def choose_experts(name: str) -> tuple[str, ...]:
    """Returns the experts that a file of this name is for."""
    levels = re.findall(r"(high|low)[ _.-]?noise", name.lower())
    return EXPERTS if len(set(levels)) != 1 else (EXPERTS[0] if levels[0] == "high" else EXPERTS[1],)
