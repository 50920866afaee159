"""Lays a batch out for Z-Image's transformer: what diffusers' forward does with lists of rows of different lengths.

diffusers gives the module a list of captions, each as long as its prompt, fills each up to a multiple of 32 with a
learnt token, and puts the picture at the time after its last one. Rows that are shorter than the longest are masked at
their end. A compiled program has one length for all captions instead: first come a prompt's own tokens, then the learnt
one up to the next multiple of 32, and nobody sees the rest. The same is attended to, so the output is diffusers'.

How long a prompt is, its embeddings tell: where they are zeros there is no word (families/language_model.py).
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from pipelines.families.z_image.parts import FILLED, PATCH, fill_up
from pipelines.runtime.bridge.environment import call_jax

_EMBEDDER = f"{PATCH}-1"  # the name of the only patch size's layers: 2 x 2 latents of 1 frame

Tables = tuple[jax.Array, jax.Array]
"""Cosine and sine (B, L, D) of the rotary embedding, fp32; each angle twice, side by side."""


class Places(NamedTuple):
    """Where tokens stand, and which ones count; computed once for all steps.

    `is_word` (B, T) marks a caption's own tokens, `seen` (B,) counts those that are seen, learnt ones included;
    `is_filling` (N,) marks the picture's tokens that fill up. `picture` and `text` are the tables of both.
    """

    is_word: Any
    seen: Any
    is_filling: Any
    picture: Any
    text: Any


def find_places(prompt_embeds_BTD: jax.Array, config: Any, *, height: int, width: int) -> Places:
    """Places a picture of height x width tokens and captions of T token places, a multiple of 32."""
    rows, text, _ = prompt_embeds_BTD.shape
    assert text % FILLED == 0, "captions are filled up before"
    count = height * width
    tables = _make_tables(config)
    is_word = (prompt_embeds_BTD != 0).any(-1)
    seen = jnp.maximum(-(-is_word.sum(-1) // FILLED), 1) * FILLED
    row, column = np.indices((height, width)).reshape(2, count)
    empty = np.zeros(fill_up(count) - count, int)
    is_filling = np.arange(fill_up(count)) >= count
    time = jnp.where(is_filling, 0, seen[:, None] + 1)
    picture = (time, np.concatenate([row, empty]), np.concatenate([column, empty]))
    caption = (1 + np.arange(text), np.zeros(text, int), np.zeros(text, int))
    return Places(
        is_word=is_word,
        seen=seen,
        is_filling=jnp.asarray(is_filling),
        picture=_look_up(tables, picture, rows),
        text=_look_up(tables, caption, rows),
    )


def _make_tables(config: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns cosines and sines (places, D) of each axis, in the precision of diffusers' RopeEmbedder."""
    tables = []
    for features, length in zip(config.axes_dims, config.axes_lens, strict=True):
        frequencies = 1.0 / config.rope_theta ** (np.arange(0, features, 2, dtype=np.float64) / features)
        angles = np.outer(np.arange(length, dtype=np.float64), frequencies).astype(np.float32)
        tables.append((np.repeat(np.cos(angles), 2, axis=1), np.repeat(np.sin(angles), 2, axis=1)))
    return tables


def _look_up(tables: list[tuple[np.ndarray, np.ndarray]], places: tuple[Any, ...], rows: int) -> Tables:
    def look_up(kind: int) -> jax.Array:
        found = [jnp.asarray(table[kind])[place] for table, place in zip(tables, places, strict=True)]
        length = len(places[-1])
        return jnp.concatenate([jnp.broadcast_to(one, (rows, length, one.shape[-1])) for one in found], axis=-1)

    return look_up(0), look_up(1)


def fill_caption(prompt_embeds: Any) -> Any:
    """Adds zeros for captions (..., T, D) of a length that is no multiple of 32."""
    missing = fill_up(prompt_embeds.shape[-2]) - prompt_embeds.shape[-2]
    widths = [(0, 0)] * (prompt_embeds.ndim - 2) + [(0, missing), (0, 0)]
    return jnp.pad(prompt_embeds, widths) if missing else prompt_embeds


def pack(latents_BCHW: jax.Array) -> jax.Array:
    """Turns 2 x 2 latents into tokens, those that fill up included: (B, C, H, W) -> (B, N, 4 * C)."""
    batch, channels, height, width = latents_BCHW.shape
    patches = latents_BCHW.reshape(batch, channels, height // PATCH, PATCH, width // PATCH, PATCH)
    tokens = patches.transpose(0, 2, 4, 3, 5, 1).reshape(batch, -1, PATCH**2 * channels)
    missing = fill_up(tokens.shape[1]) - tokens.shape[1]
    return jnp.pad(tokens, ((0, 0), (0, missing), (0, 0))) if missing else tokens


def unpack(tokens_BNC: jax.Array, height: int, width: int) -> jax.Array:
    """Turns the picture's tokens, the first ones, back into latents: (B, N, 4 * C) -> (B, C, height, width)."""
    batch, _, features = tokens_BNC.shape
    rows, columns, channels = height // PATCH, width // PATCH, features // PATCH**2
    patches = tokens_BNC[:, : rows * columns].reshape(batch, rows, columns, PATCH, PATCH, channels)
    return patches.transpose(0, 5, 1, 3, 2, 4).reshape(batch, channels, height, width)


def refine_caption(transformer: Any, prompt_embeds: torch.Tensor, places: Places) -> torch.Tensor:
    """Embeds and refines captions (B, T, D), which are the same at every step."""
    caption = transformer.cap_embedder(prompt_embeds)
    caption = torch.where(places.is_word[..., None], caption, transformer.cap_pad_token)
    for block in transformer.context_refiner:
        caption = block(caption, places.seen, places.text)
    return caption


def predict(
    transformer: Any, tokens: torch.Tensor, timestep: torch.Tensor, caption: torch.Tensor, places: Places
) -> torch.Tensor:
    """Runs the transformer on a picture's tokens (B, N, 4 * C) and a refined caption; `timestep` (B,) is 1 at the end.

    Returns (B, N + T, 4 * C), the picture's tokens first.
    """
    modulation = transformer.t_embedder(timestep * transformer.t_scale).type_as(tokens)
    picture = transformer.all_x_embedder[_EMBEDDER](tokens)
    picture = torch.where(places.is_filling[None, :, None], transformer.x_pad_token, picture)
    for block in transformer.noise_refiner:
        picture = block(picture, None, places.picture, modulation)
    length = picture.shape[1]
    joined = torch.cat([picture, caption], dim=1)
    tables = tuple(torch.cat(pair, dim=1) for pair in zip(places.picture, places.text, strict=True))
    for block in transformer.layers:
        joined = block(joined, length + places.seen, tables, modulation)
    return transformer.all_final_layer[_EMBEDDER](joined, c=modulation)


def predict_alone(
    transformer: Any,
    tokens: torch.Tensor,
    timestep: torch.Tensor,
    prompt_embeds: torch.Tensor,
    *,
    height: int,
    width: int,
) -> torch.Tensor:
    """Runs `refine_caption` and `predict` on a picture of height x width tokens, for a call that is made once."""
    find: Any = functools.partial(find_places, config=transformer.config, height=height, width=width)
    places = call_jax(find, prompt_embeds)
    return predict(transformer, tokens, timestep, refine_caption(transformer, prompt_embeds, places), places)


def list_stacks() -> Mapping[str, tuple[str, ...]]:
    """Maps each list of blocks to what a block hands to the next."""
    return dict.fromkeys(("noise_refiner", "context_refiner", "layers"), ("x",))
