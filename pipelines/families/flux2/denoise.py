"""The denoising loop as one compiled program with run-time bounds.

A chunk runs steps `start` to `stop` of a schedule table through runtime/sampling/loop.py, so the host only counts
chunks. The state is (B, C, H, W) in fp32; the transformer sees it as H * W tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from diffusers.pipelines.flux2.pipeline_flux2 import compute_empirical_mu
from jax.sharding import Mesh, NamedSharding

from pipelines.families.flux2.references import TIME_STEP
from pipelines.families.flux2.sharding import call_transformer
from pipelines.families.flux2.variants import Guidance
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.sampling.loop import Cache, run_loop
from pipelines.runtime.sampling.reuse import Reuse
from pipelines.runtime.sampling.schedules import Schedule, build_schedule
from pipelines.runtime.sampling.solver import State


def build_denoise_program(
    transformer: TracedModule,
    *,
    guidance: Guidance,
    uses_cfg: bool,
    dtype: Any,
    mesh: Mesh,
    input_sharding: NamedSharding,
    cache: Cache | None = None,
) -> Any:
    """Builds denoise(weights, state, prompt_embeds, references, table, guidance_scale, start, stop) -> state.

    With a step `cache` it takes what that keeps and `reuse` as well (`loop.KeepingLoop`), and returns (state, kept).

    The state's arrays are (B, C, H, W) fp32; `prompt_embeds` (rows, L, D) are [negative..., positive...] with
    `uses_cfg`, else only positive; `references` (N, C, h, w), or None, are appended to every row. `input_sharding` is
    the sharding of the transformer's batch before packing.
    """

    def denoise(  # noqa: PLR0917 - a compiled program takes its arrays by position
        weights: Mapping[str, jax.Array],
        state: State,
        prompt_embeds: jax.Array,
        references_NCHW: jax.Array | None,
        table: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
        kept: jax.Array | None = None,
        reuse: jax.Array | None = None,
    ) -> Any:
        rows, text_length, _ = prompt_embeds.shape
        _, _, height, width = state.latents.shape
        image_ids = make_image_ids(height, width)
        extra_tokens = None
        if references_NCHW is not None:
            image_ids = np.concatenate([image_ids, make_reference_ids(references_NCHW.shape)])
            extra_tokens = jnp.repeat(pack(references_NCHW).reshape(1, -1, references_NCHW.shape[1]), rows, axis=0)

        def ask(model_input: jax.Array, timestep: jax.Array, reuse: Reuse | None) -> tuple[jax.Array, Any]:
            tokens = pack(model_input)
            if extra_tokens is not None:
                tokens = jnp.concatenate([tokens, extra_tokens], axis=1)
            output, residual = call_transformer(
                transformer,
                weights,
                mesh=mesh,
                reuse=reuse,
                hidden_states=tokens.astype(dtype),
                encoder_hidden_states=prompt_embeds,
                timestep=jnp.full(rows, timestep / 1000),
                img_ids=image_ids,
                txt_ids=make_text_ids(text_length),
                guidance=jnp.full(rows, guidance_scale) if guidance is Guidance.EMBEDDED else None,
            )
            return unpack(output[:, : height * width].astype(jnp.float32), height, width), residual

        return run_loop(
            lambda rows, timestep: ask(rows, timestep, None)[0], state, kept,
            cache=cache, predict_reusing=ask, uses_cfg=uses_cfg, input_sharding=input_sharding,
            table=table, reuse=reuse, guidance_scale=guidance_scale, start=start, stop=stop,
        )  # fmt: skip

    return denoise


def choose_steps(
    name: str, config: Mapping[str, Any], *, steps: int, tokens: int, levels: Sequence[float] = ()
) -> Schedule:
    """Builds the schedule for a number of image tokens: more tokens mean more steps at high noise (diffusers' mu)."""
    return build_schedule(
        name,
        config,
        steps=steps,
        sigmas=np.linspace(1.0, 1 / steps, steps).tolist(),
        mu=compute_empirical_mu(image_seq_len=tokens, num_steps=steps),
        levels=levels,
    )


def pack(latents_BCHW: jax.Array) -> jax.Array:
    """Turns latents into tokens: (B, C, H, W) -> (B, H * W, C)."""
    batch, channels, height, width = latents_BCHW.shape
    return latents_BCHW.reshape(batch, channels, height * width).transpose(0, 2, 1)


def unpack(tokens_BLC: jax.Array, height: int, width: int) -> jax.Array:
    """Turns tokens into latents: (B, H * W, C) -> (B, C, H, W)."""
    batch, _, channels = tokens_BLC.shape
    return tokens_BLC.transpose(0, 2, 1).reshape(batch, channels, height, width)


def make_image_ids(height: int, width: int, *, time: int = 0) -> np.ndarray:
    """Returns position ids of a picture's tokens (H * W, 4): time, row, column, and 0 for the text's position."""
    rows, columns = np.indices((height, width)).reshape(2, -1)
    return np.stack([np.full_like(rows, time), rows, columns, np.zeros_like(rows)], axis=1).astype(np.int32)


def make_reference_ids(shape: Sequence[int]) -> np.ndarray:
    """Returns position ids of the tokens of references (N, C, H, W), one after the other, each at a time of its own."""
    count, _, height, width = shape
    return np.concatenate([make_image_ids(height, width, time=TIME_STEP * (1 + index)) for index in range(count)])


def make_text_ids(length: int) -> np.ndarray:
    """Returns position ids of the prompt's tokens (L, 4)."""
    ids = np.zeros((length, 4), np.int32)
    ids[:, 3] = np.arange(length)
    return ids
