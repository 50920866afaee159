"""Prompt to embeddings: a UMT5 encoder's last hidden states, zeros past the text's end.

Text is cleaned as diffusers' WanPipeline does. The transformer gets no mask: it attends to the zeros too, as in its
training.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from diffusers.pipelines.wan.pipeline_wan import prompt_clean
from transformers import PreTrainedTokenizerBase

from pipelines.runtime.bridge.modules import LayerPlacement, TracedModule


def tokenize(tokenizer: PreTrainedTokenizerBase, texts: list[str], *, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns token ids (text, L) int32 and their attention mask; longer text is truncated."""
    found = tokenizer([prompt_clean(text) for text in texts], padding="max_length", max_length=length, truncation=True)
    return np.asarray(found["input_ids"], np.int32), np.asarray(found["attention_mask"], bool)


def build_encode_program(encoder: TracedModule, *, running_layer: LayerPlacement) -> Any:
    """Builds encode(weights, ids, mask) -> embeddings of [negative, prompt], fp32."""

    def encode(weights: Mapping[str, jax.Array], ids_BL: jax.Array, mask_BL: jax.Array) -> dict[str, jax.Array]:
        embeds_BLD = embed_tokens(encoder, weights, ids_BL, mask_BL, running_layer=running_layer)
        return {"negative_prompt_embeds": embeds_BLD[:1], "prompt_embeds": embeds_BLD[1:]}

    return encode


def embed_tokens(
    encoder: TracedModule,
    weights: Mapping[str, jax.Array],
    ids_BL: jax.Array,
    mask_BL: jax.Array,
    *,
    running_layer: LayerPlacement | None = None,
) -> jax.Array:
    """Returns embeddings (B, L, D) fp32; `mask_BL` (bool) is true where a token is text."""
    batch, length = ids_BL.shape
    # A mask of four axes, because transformers would read the values of a 2D one on the host.
    mask = jnp.broadcast_to(mask_BL[:, None, None, :], (batch, 1, length, length))
    hidden = encoder.call(weights, ids_BL, mask, method=_encode, running_layer=running_layer).astype(jnp.float32)
    return jnp.where(mask_BL[..., None], hidden, 0.0)


def _encode(encoder: Any, ids: Any, mask: Any) -> Any:
    return encoder.encoder(inputs_embeds=encoder.shared(ids), attention_mask=mask).last_hidden_state
