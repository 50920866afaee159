"""Prompt to embeddings: the hidden states of one or two CLIP text encoders.

`prompt_embeds` (1, L, D) are the encoders' hidden states, concatenated, and `pooled_prompt_embeds` the last encoder's
projection where it is used. One program serves both prompts of classifier-free guidance.

A prompt longer than L is encoded as several texts of L (prompts/chunks.py), laid side by side; the pooled embedding is
the first one's. Weights multiply a word's hidden states; then the text's are scaled back to their mean. Both are
A1111's rules, which its pictures' recipes assume.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from transformers import CLIPTokenizer

from pipelines.prompts.chunks import Chunk, Piece, cut_into_chunks
from pipelines.prompts.emphasis import split_by_weight
from pipelines.runtime.bridge.modules import TracedModule

ReadText = Callable[[Any, Any], tuple[Any, Any]]
"""Reads (text encoder, ids) -> hidden states and the pooled text or None; runs inside the traced module."""


class Tokens(NamedTuple):
    """Token ids (chunk, encoder, prompt, L) int32 and the weight of each, fp32; the negative prompt is the first."""

    ids: np.ndarray
    weights: np.ndarray


def tokenize(
    tokenizers: Sequence[CLIPTokenizer], prompt: str, negative_prompt: str, *, length: int, most_chunks: int
) -> Tokens:
    """Returns both prompts in the same number of chunks, `length` (L) tokens each; what `most_chunks` leave is cut."""
    texts = [[_cut(tokenizer, text, length=length) for text in (negative_prompt, prompt)] for tokenizer in tokenizers]
    count = min(most_chunks, max(len(chunks) for prompts in texts for chunks in prompts))
    shape = (count, len(tokenizers), 2, length)
    tokens = Tokens(np.zeros(shape, np.int32), np.ones(shape, np.float32))
    for encoder, (tokenizer, prompts) in enumerate(zip(tokenizers, texts, strict=True)):
        for row, chunks in enumerate(prompts):
            for place in range(count):
                chunk = chunks[place] if place < len(chunks) else Chunk()
                own = [tokenizer.bos_token_id, *chunk.ids, tokenizer.eos_token_id]
                tokens.ids[place, encoder, row] = own + [tokenizer.pad_token_id] * (length - len(own))
                tokens.weights[place, encoder, row, 1 : 1 + len(chunk.ids)] = chunk.weights
    return tokens


def _cut(tokenizer: CLIPTokenizer, text: str, *, length: int) -> list[Chunk]:
    def find_pieces(part: str) -> list[Piece]:
        found = tokenizer(part, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [
            Piece(number, *place) for number, place in zip(found["input_ids"], found["offset_mapping"], strict=True)
        ]

    return cut_into_chunks(split_by_weight(text), find_pieces, length=length - 2)


def weigh(hidden_BLD: np.ndarray, weights_EL: np.ndarray, *, widths: Sequence[int]) -> np.ndarray:
    """Multiplies each token's hidden states by its weight, then restores their mean, for each encoder by itself.

    `widths` are the encoders' shares of D. Source: A1111's `EmphasisOriginal`, the default of its setting "emphasis".
    """
    if (weights_EL == 1).all():
        return hidden_BLD
    parts = np.split(hidden_BLD, np.cumsum(widths)[:-1], axis=-1)
    weighed = [part * weights_L[:, None] for part, weights_L in zip(parts, weights_EL, strict=True)]
    scales = [part.mean() / own.mean() if own.mean() else 1.0 for part, own in zip(parts, weighed, strict=True)]
    return np.concatenate([own * scale for own, scale in zip(weighed, scales, strict=True)], axis=-1)


def join_chunks(chunks: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Lays the chunks' hidden states side by side, (1, chunks * L, D); what is pooled is the first chunk's."""
    return {
        name: first if "pooled" in name else np.concatenate([chunk[name] for chunk in chunks], axis=1)
        for name, first in chunks[0].items()
    }


def build_encode_program(encoders: Sequence[TracedModule], *, read_text: ReadText, zeroes_empty: bool) -> Any:
    """Builds encode(weights of each encoder, ids, is_negative_empty) -> embeddings of [negative, prompt], fp32.

    With `zeroes_empty` (SDXL's `force_zeros_for_empty_prompt`) an empty negative prompt means zeros, not an encoded
    empty text.
    """

    def encode(*arguments: Any) -> dict[str, jax.Array]:
        *weights, ids_EBL, is_negative_empty = arguments
        outputs = [
            module.call(own, ids_BL, method=read_text)
            for module, own, ids_BL in zip(encoders, weights, ids_EBL, strict=True)
        ]
        embeddings = {"prompt_embeds": jnp.concatenate([hidden for hidden, _ in outputs], axis=-1).astype(jnp.float32)}
        if (pooled := outputs[-1][1]) is not None:
            embeddings["pooled_prompt_embeds"] = pooled.astype(jnp.float32)
        keep = jnp.where(is_negative_empty, 0.0, 1.0) if zeroes_empty else jnp.float32(1)
        halves = {}
        for name, rows in embeddings.items():
            halves[f"negative_{name}"] = rows[:1] * keep
            halves[name] = rows[1:]
        return halves

    return encode
