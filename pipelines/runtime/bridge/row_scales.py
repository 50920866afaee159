"""Linear layers whose weights are int8 with a scale for each output (runtime/weights/int8.py).

The weight is widened to the precision that the module computes in, which holds every int8 exactly, and the layer's
output is multiplied by the scales: one product for each output and not for each weight. The compiler makes both part of
the matmul, so that memory holds, and devices exchange, only the int8. A feed-forward of Wan 14B on a v6e-1 is estimated
at 17.2 ms for eight layers, with bf16 weights at 18.8, and with weights that are multiplied first at 20.7.

Where inputs are rounded, too, each token has a scale, its largest number over 127, found as the program runs, and
products are of int8 by int8 in int32, which v5e and v5p compute at twice the speed of bf16 (W8A8).
"""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from pipelines.runtime.devices.sharding import SCALE, STACK

LARGEST = 127  # symmetric: -128 is not used


@dataclass(frozen=True, kw_only=True)
class Rounded:
    """A traced weight (O, I): the int8, the same `widened`, and its `scale`, (O,)."""

    int8: jax.Array
    widened: jax.Array
    scale: jax.Array
    rounds_inputs: bool


@dataclass(frozen=True, kw_only=True)
class _Known:
    """The widened weights of a call, each by its identity, which stays its own as long as it is kept here."""

    rounds_inputs: bool
    weights: dict[int, Rounded] = field(default_factory=dict[int, Rounded])


_known: contextvars.ContextVar[_Known | None] = contextvars.ContextVar("row_scales", default=None)


@contextlib.contextmanager
def scales_known(*, rounds_inputs: bool = False) -> Iterator[None]:
    """Context in which linear layers find the scales of weights that `widen` returned."""
    token = _known.set(_Known(rounds_inputs=rounds_inputs))
    try:
        yield
    finally:
        _known.reset(token)


def widen(weights: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the weights without scales, those that had some widened to the scales' precision and not yet scaled."""
    known = _known.get()
    found: dict[str, jax.Array] = {}
    for name, weight in weights.items():
        if name.endswith(SCALE):
            continue
        found[name] = weight
        if (scale := weights.get(name + SCALE)) is not None:
            assert known is not None, "somebody must multiply by the scales"
            found[name] = widened = weight.astype(scale.dtype)
            known.weights[id(widened)] = Rounded(
                int8=weight, widened=widened, scale=scale[:, 0], rounds_inputs=known.rounds_inputs
            )
    return found


def find_rounded(weight: jax.Array) -> Rounded | None:
    """Finds what is known of a linear layer's weight that was rounded; None for one in full."""
    known = _known.get()
    return known.weights.get(id(weight)) if known else None


def multiply_in_int8(input: jax.Array, weight: Rounded) -> jax.Array:
    """Returns the products (..., O) of an input (..., I), each token of it rounded, in the input's precision."""
    exact = input.astype(jnp.float32)
    step = jnp.abs(exact).max(-1, keepdims=True) / LARGEST
    step = jnp.where(step == 0, 1.0, step)  # a token of zeros
    rounded = jnp.round(exact / step).astype(jnp.int8)
    product = jnp.einsum("...i,oi->...o", rounded, weight.int8, preferred_element_type=jnp.int32)
    return (product.astype(jnp.float32) * step * weight.scale.astype(jnp.float32)).astype(input.dtype)


def part_stacks(weights: Mapping[str, jax.Array]) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Widens all but stacks of layers; returns the weights, and the stacks' scales, which a scan takes apart."""
    scales = {name: value for name, value in weights.items() if name.endswith(SCALE) and STACK in name}
    return widen({name: value for name, value in weights.items() if name not in scales}), scales
