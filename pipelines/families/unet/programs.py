"""The programs that a shape needs, and the sharding of their arrays.

The worker, the command line and ahead-of-time compilation for another machine all compile exactly these.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.families.autoencoder_kl import build_condition_program, build_decode_program
from pipelines.families.layout import ENCODE_KEY, NO_REFERENCES, Key, PictureLayout
from pipelines.families.reused_steps import describe_reuse, find_cache, list_residual_programs, place_results
from pipelines.families.unet.denoise import build_denoise_program
from pipelines.families.unet.encode import build_encode_program
from pipelines.families.unet.parts import Parts
from pipelines.models.catalog import Shape
from pipelines.pictures.references import References
from pipelines.recipes.cache_kinds import TAYLOR
from pipelines.runtime.devices.sharding import split_pictures
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.sampling.chunks import MAX_CHUNK
from pipelines.runtime.sampling.schedules import COLUMNS, MAX_STEPS
from pipelines.runtime.sampling.solver import State
from pipelines.runtime.weights.components import abstract_input, abstract_weights


@dataclass(frozen=True, kw_only=True)
class Layout(PictureLayout):
    """The latents' layout, with that of the noise for a chunk of steps; a prompt has `text_chunks` encoder lengths."""

    text_chunks: int = 1

    @property
    def name(self) -> Key:
        return (*super().name, *self._text)

    @property
    def denoise_key(self) -> Key:
        return (*super().denoise_key, *self._text)

    @property
    def _text(self) -> Key:
        return (("text", self.text_chunks),) if self.text_chunks > 1 else ()

    @property
    def noise(self) -> NamedSharding:
        """Returns the sharding of the noise (steps, images, C, H, W)."""
        return NamedSharding(self.latents.mesh, PartitionSpec(None, *self.latents.spec))


def lay_out(
    parts: Parts,
    shape: Shape,
    *,
    batch_size: int,
    uses_cfg: bool,
    references: References | None = None,
    text_chunks: int = 1,
    cache_kind: str = "",
) -> Layout:
    """Lays out a run, see `PictureLayout`."""
    assert references is None, NO_REFERENCES
    layout = Layout.divide(
        parts.mesh,
        shape=shape,
        batch_size=batch_size,
        uses_cfg=uses_cfg,
        latents_CHW=parts.latents_CHW(shape),
        turns=True,
        halvings=len(parts.config_of("unet").down_block_types) - 1,
        text_chunks=text_chunks,
    )
    return layout.look_ahead(layout.model_input) if cache_kind == TAYLOR else layout


def list_programs(parts: Parts, layout: Layout) -> tuple[Program, ...]:
    """Returns the programs of the loaded stages.

    The small program that encodes a picture to start from is always among them, so that such a job compiles nothing.
    """
    programs = []
    if "encode" in parts.stages:
        programs.append(_encode_program(parts))
    if "denoise" in parts.stages:
        programs += [
            _denoise_program(parts, layout),
            *list_residual_programs(layout),
            _preview_program(parts, layout),
            _condition_program(parts, layout),
        ]
    if "decode" in parts.stages:
        programs.append(_decode_program(parts, layout))
    return tuple(programs)


def _encode_program(parts: Parts) -> Program:
    names = parts.text_encoders
    return Program(
        key=ENCODE_KEY,
        function=build_encode_program(
            [parts.modules[name] for name in names], read_text=parts.read_text, zeroes_empty=parts.zeroes_empty
        ),
        arguments=(
            *(abstract_weights(parts.weights[name]) for name in names),
            abstract_input(parts.mesh, (len(names), 2, parts.text_length), jnp.int32),
            abstract_input(parts.mesh, (), jnp.bool_),
        ),
    )


def _choose_unet_vmem(parts: Parts) -> int | None:
    """Returns a VMEM limit in bytes (XLA's default is 16 MiB), or None to keep the default.

    A lower limit makes shorter code where a step would otherwise be over 100 MB (plan/TRIED.md).
    """
    if parts.mesh.devices.flat[0].device_kind in ("TPU v5", "TPU v5p"):
        return 12 * 2**20
    has_whole_pictures = parts.mesh.shape["sp"] == 1
    return 15 * 2**20 if has_whole_pictures else None


def _denoise_program(parts: Parts, layout: Layout) -> Program:
    latents = layout.describe_latents()
    return Program(
        key=layout.denoise_key,
        compact_vmem_bytes=_choose_unet_vmem(parts),
        function=build_denoise_program(
            parts.modules["unet"],
            read_conditions=parts.read_conditions,
            uses_cfg=layout.uses_cfg,
            dtype=parts.dtype,
            input_sharding=layout.model_input,
            attention=AttentionAxes(mesh=layout.denoiser_mesh, rows="dp", heads="tp", tokens="sp", trades_heads=False),
            cache=find_cache(layout),
        ),
        arguments=(
            abstract_weights(parts.weights["unet"]),
            State(latents, latents),
            _abstract_rows(parts, layout),
            abstract_input(parts.mesh, (MAX_STEPS, len(COLUMNS)), jnp.float32),
            jax.ShapeDtypeStruct((MAX_CHUNK, *latents.shape), jnp.float32, sharding=layout.noise),
            abstract_input(parts.mesh, (), jnp.float32),
            abstract_input(parts.mesh, (), jnp.int32),
            abstract_input(parts.mesh, (), jnp.int32),
            *describe_reuse(parts.mesh, layout),
        ),
        out_shardings=place_results(layout, State(layout.latents, layout.latents)),
    )


def _condition_program(parts: Parts, layout: Layout) -> Program:
    weights, (_, height, width) = parts.weights["vae"], layout.latents_shape
    sides = split_pictures(parts.mesh, None, height=height, width=width)
    replicated = NamedSharding(parts.mesh, PartitionSpec())
    return Program(
        key=layout.condition_key,
        function=build_condition_program(
            parts.modules["vae"],
            dtype=next(iter(weights.values())).dtype,
            sharding=NamedSharding(parts.mesh, PartitionSpec(None, None, *sides)),
        ),
        arguments=(
            abstract_weights(weights),
            abstract_input(parts.mesh, (1, 3, layout.shape.height, layout.shape.width), jnp.float32),
        ),
        out_shardings=(replicated, replicated),
    )


def _decode_program(parts: Parts, layout: Layout) -> Program:
    weights = parts.weights["vae"]
    return Program(
        key=layout.decode_key,
        function=build_decode_program(
            parts.modules["vae"], dtype=next(iter(weights.values())).dtype, sharding=layout.decoder_input
        ),
        arguments=(abstract_weights(weights), layout.describe_latents()),
    )


def _preview_program(parts: Parts, layout: Layout) -> Program:
    return Program(
        key=layout.preview_key,
        function=parts.latents_to_rgb.draw,
        arguments=(layout.describe_latents(),),
        out_shardings=NamedSharding(parts.mesh, PartitionSpec()),
    )


def _abstract_rows(parts: Parts, layout: Layout) -> dict[str, jax.ShapeDtypeStruct]:
    sizes = parts.embedding_sizes(layout.text_chunks)
    sizes |= {name: rows.shape[1:] for name, rows in parts.describe_shape(layout.shape).items()}
    return {
        name: jax.ShapeDtypeStruct((layout.row_count, *size), jnp.float32, sharding=layout.rows)
        for name, size in sizes.items()
    }
