"""GELU (Hendrycks and Gimpel 2016): for bf16 errors below its rounding, and less to compute than by erfc.

`jax.nn.gelu` goes by erfc, which XLA computes in two ways of which it takes one, of an argument that was rounded to
bf16; that errs by up to 5 % far below zero. A feed-forward of SDXL's (1024 tokens of 1280 features) is estimated at
104 us on v6e so and at 66 us with this, with its gradient at 193 and 139 us; with a mere square in its place at 56 and
113 us.
"""

import math

import jax
import jax.numpy as jnp

ODD = (1.5926074, 7.5828011e-2, -9.86728e-4, 9.03284e-6)
"""x (c0 + c1 x^2 + c2 x^4 + c3 x^6) is the logarithm of Phi(x) / Phi(-x), where Phi is the normal distribution, to
0.0013 for |x| up to 5: fitted to the least largest error there. So is the relative error of Phi(x) as its sigmoid; a
number in bf16 is rounded by up to 0.0039."""
FURTHEST = 5.0


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
    """Returns x Phi(x) of an array in bf16."""
    wide = x.astype(jnp.float32)
    return (wide * _find_phi(wide)).astype(x.dtype)


def _find_phi(x: jax.Array) -> jax.Array:
    squared = jnp.minimum(x * x, FURTHEST**2)
    odd = ODD[3]
    for coefficient in ODD[2::-1]:
        odd = odd * squared + coefficient
    return jax.lax.logistic(x * odd)


def _keep(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return gelu(x), x


def _pull_back(x: jax.Array, out: jax.Array) -> tuple[jax.Array]:
    """The derivative is rounded before it is multiplied by, so that what comes back is never in fp32."""
    wide = x.astype(jnp.float32)
    density = jnp.exp(-0.5 * wide * wide) / math.sqrt(2 * math.pi)
    return (out * (_find_phi(wide) + wide * density).astype(x.dtype),)


gelu.defvjp(_keep, _pull_back)


def gelu_exactly(x: jax.Array) -> jax.Array:
    """Returns x Phi(x) by erf, as PyTorch does: XLA computes that in one way, where erfc takes two."""
    return 0.5 * x * (1.0 + jax.lax.erf(x * math.sqrt(0.5)))
