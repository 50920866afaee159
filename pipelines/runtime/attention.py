"""Scaled dot-product attention, as each backend runs it best.

Here: plain XLA with the softmax in fp32, exact and good enough for the sequence lengths of the demo models and of SDXL.
Not here yet: a Pallas flash kernel for long sequences on TPU.
"""

import jax
import jax.numpy as jnp


def attend(
    query_BHLD: jax.Array,
    key_BHLD: jax.Array,
    value_BHLD: jax.Array,
    *,
    mask: jax.Array | None,
    is_causal: bool,
    scale: float | None,
    has_grouped_heads: bool,
) -> jax.Array:
    """softmax(q k^T * scale + mask) v. `mask` is boolean (True attends) or added to the logits.

    Shapes are PyTorch's: (batch, heads, length, head_dim); `scale` defaults to head_dim ** -0.5. With
    `has_grouped_heads`, key and value have fewer heads, each shared by a run of query heads.
    """
    if has_grouped_heads:
        repeats = query_BHLD.shape[-3] // key_BHLD.shape[-3]
        key_BHLD, value_BHLD = (jnp.repeat(x, repeats, axis=-3) for x in (key_BHLD, value_BHLD))
    factor = query_BHLD.shape[-1] ** -0.5 if scale is None else scale
    logits = jnp.einsum("...qd,...kd->...qk", query_BHLD, key_BHLD, preferred_element_type=jnp.float32) * factor
    if is_causal:
        allowed = jnp.tril(jnp.ones(logits.shape[-2:], bool))
        logits = jnp.where(allowed, logits, -jnp.inf)
    if mask is not None:
        logits = jnp.where(mask, logits, -jnp.inf) if mask.dtype == jnp.bool_ else logits + mask.astype(jnp.float32)
    weights = jax.nn.softmax(logits, axis=-1)
    if mask is not None and mask.dtype == jnp.bool_:
        weights = jnp.where(mask, weights, 0)  # a query that may attend to nothing gives zeros, as in PyTorch
    weights = weights.astype(value_BHLD.dtype)
    return jnp.einsum("...qk,...kd->...qd", weights, value_BHLD)
