"""The network of text encoder and transformer, and the embeddings that the transformer gets of a caption."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from pipelines.demos.demo_flux2 import architecture
from pipelines.demos.network import Network
from pipelines.demos.stills.architecture import trace_and_initialise
from pipelines.families.language_model import build_encode_program

# Parameters that are not hidden layers' matrices: embeddings, and the transformer's first and last layers.
_OUTER = ("embed_tokens", "x_embedder", "context_embedder", "timestep_embedder", "proj_out", "norm_out")


def build_network(tokenizer: Any, *, seed: int = 0) -> Network:
    config = architecture.text_config(len(tokenizer))
    return Network.join(
        {
            "text_encoder": trace_and_initialise(architecture.build_text_encoder, config, seed=seed),
            "transformer": trace_and_initialise(architecture.build_transformer, seed=seed + 1),
        }
    )


def is_hidden(name: str) -> bool:
    return not any(part in name for part in _OUTER)


def embed(network: Network, parameters: Mapping[str, jax.Array], tokens_2BL: jax.Array) -> jax.Array:
    """Returns hidden states of OUT_LAYERS concatenated (B, L, 3 * TEXT_WIDTH); tokens are ids and attention mask."""
    encode = build_encode_program(
        network.modules["text_encoder"], out_layers=architecture.OUT_LAYERS, dtype=jnp.float32
    )
    return encode(network.weights("text_encoder", parameters), tokens_2BL)
