"""The programs that a shape needs, and the sharding of their arrays.

The worker, the command line and ahead-of-time compilation for another machine all compile exactly these. Two experts of
one size share one denoise program: their weights are its arguments.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.families.layout import ENCODE_KEY, NO_REFERENCES, Key
from pipelines.families.layout import Layout as BaseLayout
from pipelines.families.learnt_preview import describe_preview
from pipelines.families.reused_steps import describe_reuse, find_cache, list_residual_programs, place_results
from pipelines.families.wan.condition import build_condition_program, build_image_program
from pipelines.families.wan.decode import build_decode_program
from pipelines.families.wan.denoise import Channels, Condition, FirstFrame, build_denoise_program
from pipelines.families.wan.encode import build_encode_program
from pipelines.families.wan.parts import Parts
from pipelines.families.wan.preview import build_preview_program
from pipelines.families.wan.sharding import choose_encoder_rules, choose_transformer_rules
from pipelines.models.catalog import Shape
from pipelines.pictures.references import References
from pipelines.recipes.cache_kinds import MAGCACHE, TAYLOR
from pipelines.runtime.bridge.modules import LayerPlacement
from pipelines.runtime.devices.mesh import turn_to_tokens
from pipelines.runtime.devices.sharding import batch_class, split_pictures
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.flash import CHIPS_OF_LARGE_UNITS
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.sampling.schedules import COLUMNS, MAX_STEPS
from pipelines.runtime.sampling.solver import State
from pipelines.runtime.weights.components import abstract_input, abstract_weights

IMAGE_KEY: Key = ("image",)
_VMEM_SHARE = 0.75  # of VMEM for the denoiser's large matmuls: the faster of 0.5 and 0.75, says the TPU compiler


@dataclass(frozen=True, kw_only=True)
class Layout(BaseLayout):
    """The layout of latents, tokens, and `pictures`: the autoencoder's frames (B, C, frames, height, width)."""

    tokens: NamedSharding
    pictures: NamedSharding


def lay_out(
    parts: Parts,
    shape: Shape,
    *,
    batch_size: int,
    uses_cfg: bool,
    references: References | None = None,
    cache_kind: str = "",
) -> Layout:
    """Shards videos and guidance pairs over `dp`, tokens over `sp`; an axis that does not divide them is replicated.

    One row without guidance has its tokens on all devices (turn_to_tokens).
    """
    assert references is None, NO_REFERENCES
    videos = batch_class(batch_size)
    mesh, latents_CTHW = parts.mesh, parts.latents_CTHW(shape)
    _, frames, height, width = latents_CTHW
    transformer = parts.config_of("transformer")
    patch = transformer.patch_size
    tokens = (frames // patch[0]) * (height // patch[1]) * (width // patch[2])
    rows = videos * (2 if uses_cfg else 1)
    videos_axis, rows_axis = ("dp" if count % mesh.shape["dp"] == 0 else None for count in (videos, rows))
    seen = mesh
    if rows_axis is None and not uses_cfg and _can_turn(turn_to_tokens(mesh), transformer, tokens):
        seen = turn_to_tokens(mesh)
    token_sharding = NamedSharding(seen, PartitionSpec(rows_axis, "sp" if tokens % seen.shape["sp"] == 0 else None))
    features = transformer.num_attention_heads * transformer.attention_head_dim
    residual = jax.ShapeDtypeStruct((rows, tokens, features), parts.dtype, sharding=token_sharding)
    kept: dict[str, Any] = {"cache_kind": MAGCACHE, "kept": residual} if cache_kind == MAGCACHE else {}
    layout = Layout(
        shape=shape,
        outputs=videos,
        uses_cfg=uses_cfg,
        latents_shape=latents_CTHW,
        latents=NamedSharding(mesh, PartitionSpec(videos_axis)),
        rows=NamedSharding(seen, PartitionSpec(rows_axis)),
        **kept,
        tokens=token_sharding,
        pictures=NamedSharding(
            mesh,
            PartitionSpec(videos_axis, None, None, *split_pictures(mesh, videos_axis, height=height, width=width)),
        ),
    )
    return layout.look_ahead(layout.rows) if cache_kind == TAYLOR else layout


def _can_turn(turned: Mesh, transformer: Any, tokens: int) -> bool:
    """Tells whether all devices of `sp` get as many tokens, and heads for attention to trade them for.

    Without heads each would gather all keys and values: Wan 1.3B's 12 are too few for eight devices.
    """
    return (
        tokens % turned.shape["sp"] == 0
        and transformer.num_attention_heads % (turned.shape["sp"] * turned.shape["tp"]) == 0
    )


def list_programs(parts: Parts, layout: Layout) -> tuple[Program, ...]:
    """Returns the programs of the loaded stages."""
    programs = []
    if "encode" in parts.stages:
        programs.append(_encode_program(parts))
    if "denoise" in parts.stages:
        programs += [_denoise_program(parts, layout), *list_residual_programs(layout), _preview_program(parts, layout)]
        if parts.takes_pictures:
            programs.append(_condition_program(parts, layout))
        if parts.image_processor is not None:
            programs.append(_image_program(parts))
    if "decode" in parts.stages:
        programs.append(_decode_program(parts, layout))
    return tuple(programs)


def _encode_program(parts: Parts) -> Program:
    return Program(
        key=ENCODE_KEY,
        function=build_encode_program(
            parts.modules["text_encoder"],
            running_layer=LayerPlacement(
                mesh=parts.mesh, rules=choose_encoder_rules(parts.config_of("text_encoder"), parts.mesh.shape["tp"])
            ),
        ),
        arguments=(
            abstract_weights(parts.weights["text_encoder"]),
            abstract_input(parts.mesh, (2, parts.text_length), jnp.int32),
            abstract_input(parts.mesh, (2, parts.text_length), jnp.bool_),
        ),
    )


def _denoise_program(parts: Parts, layout: Layout) -> Program:
    latents = layout.describe_latents()
    out = State(*(layout.latents for _ in State._fields))
    prompt_size = (layout.row_count, parts.text_length, parts.text_width)
    return Program(
        key=layout.denoise_key,
        vmem_share=_VMEM_SHARE,
        gathers_whole=True,
        function=build_denoise_program(
            parts.modules["transformer"],
            uses_cfg=layout.uses_cfg,
            dtype=parts.dtype,
            input_sharding=layout.rows,
            token_sharding=layout.tokens,
            attention=AttentionAxes(
                mesh=layout.denoiser_mesh,
                rows="dp",
                heads="tp",
                tokens="sp",
                smooths_keys=parts.attention.smooths_keys,
                bounds_logits=parts.attention.bounds_logits,
                window=parts.attention.window,
            ),
            running_layer=LayerPlacement(
                mesh=parts.mesh,
                rules=choose_transformer_rules(parts.config_of("transformer"), parts.mesh.shape["tp"]),
            ),
            cache=find_cache(layout),
        ),
        arguments=(
            abstract_weights(parts.weights["transformer"]),
            State(latents, latents, latents, latents),
            jax.ShapeDtypeStruct(prompt_size, jnp.float32, sharding=layout.rows),
            _abstract_condition(parts, layout),
            abstract_input(parts.mesh, (MAX_STEPS, len(COLUMNS)), jnp.float32),
            abstract_input(parts.mesh, (), jnp.float32),
            abstract_input(parts.mesh, (), jnp.int32),
            abstract_input(parts.mesh, (), jnp.int32),
            *describe_reuse(parts.mesh, layout),
        ),
        out_shardings=place_results(layout, out),
    )


def _abstract_condition(parts: Parts, layout: Layout) -> Condition:
    _, frames, height, width = layout.latents_shape
    if parts.takes_channels:
        transformer = parts.config_of("transformer")
        channels = transformer.in_channels - layout.latents_shape[0]
        embeds = None
        if parts.image_processor is not None:
            vision = parts.config_of("image_encoder")
            tokens = (vision.image_size // vision.patch_size) ** 2 + 1
            embeds = abstract_input(parts.mesh, (parts.picture_count, tokens, vision.hidden_size), jnp.float32)
        return Channels(abstract_input(parts.mesh, (1, channels, frames, height, width), jnp.float32), embeds)
    if parts.expands_timesteps:
        size = (1, layout.latents_shape[0], 1, height, width)
        return FirstFrame(abstract_input(parts.mesh, size, jnp.float32), abstract_input(parts.mesh, (), jnp.float32))
    return None


def _condition_program(parts: Parts, layout: Layout) -> Program:
    weights = parts.weights["vae"]
    shape = layout.shape
    return Program(
        key=layout.condition_key,
        function=build_condition_program(
            parts.modules["vae"],
            dtype=next(iter(weights.values())).dtype,
            frames=shape.frames if parts.takes_channels else 1,
            input_sharding=NamedSharding(parts.mesh, PartitionSpec(None, *layout.pictures.spec[1:])),
        ),
        arguments=(
            abstract_weights(weights),
            abstract_input(parts.mesh, (parts.picture_count, 3, shape.height, shape.width), jnp.float32),
        ),
        out_shardings=NamedSharding(parts.mesh, PartitionSpec()),
    )


def _image_program(parts: Parts) -> Program:
    size = parts.config_of("image_encoder").image_size
    return Program(
        key=IMAGE_KEY,
        function=build_image_program(parts.modules["image_encoder"], dtype=parts.dtype),
        arguments=(
            abstract_weights(parts.weights["image_encoder"]),
            abstract_input(parts.mesh, (parts.picture_count, 3, size, size), jnp.float32),
        ),
    )


def _decode_program(parts: Parts, layout: Layout) -> Program:
    weights = parts.weights["vae"]
    return Program(
        key=layout.decode_key,
        compact_vmem_bytes=_choose_decoder_vmem(parts),
        function=build_decode_program(
            parts.modules["vae"], dtype=next(iter(weights.values())).dtype, input_sharding=layout.pictures
        ),
        arguments=(abstract_weights(weights), layout.describe_latents()),
    )


def _choose_decoder_vmem(parts: Parts) -> int:
    """Returns a VMEM limit in bytes, below XLA's default of 16 MiB, that keeps the code short (plan/TRIED.md).

    It is lower for v4 and v5, whose smaller matrix units need more instructions.
    """
    has_large_units = parts.mesh.devices.flat[0].device_kind in CHIPS_OF_LARGE_UNITS
    return (12 if has_large_units else 6) * 2**20


def _preview_program(parts: Parts, layout: Layout) -> Program:
    function = build_preview_program(frames=layout.latents_shape[1], cells=parts.preview.map.cells)
    return describe_preview(parts, layout, function)
