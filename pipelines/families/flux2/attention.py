"""Attention as FLUX.2's blocks do it, for diffusers' own hook: a block's `processor`.

These do what diffusers' processors do, except for the rotary embedding (runtime/kernels/rotary.py): splitting and
re-stacking the pairs, as diffusers does, costs a TPU an eighth of a step. The number of heads is taken from the
projections' output, since a device may have only some of the heads.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import torch
from torch.nn import functional

from pipelines.families.flux2.tokens import order_tables
from pipelines.families.flux2.written import write, writes_all
from pipelines.runtime.bridge.environment import call_jax, find_attention_axes
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.head_norm import norm_heads, norms_by_kernel
from pipelines.runtime.kernels.heads import merge_heads, split_heads
from pipelines.runtime.kernels.rotary import rotate_pairs

Tables = tuple[torch.Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class JointAttention:
    """Attention of a double-stream block: the text's tokens come before the picture's."""

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        image_rotary_emb: Tables | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert attention_mask is None, "FLUX.2 attends to everything"
        text = [layer(encoder_hidden_states) for layer in (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)]
        picture = [layer(hidden_states) for layer in (attn.to_q, attn.to_k, attn.to_v)]
        text_length = encoder_hidden_states.shape[1]
        axes = find_attention_axes()
        if image_rotary_emb is not None and norms_by_kernel(axes, attn.head_dim):
            norms = ((attn.norm_added_q, attn.norm_added_k), (attn.norm_q, attn.norm_k))
            out = _attend_learning((text, picture), norms, image_rotary_emb, axes)
            return attn.to_out[0](out[:, text_length:]), attn.to_add_out(out[:, :text_length])
        text, picture = ([_split_heads(x, attn.head_dim) for x in own] for own in (text, picture))
        query = torch.cat([attn.norm_added_q(text[0]), attn.norm_q(picture[0])], dim=1)
        key = torch.cat([attn.norm_added_k(text[1]), attn.norm_k(picture[1])], dim=1)
        out = _attend(query, key, torch.cat([text[2], picture[2]], dim=1), image_rotary_emb)
        return attn.to_out[0](out[:, text_length:]), attn.to_add_out(out[:, :text_length])


@dataclass(frozen=True, kw_only=True)
class ParallelAttention:
    """Attention of a single-stream block, whose feed-forward shares its projections with the attention."""

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        image_rotary_emb: Tables | None = None,
    ) -> torch.Tensor:
        assert attention_mask is None, "FLUX.2 attends to everything"
        projected = attn.to_qkv_mlp_proj(hidden_states)
        whole = 3 * attn.inner_dim + attn.mlp_hidden_dim * attn.mlp_mult_factor
        own_width = projected.shape[-1] * attn.inner_dim // whole
        gates_width = projected.shape[-1] - 3 * own_width
        axes = find_attention_axes()
        learns = axes is not None and axes.learns
        gates_widths = [gates_width // 2] * 2 if learns else [gates_width]
        query, key, value, *gates = _split(projected, [own_width] * 3 + gates_widths)
        if image_rotary_emb is not None and norms_by_kernel(axes, attn.head_dim):
            out = _attend_learning(((query, key, value),), ((attn.norm_q, attn.norm_k),), image_rotary_emb, axes)
        else:
            query, key, value = (_split_heads(x, attn.head_dim) for x in (query, key, value))
            tables = image_rotary_emb and order_tables(*image_rotary_emb)
            out = _attend(attn.norm_q(query), attn.norm_k(key), value, tables)
        # What mlp_act_fn does, without its slices: their gradients would be padded and added.
        gated = attn.mlp_act_fn.gate_fn(gates[0]) * gates[1] if learns else attn.mlp_act_fn(gates[0])
        gated = write(gated) if writes_all(attn) else gated
        return attn.to_out(torch.cat([out, gated], dim=-1))


def set_processors(transformer: Any) -> None:
    """Sets the attention processor of every block. Call it before the blocks become a scan."""
    for block in transformer.transformer_blocks:
        block.attn.set_processor(JointAttention())
    for block in transformer.single_transformer_blocks:
        block.attn.set_processor(ParallelAttention())


def _split(x: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
    """Splits features so that their gradients are put side by side, and not each padded and added to the others."""
    split: Any = lambda x: jax.lax.split(x, sizes, axis=x.ndim - 1)  # noqa: E731
    return call_jax(split, x)


def _attend_learning(
    streams: Sequence[Sequence[torch.Tensor]], norms: Sequence[tuple[Any, Any]], tables: Tables, axes: AttentionAxes
) -> torch.Tensor:
    """Attends as `_attend` does, where queries and keys are normed by a kernel (runtime/kernels/head_norm.py).

    Each stream has tokens of its own, queries, keys and values (B, L, H * D), and two norms.
    """
    found, start = [], 0
    for (query, key, value), own_norms in zip(streams, norms, strict=True):
        stop = start + query.shape[1]
        own = [table[..., start:stop, :] for table in tables]
        normed = [
            call_jax(functools.partial(norm_heads, eps=norm.eps, axes=axes), x, norm.weight, *own)
            for x, norm in zip((query, key), own_norms, strict=True)
        ]
        found.append([*normed, _split_heads(value, norms[0][0].weight.shape[0])])
        start = stop
    query, key, value = (torch.cat(own, dim=1) if len(own) > 1 else own[0] for own in zip(*found, strict=True))
    return _attend(query, key, value, None)


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, tables: Tables | None) -> torch.Tensor:
    """Attends: query, key and value (B, L, H, D) -> (B, L, H * D), after the rotary embedding."""
    if tables is not None:
        query, key = (call_jax(rotate_pairs, x, *tables) for x in (query, key))
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    out = functional.scaled_dot_product_attention(query, key, value)
    return call_jax(functools.partial(merge_heads, axes=find_attention_axes()), out.transpose(1, 2))


def _split_heads(x: torch.Tensor, width: int) -> torch.Tensor:
    split = functools.partial(split_heads, heads=x.shape[-1] // width, axes=find_attention_axes())
    return call_jax(split, x)
