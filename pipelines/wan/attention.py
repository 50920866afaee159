"""Attention as Wan's transformer does it, for diffusers' own hook: `set_attn_processor`.

diffusers' processor rotates queries and keys by writing every other element of an empty tensor: traced, that is a
scatter, which costs a TPU some 600 ms a step at 720p and mixes fp32 tables into bf16. Here runtime/rotary.py does it.
And the text's length is told, not taken to be 512.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from pipelines.runtime.attention import attend_rotated
from pipelines.runtime.torch_bridge import call_jax, find_attention_axes


@dataclass(frozen=True, kw_only=True)
class RotaryAttention:
    """One processor for all blocks. Image tokens, if any, stand before the `text_length` tokens of the text."""

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
        query, key, value = attn.norm_q(attn.to_q(hidden_states)), attn.norm_k(attn.to_k(context)), attn.to_v(context)
        if rotary_emb is not None:
            attend = functools.partial(attend_rotated, heads=attn.heads, axes=find_attention_axes())
            out = call_jax(attend, query, key, value, *(table[0, :, 0] for table in rotary_emb))
            return attn.to_out[0](out)
        query, key, value = (x.unflatten(2, (attn.heads, -1)).transpose(1, 2) for x in (query, key, value))
        out = scaled_dot_product_attention(query, key, value)
        if image is not None:
            key, value = attn.norm_added_k(attn.add_k_proj(image)), attn.add_v_proj(image)
            key, value = (x.unflatten(2, (attn.heads, -1)).transpose(1, 2) for x in (key, value))
            out = out + scaled_dot_product_attention(query, key, value)
        return attn.to_out[0](out.transpose(1, 2).flatten(2))
