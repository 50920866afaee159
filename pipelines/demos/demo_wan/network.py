"""The network of text encoder and transformer, and the embeddings that the transformer gets of a caption."""

from collections.abc import Mapping
from typing import Any

import jax

from pipelines.demos.demo_wan import architecture
from pipelines.demos.network import Network
from pipelines.demos.stills.architecture import trace_and_initialise
from pipelines.families.wan.attention import RotaryAttention
from pipelines.families.wan.encode import embed_tokens

# Parameters that are not hidden layers' matrices: embeddings, and the transformer's first and last layers.
_OUTER = ("shared", "relative_attention_bias", "patch_embedding", "text_embedder", "time_embedder", "proj_out", "table")


def build_network(tokenizer: Any, *, seed: int = 0) -> Network:
    config = architecture.text_config(len(tokenizer))
    transformer, initial = trace_and_initialise(architecture.build_transformer, seed=seed + 1)
    transformer.module.set_attn_processor(RotaryAttention(text_length=architecture.TEXT_LENGTH))
    return Network.join(
        {
            "text_encoder": trace_and_initialise(architecture.build_text_encoder, config, seed=seed),
            "transformer": (transformer, initial),
        }
    )


def is_hidden(name: str) -> bool:
    return not any(part in name for part in _OUTER)


def embed(network: Network, parameters: Mapping[str, jax.Array], ids_BL: jax.Array, is_text_BL: jax.Array) -> jax.Array:
    """Returns the last hidden states (B, L, TEXT_WIDTH), zeros past the text's end."""
    weights = network.weights("text_encoder", parameters)
    return embed_tokens(network.modules["text_encoder"], weights, ids_BL, is_text_BL > 0)
