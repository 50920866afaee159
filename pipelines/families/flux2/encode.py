"""Prompt to embeddings: hidden states from three layers of a language model, concatenated.

`prompt_embeds` (B, L, 3 * D) holds the hidden states of `out_layers` for every token, padding included: the transformer
gets all L tokens and no mask. Layers above the highest of these are never built.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from pipelines.families.flux2.parts import Parts
from pipelines.runtime.bridge.modules import TracedModule, call_for_layers, scan_if_long


def tokenize(parts: Parts, prompts: Sequence[str]) -> np.ndarray:
    """Returns token ids and attention mask (2, prompt, L) int32; longer text is truncated."""
    pairs = [parts.variant.tokenize(parts.tokenizers[0], prompt, parts.text_length) for prompt in prompts]
    return np.asarray(pairs, np.int32).transpose(1, 0, 2)


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


def build_encode_program(text_encoder: TracedModule, *, out_layers: Sequence[int], dtype: Any) -> Any:
    """Builds encode(weights, ids and mask (2, B, L)) -> prompt_embeds (B, L, len(out_layers) * D) in `dtype`."""

    def encode(weights: Mapping[str, jax.Array], tokens_2BL: jax.Array) -> jax.Array:
        ids_BL, is_text_BL = tokens_2BL
        length = ids_BL.shape[1]
        # Built here because transformers would read the mask's values, which tracing does not allow.
        allowed_B1LL = jnp.tril(jnp.ones((length, length), bool)) & (is_text_BL[:, None, None] > 0)
        _, hidden_states = text_encoder.call(
            weights, ids_BL, attention_mask=allowed_B1LL, use_cache=False, method=call_for_layers
        )
        return jnp.concatenate([hidden_states[layer] for layer in out_layers], axis=-1).astype(dtype)

    return encode
