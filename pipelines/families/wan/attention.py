"""Attention as Wan's transformer does it, for diffusers' own hook: `set_attn_processor`.

diffusers' processor rotates queries and keys by writing every other element of an empty tensor: traced, that is a
scatter, which costs a TPU some 600 ms a step at 720p and mixes fp32 tables into bf16. Here the rotation is fused with
the norms of queries and keys, which read them anyway (runtime/kernels/attention.py). The text's length is an argument
rather than a fixed 512.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch

from pipelines.runtime.bridge.environment import call_jax, find_attention_axes
from pipelines.runtime.kernels.attention import attend_rotated, attend_text


@dataclass(frozen=True, kw_only=True)
class RotaryAttention:
    """An attention processor for all blocks. Image tokens, if any, come before the `text_length` text tokens."""

    text_length: int

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        rotary_emb: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> torch.Tensor:
        assert attention_mask is None, "Wan attends to everything"
        context = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        image = None
        if attn.added_kv_proj_dim is not None:
            image, context = context[:, : -self.text_length], context[:, -self.text_length :]
        query, key, value = attn.to_q(hidden_states), attn.to_k(context), attn.to_v(context)
        options = {"heads": attn.heads, "eps": attn.norm_q.eps, "axes": find_attention_axes()}
        if rotary_emb is not None:
            tables = (table[0, :, 0] for table in rotary_emb)
            weights = (attn.norm_q.weight, attn.norm_k.weight)
            return attn.to_out[0](
                call_jax(functools.partial(attend_rotated, **options), query, key, value, *tables, *weights)
            )
        attend = functools.partial(attend_text, **options)
        out = call_jax(attend, query, attn.norm_k(key), value, attn.norm_q.weight)
        if image is not None:
            key, value = attn.norm_added_k(attn.add_k_proj(image)), attn.add_v_proj(image)
            out = out + call_jax(attend, query, key, value, attn.norm_q.weight)
        return attn.to_out[0](out)
