"""The denoising loop as one compiled program with run-time bounds.

A chunk runs steps `start` to `stop` of a schedule table through runtime/sampling/loop.py. With guidance the `dp` axis
carries the [negative, positive] halves of the batch. The state always includes UniPC's history, so that one
program serves both schedulers.

Three kinds of models take a first picture in three ways; `Condition` is each one's input besides the text:
none                 text to video
FirstFrame           Wan 2.2 TI2V: the picture's latents replace the first latent frame, at timestep 0
Channels             I2V: the picture's latents and a mask are further channels, its features further tokens; with
                     a last picture (FLF2V) both are of two pictures
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from pipelines.runtime.bridge.modules import Carry, LayerPlacement, TracedModule
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.sampling.loop import Cache, run_loop
from pipelines.runtime.sampling.reuse import Reuse, add_or_compute
from pipelines.runtime.sampling.solver import State


class FirstFrame(NamedTuple):
    """The picture's `latents` (1, C, 1, H, W) fp32; `is_given` is fp32, 1 with a picture and 0 without one."""

    latents: Any
    is_given: Any


class Channels(NamedTuple):
    """Mask and latents as `channels` (1, 4 + C, T, H, W) fp32; `image_embeds` fp32 if the model has them.

    They are (1, N, D), or (2, N, D) of a first and a last picture.
    """

    channels: Any
    image_embeds: Any = None


Condition = FirstFrame | Channels | None


def build_denoise_program(
    transformer: TracedModule,
    *,
    uses_cfg: bool,
    dtype: Any,
    input_sharding: NamedSharding,
    token_sharding: NamedSharding,
    attention: AttentionAxes,
    running_layer: LayerPlacement,
    cache: Cache | None = None,
) -> Any:
    """Builds denoise(weights, state, prompt_embeds, condition, table, guidance_scale, start, stop) -> state.

    With a step `cache` it takes what that keeps and `reuse` as well (`loop.KeepingLoop`), and returns (state, kept).

    The state's arrays are (B, C, T, H, W) fp32; `prompt_embeds` rows are [negative..., positive...] with guidance, else
    only positive. The shardings are `input_sharding` for the transformer's batch, `token_sharding` for the tokens
    (rows, N, D) between its blocks, `attention` for queries, keys and values, `running_layer` for a block's weights.
    """
    blocks = {f"blocks.{name}": token_sharding for name, _ in transformer.module.blocks.named_children()}
    patch_area = transformer.module.config.patch_size[1] * transformer.module.config.patch_size[2]

    def denoise(  # noqa: PLR0917 - a compiled program takes its arrays by position
        weights: Mapping[str, jax.Array],
        state: State,
        prompt_embeds_BLD: jax.Array,
        condition: Condition,
        table: jax.Array,
        guidance_scale: jax.Array,
        start: jax.Array,
        stop: jax.Array,
        kept: jax.Array | None = None,
        reuse: jax.Array | None = None,
    ) -> Any:
        def prepare(scaled: jax.Array, timestep: jax.Array) -> tuple[jax.Array, jax.Array]:
            model_input, timestep = _bring_in(condition, scaled, timestep, patch_area=patch_area)
            # The barrier keeps XLA for TPU from fusing this scaling with the transposition, and doing it nine times.
            return jax.lax.optimization_barrier(model_input.astype(dtype)), timestep

        def predict(model_input: jax.Array, timestep: jax.Array, stacks: Any = None) -> jax.Array:
            (output,) = transformer.call(
                weights,
                model_input,
                timestep,
                encoder_hidden_states=prompt_embeds_BLD.astype(dtype),
                encoder_hidden_states_image=_repeat_image(condition, len(model_input), dtype),
                return_dict=False,
                input_shardings=blocks,
                attention=attention,
                running_layer=running_layer,
                stacks=stacks,
            )
            return output

        def predict_reusing(model_input: jax.Array, timestep: jax.Array, reuse: Reuse) -> tuple[jax.Array, jax.Array]:
            residuals: list[jax.Array] = []

            def run(compute: Callable[..., Carry], carry: Carry) -> Carry:
                (tokens,) = carry
                after, residual = add_or_compute(reuse, tokens, lambda: compute(tokens)[0])
                residuals.append(jax.lax.with_sharding_constraint(residual, token_sharding))
                return (after,)

            output = predict(model_input, timestep, {"blocks": (("hidden_states",), run)})
            return output, residuals[0]

        result = run_loop(
            predict, state, kept,
            cache=cache, predict_reusing=predict_reusing,
            uses_cfg=uses_cfg, input_sharding=input_sharding, prepare=prepare,
            table=table, reuse=reuse, guidance_scale=guidance_scale, start=start, stop=stop,
        )  # fmt: skip
        if cache is None:
            return _keep_first(result, condition)
        state, kept = result
        return _keep_first(state, condition), kept

    return denoise


def _bring_in(
    condition: Condition, scaled_BCTHW: jax.Array, timestep: jax.Array, *, patch_area: int
) -> tuple[jax.Array, jax.Array]:
    """Returns the transformer's input, and the timestep (B,), or (B, N) if each token has its own."""
    batch, _, frames, height, width = scaled_BCTHW.shape
    if isinstance(condition, FirstFrame):
        is_picture = (jnp.arange(frames) == 0) * condition.is_given
        timestep = jnp.repeat(timestep * (1 - is_picture), height * width // patch_area)
        return _set_first(scaled_BCTHW, condition), jnp.broadcast_to(timestep, (batch, len(timestep)))
    if isinstance(condition, Channels):
        channels = jnp.broadcast_to(condition.channels, (batch, *condition.channels.shape[1:]))
        scaled_BCTHW = jnp.concatenate([scaled_BCTHW, channels], axis=1)
    return scaled_BCTHW, jnp.broadcast_to(timestep, batch)


def _keep_first(state: State, condition: Condition) -> State:
    if not isinstance(condition, FirstFrame):
        return state
    return state._replace(latents=_set_first(state.latents, condition), x0=_set_first(state.x0, condition))


def _set_first(latents_BCTHW: jax.Array, condition: FirstFrame) -> jax.Array:
    """Replaces the first latent frame by the picture, if there is one."""
    first = jnp.where(condition.is_given > 0, condition.latents, latents_BCTHW[:, :, :1])
    return jnp.concatenate([first, latents_BCTHW[:, :, 1:]], axis=2)


def _repeat_image(condition: Condition, rows: int, dtype: Any) -> jax.Array | None:
    if not isinstance(condition, Channels) or condition.image_embeds is None:
        return None
    pictures, *size = condition.image_embeds.shape
    if pictures == 1:
        return jnp.broadcast_to(condition.image_embeds, (rows, *size)).astype(dtype)
    # One after the other for each row: the transformer joins the tokens of two pictures itself.
    return jnp.broadcast_to(condition.image_embeds, (rows, pictures, *size)).reshape(-1, *size).astype(dtype)
