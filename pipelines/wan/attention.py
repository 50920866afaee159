"""Attention as Wan's transformer does it, for diffusers' own hook: `set_attn_processor`.

diffusers' processor rotates queries and keys by writing every other element of an empty tensor: traced, that is a
scatter, which costs a TPU some 600 ms a step at 720p and mixes fp32 tables into bf16. Here pairs are rotated in fp32
and put side by side again. And the text's length is told, not taken to be 512.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional


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
        query, key = attn.norm_q(attn.to_q(hidden_states)), attn.norm_k(attn.to_k(context))
        query, key, value = (_split_heads(x, attn.heads) for x in (query, key, attn.to_v(context)))
        if rotary_emb is not None:
            query, key = (_rotate(x, *rotary_emb) for x in (query, key))
        out = functional.scaled_dot_product_attention(query, key, value)
        if image is not None:
            key, value = attn.norm_added_k(attn.add_k_proj(image)), attn.add_v_proj(image)
            key, value = (_split_heads(x, attn.heads) for x in (key, value))
            out = out + functional.scaled_dot_product_attention(query, key, value)
        return attn.to_out[0](out.transpose(1, 2).flatten(2))


def _split_heads(x_BLD: torch.Tensor, heads: int) -> torch.Tensor:
    """(B, heads, L, D / heads)."""
    return x_BLD.unflatten(2, (heads, -1)).transpose(1, 2)


def _rotate(x_BHLD: torch.Tensor, cos_BLHD: torch.Tensor, sin_BLHD: torch.Tensor) -> torch.Tensor:
    """Turns each pair of neighbours (2i, 2i + 1) by its angle; the tables hold every angle twice."""
    cos, sin = (table.transpose(1, 2)[..., ::2] for table in (cos_BLHD, sin_BLHD))
    even, odd = x_BHLD.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).to(x_BHLD.dtype)
