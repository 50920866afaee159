"""Attention as Z-Image's blocks do it, for diffusers' own hook: a block's `processor`.

It does what diffusers' processor does, with two differences. The rotary embedding comes as a pair of real tables
(runtime/kernels/rotary.py) instead of complex numbers. And a block's mask is not a boolean for each token but the
number of tokens that each row attends to, since those that nobody sees come last.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import torch

from pipelines.runtime.bridge.environment import call_jax, find_attention_axes
from pipelines.runtime.kernels.attention import attend
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.heads import merge_heads, split_heads
from pipelines.runtime.kernels.rotary import rotate_pairs


@dataclass(frozen=True, kw_only=True)
class SingleStreamAttention:
    """Attention of every block: `attention_mask` (B,) counts the keys that a row's queries see; None means all."""

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        freqs_cis: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> torch.Tensor:
        assert encoder_hidden_states is None and freqs_cis is not None, "one stream attends to itself"
        query, key, value = (layer(hidden_states) for layer in (attn.to_q, attn.to_k, attn.to_v))
        axes = find_attention_axes()
        split = functools.partial(split_heads, heads=attn.heads, axes=axes)
        query, key, value = (call_jax(split, x) for x in (query, key, value))
        query, key = attn.norm_q(query), attn.norm_k(key)
        run = functools.partial(_attend, axes=axes)
        lengths = () if attention_mask is None else (attention_mask,)
        return attn.to_out[0](call_jax(run, query, key, value, *freqs_cis, *lengths))


def _attend(  # noqa: PLR0917 - arrays of a traced module come by position
    query_BLHD: jax.Array,
    key_BLHD: jax.Array,
    value_BLHD: jax.Array,
    cos_BLD: jax.Array,
    sin_BLD: jax.Array,
    key_lengths_B: jax.Array | None = None,
    *,
    axes: AttentionAxes | None,
) -> jax.Array:
    """Returns (B, L, H * D), after the rotary embedding."""
    query, key = (rotate_pairs(x, cos_BLD, sin_BLD) for x in (query_BLHD, key_BLHD))
    out = attend(
        *(x.swapaxes(1, 2) for x in (query, key, value_BLHD)),
        mask=None,
        is_causal=False,
        scale=None,
        has_grouped_heads=False,
        key_lengths=key_lengths_B,
        axes=axes,
    )
    return merge_heads(out.swapaxes(1, 2), axes=axes)


def set_processors(transformer: Any) -> None:
    """Sets the attention processor of every block. Call it before the blocks become a scan."""
    for blocks in (transformer.noise_refiner, transformer.context_refiner, transformer.layers):
        for block in blocks:
            block.attention.set_processor(SingleStreamAttention())
