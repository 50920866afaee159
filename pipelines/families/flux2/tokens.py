"""Tokens split over `tp` between attention and feed-forward (sequence parallelism: Korthikanti et al. 2022).

Inside attention and feed-forward a device has all tokens and some of the heads and gates. A reduce-scatter then leaves
each device the sums of its own tokens only, so norms, modulation and residuals are not repeated on every device. It
sends the same bytes as an all-reduce: half in the reduce-scatter, half in the all-gather before the next branch.

A device has its part of the text's tokens and its part of the picture's. In single-stream blocks these are
concatenated, so the gathered tokens alternate between text and picture; the rotary tables are put into that order.
"""

import contextlib
import contextvars
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import torch

from pipelines.runtime.bridge.environment import call_jax
from pipelines.runtime.bridge.modules import TracedModule

AXIS = "tp"
_BRANCHES = r"^(single_)?transformer_blocks\.\w+\.(attn|ff|ff_context)$"

_text_tokens: contextvars.ContextVar[int | None] = contextvars.ContextVar("text_tokens", default=None)


@contextlib.contextmanager
def split_tokens(text_tokens: int | None) -> Iterator[None]:
    """Splits tokens over `tp` within the context; the first `text_tokens` are the text's. None splits nothing."""
    token = _text_tokens.set(text_tokens)
    try:
        yield
    finally:
        _text_tokens.reset(token)


def gather_for_branches(transformer: TracedModule) -> None:
    """Gathers split tokens before attention and feed-forward, so that these see all of them."""
    transformer.call_before(_BRANCHES, _gather)


def sum_own(output_BLC: jax.Array) -> jax.Array:
    """Sums over the devices; if tokens are split, each device gets the sums of its own tokens only."""
    if _text_tokens.get() is None:
        return jax.lax.psum(output_BLC, AXIS)
    # Along any other axis, or with several rows, XLA for TPU does an all-reduce and slices the result.
    batch, length, channels = output_BLC.shape
    parts = jax.lax.axis_size(AXIS)
    summed = output_BLC.swapaxes(0, 1).reshape(parts, length * batch // parts, channels)
    summed = jax.lax.psum_scatter(summed, AXIS, scatter_dimension=0)
    return summed.reshape(-1, batch, channels).swapaxes(0, 1)


def order_tables(*tables: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Reorders rotary tables (L, D) of text and picture to match the gathered tokens of a single-stream block."""
    text = _text_tokens.get()
    if text is None:
        return tables

    def order(table: jax.Array) -> jax.Array:
        parts = jax.lax.axis_size(AXIS)
        own = [one.reshape(parts, -1, table.shape[-1]) for one in (table[:text], table[text:])]
        return jnp.concatenate(own, 1).reshape(table.shape)

    return tuple(call_jax(order, table) for table in tables)


def _gather(x_BLC: jax.Array) -> jax.Array:
    return x_BLC if _text_tokens.get() is None else jax.lax.all_gather(x_BLC, AXIS, axis=1, tiled=True)
