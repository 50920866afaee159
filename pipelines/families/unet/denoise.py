"""The denoising loop as one compiled program with run-time bounds.

A chunk runs steps `start` to `stop` of a schedule table through runtime/sampling/loop.py, so the host only counts
chunks. With guidance the `dp` axis carries the [negative, positive] halves of the batch; at a scale of 1 or less a
second program runs a single forward.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.convolution import PictureAxes
from pipelines.runtime.sampling.loop import Cache, run_loop
from pipelines.runtime.sampling.solver import State

TEXT_PROJECTION = re.compile(r"\.attn2\.to_[kv]\.weight$")


def build_denoise_program(
    unet: TracedModule,
    *,
    read_conditions: Callable[[Mapping[str, jax.Array], Any], dict[str, Any]],
    uses_cfg: bool,
    dtype: Any,
    input_sharding: NamedSharding,
    attention: AttentionAxes,
    cache: Cache | None = None,
) -> Any:
    """Builds denoise(weights, state, embeddings, table, noise, guidance_scale, start, stop) -> state.

    The state's arrays are (B, C, H, W) fp32; `embeddings` rows are [negative..., positive...] with guidance, else only
    positive, and `read_conditions` makes the UNet's further arguments of them, in `dtype`. `noise`
    (MAX_CHUNK, B, C, H, W) is for this chunk's steps, from `start` on. `input_sharding` is the sharding of the UNet's
    batch, `attention` that of its queries, keys and values.

    With a step `cache` it takes what that keeps and `reuse` as well (`loop.KeepingLoop`), and returns (state, kept).
    """

    pictures = PictureAxes.of_pictures(input_sharding)

    def denoise(  # noqa: PLR0917 - a compiled program takes its arrays by position
        weights: Mapping[str, jax.Array],
        state: State,
        embeddings: Mapping[str, jax.Array],
        table: jax.Array,
        noise_SBCHW: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
        kept: jax.Array | None = None,
        reuse: jax.Array | None = None,
    ) -> Any:
        text = embeddings["prompt_embeds"].astype(dtype)
        weights = _project_text(weights, text)

        def predict(model_input: jax.Array, timestep: jax.Array) -> jax.Array:
            (output,) = unet.call(
                weights,
                model_input.astype(dtype),
                timestep,
                encoder_hidden_states=text,
                **read_conditions(embeddings, dtype),
                return_dict=False,
                attention=attention,
                pictures=pictures,
            )
            return output

        return run_loop(
            predict, state, kept,
            cache=cache, uses_cfg=uses_cfg, input_sharding=input_sharding,
            table=table, reuse=reuse, guidance_scale=guidance_scale, start=start, stop=stop, noise=noise_SBCHW,
        )  # fmt: skip

    return denoise


def _project_text(weights: Mapping[str, jax.Array], text_BLC: jax.Array) -> dict[str, jax.Array]:
    """Replaces the text's key and value projections by their results, which are the same at every step."""
    return {
        name: jnp.einsum("bli,...oi->...blo", text_BLC, weight) if TEXT_PROJECTION.search(name) else weight
        for name, weight in weights.items()
    }
