"""Prompts read by the hidden states of a language model: what families with such a text encoder share.

Layers above the highest one that is read are never built. How a prompt becomes tokens is a family's own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pipelines.runtime.bridge.modules import TracedModule, call_for_layers, scan_if_long
from pipelines.runtime.devices.sharding import Axes, Rules, count_parts

# Prefixes of a language model's weights as transformers' versions saved them.
TEXT_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "language_model.")


def cut_layers(text_encoder: Any, out_layers: Sequence[int]) -> None:
    """Drops the layers that no embedding needs, and makes a scan of the remaining ones.

    The last hidden state of the whole model is normed, that of a truncated one is not.
    """
    count = max(out_layers)
    if count < len(text_encoder.layers):
        text_encoder.layers = text_encoder.layers[:count]
        text_encoder.norm = torch.nn.Identity()
    kinds = getattr(text_encoder.config, "layer_types", None) or ("full_attention",)
    if len({*kinds}) == 1:  # a scan has one mask for all
        text_encoder.layers = scan_if_long(text_encoder.layers)


def build_encode_program(
    text_encoder: TracedModule, *, out_layers: Sequence[int], dtype: Any, clears_filling: bool = False
) -> Any:
    """Builds encode(weights, ids and mask (2, B, L)) -> prompt_embeds (B, L, len(out_layers) * D) in `dtype`.

    With `clears_filling` the embeddings of tokens that only fill up are zeros.
    """

    def encode(weights: Mapping[str, jax.Array], tokens_2BL: jax.Array) -> jax.Array:
        ids_BL, is_text_BL = tokens_2BL
        length = ids_BL.shape[1]
        # Built here because transformers would read the mask's values, which tracing does not allow.
        allowed_B1LL = jnp.tril(jnp.ones((length, length), bool)) & (is_text_BL[:, None, None] > 0)
        _, hidden_states = text_encoder.call(
            weights, ids_BL, attention_mask=allowed_B1LL, use_cache=False, method=call_for_layers
        )
        embeddings = jnp.concatenate([hidden_states[layer] for layer in out_layers], axis=-1).astype(dtype)
        return jnp.where(is_text_BL[..., None] > 0, embeddings, 0) if clears_filling else embeddings

    return encode


def make_text_rules(config: Any, mesh: Mesh, axes: Axes = "tp") -> Rules:
    """Shards a language model's projections and embeddings over `axes` if its heads divide; the rest is replicated."""
    parts = count_parts(mesh, axes)
    if config.num_attention_heads % parts or config.intermediate_size % parts or config.hidden_size % parts:
        return ((r"", P()),)
    grouped = P(axes, None) if config.num_key_value_heads % parts == 0 else P()
    return (
        (r"\.(k_proj|v_proj)\.weight$", grouped),
        (r"\.(q_proj|gate_proj|up_proj)\.weight$", P(axes, None)),
        (r"\.(o_proj|down_proj)\.weight$", P(None, axes)),
        (r"^embed_tokens\.weight$", P(None, axes)),
        (r"", P()),
    )
