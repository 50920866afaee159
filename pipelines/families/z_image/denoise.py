"""The denoising loop as one compiled program with run-time bounds.

A chunk runs steps `start` to `stop` of a schedule table through runtime/sampling/loop.py. The caption is refined once
for all of them. The transformer counts time from the noise on and predicts the way to the picture, where schedulers
count from the picture on and take the way to the noise.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from diffusers.pipelines.z_image.pipeline_z_image import calculate_shift
from jax.sharding import NamedSharding

from pipelines.families.z_image import tokens
from pipelines.families.z_image.parts import PATCH
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.sampling.loop import Cache, run_loop
from pipelines.runtime.sampling.schedules import Schedule, build_schedule
from pipelines.runtime.sampling.solver import State


def build_denoise_program(
    transformer: TracedModule,
    *,
    uses_cfg: bool,
    dtype: Any,
    input_sharding: NamedSharding,
    token_sharding: NamedSharding,
    attention: AttentionAxes,
    cache: Cache | None = None,
) -> Any:
    """Builds denoise(weights, state, prompt_embeds, table, guidance_scale, start, stop) -> state.

    With a step `cache` it takes what that keeps and `reuse` as well (`loop.KeepingLoop`), and returns (state, kept).

    The state's arrays are (B, C, H, W) fp32; `prompt_embeds` (rows, T, D) are [negative..., positive...] with guidance,
    else only positive, zeros after each one's words. The shardings are `input_sharding` for the transformer's batch,
    `token_sharding` for the tokens (rows, N, D) between its blocks, `attention` for queries, keys and values.
    """
    config = transformer.module.config
    constrained = {
        f"{stack}.{name}": token_sharding
        for stack in tokens.list_stacks()
        for name, _ in transformer.module.get_submodule(stack).named_children()
    }

    def denoise(  # noqa: PLR0917 - a compiled program takes its arrays by position
        weights: Mapping[str, jax.Array],
        state: State,
        prompt_embeds_BTD: jax.Array,
        table: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
        kept: jax.Array | None = None,
        reuse: jax.Array | None = None,
    ) -> Any:
        rows = len(prompt_embeds_BTD)
        _, _, height, width = state.latents.shape
        embeddings = tokens.fill_caption(prompt_embeds_BTD.astype(dtype))
        places = tokens.find_places(embeddings, config, height=height // PATCH, width=width // PATCH)

        def call(method: Callable[..., Any], *args: Any) -> Any:
            return transformer.call(weights, *args, method=method, input_shardings=constrained, attention=attention)

        caption = call(tokens.refine_caption, embeddings, places)

        def predict(model_input: jax.Array, timestep: jax.Array) -> jax.Array:
            picture = tokens.pack(model_input.astype(dtype))
            time = jnp.full(rows, 1 - timestep / 1000)
            output = call(tokens.predict, picture, time, caption, places)
            return -tokens.unpack(output.astype(jnp.float32), height, width)

        return run_loop(
            predict, state, kept,
            cache=cache, uses_cfg=uses_cfg, input_sharding=input_sharding,
            table=table, reuse=reuse, guidance_scale=guidance_scale, start=start, stop=stop,
        )  # fmt: skip

    return denoise


def choose_steps(
    name: str,
    config: Mapping[str, Any],
    *,
    steps: int,
    count: int,
    last_steps: int | None = None,
    flow_shift: float | None = None,
    levels: Sequence[float] = (),
) -> Schedule:
    """Builds the schedule for a picture of `count` tokens, which counts only where a checkpoint's scheduler says so."""
    return build_schedule(
        name,
        config,
        steps=steps,
        last_steps=last_steps,
        flow_shift=flow_shift,
        sigmas=np.linspace(1.0, 1 / steps, steps).tolist(),
        mu=find_mu(config, count),
        levels=levels,
    )


def find_mu(config: Mapping[str, Any], count: int) -> float:
    """Returns diffusers' `mu` for a picture of `count` tokens."""
    return calculate_shift(
        count,
        config.get("base_image_seq_len", 256),
        config.get("max_image_seq_len", 4096),
        config.get("base_shift", 0.5),
        config.get("max_shift", 1.15),
    )
