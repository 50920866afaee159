"""What a step may take from an earlier one: the residual of all of the denoiser's layers (MagCache, Ma et al. 2025).

A transformer adds to its tokens, layer by layer. From one step to the next the sum of what all layers add hardly
changes, so a step may add the last computed sum and run no layer at all: only the projections into the layers and out
of them are left. Which steps do is known before the first (recipes/step_cache.py), and a run-time input: one program
serves every choice. The predicate is the same on all devices, so they branch alike, collectives and all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Reuse(NamedTuple):
    """`is_on` is a bool scalar: whether this step reuses `residual` (rows, tokens, width), the last computed one.

    The fields are arrays; where a program is described, what stands for them.
    """

    is_on: Any
    residual: Any


def add_or_compute(
    reuse: Reuse, tokens_BLD: jax.Array, compute: Callable[[], jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Returns the tokens after all layers and the residual from now on: reused, or as `compute()` finds it."""

    def run() -> tuple[jax.Array, jax.Array]:
        after = compute()
        return after, after - tokens_BLD

    return jax.lax.cond(reuse.is_on, lambda: (tokens_BLD + reuse.residual, reuse.residual), run)
