"""Has XLA write what goes into several products of a training's step on a TPU, in place of computing it in each.

A block's norm, shifted and scaled, goes into the products of queries, keys, values and gates, and what these gates make
into the product behind them. XLA takes it into each of them and computes it again for each of their tiles: klein's
largest take 403 and 744 us on v6e so, and 316 and 328 from memory. Of dev's layers the gates, and single-stream layers'
norms, are left to it: a v6e-8 has too little room (plan/TRIED.md).
"""

from typing import Any

import jax
import torch
from diffusers.models.transformers.transformer_flux2 import (
    Flux2Attention,
    Flux2FeedForward,
    Flux2ParallelSelfAttention,
    Flux2SwiGLU,
)

from pipelines.runtime.bridge.environment import call_jax, find_attention_axes

_TOKENS = ("hidden_states", "encoder_hidden_states")
_MOST_FEATURES = 4096  # of a token; dev's has 6144


def write_once(transformer: Any) -> None:
    """Chooses the modules whose inputs or outputs are written; what goes back through them is not.

    A single-stream layer's gates are its processor's (attention.py).
    """
    has_room = writes_all(transformer)
    kinds = Flux2Attention, Flux2FeedForward, *((Flux2ParallelSelfAttention,) if has_room else ())
    for module in transformer.modules():
        if isinstance(module, kinds):
            module.register_forward_pre_hook(_write_inputs, with_kwargs=True)
        if isinstance(module, Flux2SwiGLU) and has_room:
            module.register_forward_hook(lambda _module, _args, output: write(output))


def writes_all(module: Any) -> bool:
    """Tells whether there is room to write what goes into single-stream layers, and what gates make.

    The module is a transformer, or one of its attentions.
    """
    return module.inner_dim <= _MOST_FEATURES


def write(x: torch.Tensor) -> torch.Tensor:
    """Has this array written, where a gradient is wanted on a TPU."""
    axes = find_attention_axes()
    if axes is None or not axes.learns or not axes.takes_kernels:
        return x
    return call_jax(_keep_apart, x)


def _write_inputs(
    _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    named = {name: write(value) for name, value in kwargs.items() if name in _TOKENS}
    return tuple(map(write, args)), kwargs | named


@jax.custom_vjp
def _keep_apart(x: jax.Array) -> jax.Array:
    return jax.lax.optimization_barrier(x)


_keep_apart.defvjp(lambda x: (jax.lax.optimization_barrier(x), None), lambda _kept, gradient: (gradient,))
