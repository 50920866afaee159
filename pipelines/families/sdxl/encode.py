"""Prompt to embeddings: the penultimate hidden states of two CLIP text encoders.

`prompt_embeds` (1, L, D1 + D2) are both encoders' penultimate hidden states concatenated, `pooled_prompt_embeds`
(1, D2) the second encoder's projection. One program serves both prompts of classifier-free guidance.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers import CLIPTokenizer

from pipelines.runtime.bridge.modules import TracedModule, call_for_layers


def tokenize(tokenizers: tuple[CLIPTokenizer, ...], prompt: str, negative_prompt: str) -> np.ndarray:
    """Returns token ids (encoder, prompt, L) int32, negative prompt first; text beyond CLIP's limit is truncated."""
    ids = [
        tokenizer(
            [negative_prompt, prompt],
            padding="max_length",
            max_length=tokenizer.model_max_length,
            truncation=True,
        )["input_ids"]
        for tokenizer in tokenizers
    ]
    return np.asarray(ids, np.int32)


def build_encode_program(encoders: tuple[TracedModule, TracedModule], *, zeroes_empty: bool) -> Any:
    """Builds encode(weights, weights_2, ids, is_negative_empty) -> embeddings of [negative, prompt], fp32.

    With `zeroes_empty` (SDXL's `force_zeros_for_empty_prompt`) an empty negative prompt means zeros, not an encoded
    empty text.
    """

    def encode(
        weights: Mapping[str, jax.Array],
        weights_2: Mapping[str, jax.Array],
        ids_EBL: jax.Array,
        is_negative_empty: jax.Array,
    ) -> dict[str, jax.Array]:
        outputs = [
            module.call(own, ids_BL, method=read_text)
            for module, own, ids_BL in zip(encoders, (weights, weights_2), ids_EBL, strict=True)
        ]
        prompt_embeds = jnp.concatenate([hidden for hidden, _ in outputs], axis=-1).astype(jnp.float32)
        pooled = outputs[1][1].astype(jnp.float32)
        keep = jnp.where(is_negative_empty, 0.0, 1.0) if zeroes_empty else jnp.float32(1)
        return {
            "negative_prompt_embeds": prompt_embeds[:1] * keep,
            "prompt_embeds": prompt_embeds[1:],
            "negative_pooled_prompt_embeds": pooled[:1] * keep,
            "pooled_prompt_embeds": pooled[1:],
        }

    return encode


def read_text(encoder: Any, ids: Any) -> tuple[Any, Any]:
    """Returns the penultimate hidden states, and the text's projection or None if the encoder has none."""
    output, hidden_states = call_for_layers(encoder, ids)
    return hidden_states[-2], getattr(output, "text_embeds", None)
