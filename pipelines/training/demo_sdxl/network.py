"""Both text encoders and the UNet as one set of parameters, and what the UNet gets to see of a caption."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers import CLIPTokenizer

from pipelines.runtime.torch_bridge import TracedModule
from pipelines.training.demo_sdxl import architecture


@dataclass(frozen=True, kw_only=True)
class Network:
    """The three modules trained together; parameters carry the diffusers folder as prefix (`unet.conv_in.weight`)."""

    modules: dict[str, TracedModule]
    initial: dict[str, np.ndarray]
    constants: dict[str, Any]


def build_network(tokenizer: CLIPTokenizer, *, seed: int = 0) -> Network:
    config = architecture.text_config(
        vocabulary_size=len(tokenizer),
        **architecture.special_ids(tokenizer),
    )
    parts = {
        "text_encoder": architecture.trace_and_initialise(architecture.build_text_encoder, config, seed=seed),
        "text_encoder_2": architecture.trace_and_initialise(architecture.build_text_encoder_2, config, seed=seed + 1),
        "unet": architecture.trace_and_initialise(architecture.build_unet, seed=seed + 2),
    }
    return Network(
        modules={name: module for name, (module, _) in parts.items()},
        initial={f"{part}.{name}": value for part, (_, values) in parts.items() for name, value in values.items()},
        constants={part: module.constant_buffers() for part, (module, _) in parts.items()},
    )


def is_hidden(name: str) -> bool:
    return not any(part in name for part in ("conv_in", "conv_out", "token_embedding", "position_embedding"))


def embed(network: Network, parameters: Mapping[str, jax.Array], input_ids: jax.Array) -> tuple[jax.Array, jax.Array]:
    """As SDXL: last but one hidden states of both encoders side by side, and the second one's pooled projection."""
    outputs = [
        network.modules[part].call(
            part_of(network, parameters, part),
            input_ids,
            output_hidden_states=True,
            return_dict=False,
        )
        for part in ("text_encoder", "text_encoder_2")
    ]
    return jnp.concatenate([output[-1][-2] for output in outputs], axis=-1), outputs[1][0]


def part_of(network: Network, parameters: Mapping[str, jax.Array], part: str) -> dict[str, jax.Array]:
    """One module's own parameters, without their prefix, and its constants."""
    prefix = f"{part}."
    own = {name[len(prefix) :]: value for name, value in parameters.items() if name.startswith(prefix)}
    return own | network.constants[part]
