"""What a step may take from earlier ones: MagCache (Ma et al. 2025), and TaylorSeer (Liu et al. 2025) in lite mode.

A transformer adds to its tokens, layer by layer. From one step to the next the sum of what all layers add hardly
changes, so a step may add the last computed sum and run no layer at all: only the projections into the layers and out
of them are left. Which steps do is known before the first (recipes/step_cache.py), and a run-time input: one program
serves every choice. The predicate is the same on all devices, so they branch alike, collectives and all.

From one step to the next the output itself changes steadily: TaylorSeer extrapolates it from the last two that were
computed, and the denoiser is not run at all. That keeps two arrays of the latents' size, and knows nothing of layers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


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


def foresee_or_compute(
    step: jax.Array, outlook: jax.Array, compute: Callable[[], jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Returns the denoiser's output (rows, ...) fp32 and the outlook from now on: extrapolated, or of `compute()`.

    `outlook` (2, rows, ...) fp32 is the last computed output and its change a step. `step` (2,) fp32 says how many
    steps after that this one is, 0 where it is computed, and by what a computed step's difference from it becomes a
    change a step: 0 for an expert's first.
    """
    ahead, share = step[0], step[1]

    def run() -> tuple[jax.Array, jax.Array]:
        output = compute().astype(jnp.float32)
        return output, jnp.stack([output, share * (output - outlook[0])])

    return jax.lax.cond(ahead > 0, lambda: (outlook[0] + ahead * outlook[1], outlook), run)
