"""Rectified flow (Liu et al. 2022; Esser et al. 2024), the training objective of FLUX.2 and Wan."""

import jax
import jax.numpy as jnp
import numpy as np

BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))


def draw_evenly(key: jax.Array, rows: int) -> jax.Array:
    """Draws (rows,) stratified numbers in [0, 1), one in each of `rows` equal parts: a batch covers the whole range.

    They come in any order, since rows that fill a short batch are its last: what is learnt would else see only the
    beginning of the range.
    """
    even_key, order_key = jax.random.split(key)
    even = (jnp.arange(rows) + jax.random.uniform(even_key, (rows,))) / rows
    return jax.random.permutation(order_key, jnp.minimum(even, BELOW_ONE))  # of many rows the last one rounds up to 1


def add_noise(latents: jax.Array, key: jax.Array, *, shift: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns (1 - sigma) latents + sigma noise, the training target (noise - latents), and the sigmas (B,).

    `shift` moves uniform sigmas towards the noise, as the schedulers do: with 3, half of them are above 3/4.
    """
    time_key, noise_key = jax.random.split(key)
    even = draw_evenly(time_key, len(latents))
    sigmas = shift * even / (1 + (shift - 1) * even)
    noise = jax.random.normal(noise_key, latents.shape, latents.dtype)
    weights = sigmas.reshape(-1, *(1,) * (latents.ndim - 1))
    return (1 - weights) * latents + weights * noise, noise - latents, sigmas
