"""The network of both text encoders and the UNet, and the embeddings that the UNet gets of a caption."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from transformers import CLIPTokenizer

from pipelines.demos.demo_sdxl import architecture
from pipelines.demos.network import Network
from pipelines.demos.stills.architecture import trace_and_initialise


def build_network(tokenizer: CLIPTokenizer, *, seed: int = 0) -> Network:
    config = architecture.text_config(
        vocabulary_size=len(tokenizer),
        **architecture.special_ids(tokenizer),
    )
    return Network.join(
        {
            "text_encoder": trace_and_initialise(architecture.build_text_encoder, config, seed=seed),
            "text_encoder_2": trace_and_initialise(architecture.build_text_encoder_2, config, seed=seed + 1),
            "unet": trace_and_initialise(architecture.build_unet, seed=seed + 2),
        }
    )


def is_hidden(name: str) -> bool:
    return not any(part in name for part in ("conv_in", "conv_out", "token_embedding", "position_embedding"))


def embed(network: Network, parameters: Mapping[str, jax.Array], input_ids: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns SDXL's embeddings: both encoders' penultimate hidden states concatenated, and the second's projection."""
    outputs = [
        network.call(part, parameters, input_ids, output_hidden_states=True, return_dict=False)
        for part in ("text_encoder", "text_encoder_2")
    ]
    return jnp.concatenate([output[-1][-2] for output in outputs], axis=-1), outputs[1][0]
