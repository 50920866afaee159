"""The programs that a shape needs, and the sharding of their arrays.

The worker, the command line and ahead-of-time compilation for another machine all compile exactly these.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.families.autoencoder_kl import build_condition_program, build_decode_program
from pipelines.families.language_model import build_encode_program
from pipelines.families.layout import ENCODE_KEY, NO_REFERENCES, PictureLayout
from pipelines.families.learnt_preview import describe_preview
from pipelines.families.reused_steps import describe_reuse, find_cache, list_residual_programs, place_results
from pipelines.families.z_image.denoise import build_denoise_program
from pipelines.families.z_image.parts import FILLED, Parts
from pipelines.families.z_image.preview import draw_preview
from pipelines.models.catalog import Shape
from pipelines.pictures.references import References
from pipelines.recipes.cache_kinds import TAYLOR
from pipelines.runtime.devices.sharding import split_pictures
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.sampling.schedules import COLUMNS, MAX_STEPS
from pipelines.runtime.sampling.solver import State
from pipelines.runtime.weights.components import abstract_input, abstract_weights

_PROMPTS = 2  # a negative one and a positive one
_VMEM_SHARE = 0.5  # of VMEM for the denoiser's large matmuls


@dataclass(frozen=True, kw_only=True)
class Layout(PictureLayout):
    """The latents' layout."""

    @property
    def tokens(self) -> NamedSharding:
        """Returns the sharding of tokens (rows, N, D) between blocks: both kinds are multiples of FILLED."""
        mesh = self.denoiser_mesh
        return NamedSharding(mesh, PartitionSpec(self.rows.spec[0], None if FILLED % mesh.shape["sp"] else "sp"))


def lay_out(
    parts: Parts,
    shape: Shape,
    *,
    batch_size: int,
    uses_cfg: bool,
    references: References | None = None,
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
            describe_preview(parts, layout, draw_preview),
            _condition_program(parts, layout),
        ]
    if "decode" in parts.stages:
        programs.append(_decode_program(parts, layout))
    return tuple(programs)


def _encode_program(parts: Parts) -> Program:
    return Program(
        key=ENCODE_KEY,
        function=build_encode_program(
            parts.modules["text_encoder"], out_layers=(parts.out_layer,), dtype=parts.dtype, clears_filling=True
        ),
        arguments=(
            abstract_weights(parts.weights["text_encoder"]),
            abstract_input(parts.mesh, (2, _PROMPTS, parts.text_length), jnp.int32),
        ),
        out_shardings=NamedSharding(parts.mesh, PartitionSpec()),
    )


def _denoise_program(parts: Parts, layout: Layout) -> Program:
    latents = layout.describe_latents()
    return Program(
        key=layout.denoise_key,
        vmem_share=_VMEM_SHARE,
        function=build_denoise_program(
            parts.modules["transformer"],
            uses_cfg=layout.uses_cfg,
            dtype=parts.dtype,
            input_sharding=layout.model_input,
            token_sharding=layout.tokens,
            attention=AttentionAxes(mesh=layout.denoiser_mesh, rows="dp", heads="tp", tokens="sp"),
            cache=find_cache(layout),
        ),
        arguments=(
            abstract_weights(parts.weights["transformer"]),
            State(latents, latents),
            jax.ShapeDtypeStruct(
                (layout.row_count, parts.text_length, parts.text_width), parts.dtype, sharding=layout.rows
            ),
            abstract_input(parts.mesh, (MAX_STEPS, len(COLUMNS)), jnp.float32),
            abstract_input(parts.mesh, (), jnp.float32),
            abstract_input(parts.mesh, (), jnp.int32),
            abstract_input(parts.mesh, (), jnp.int32),
            *describe_reuse(parts.mesh, layout),
        ),
        out_shardings=place_results(layout, State(layout.latents, layout.latents)),
    )


def _condition_program(parts: Parts, layout: Layout) -> Program:
    _, height, width = layout.latents_shape
    sides = split_pictures(parts.mesh, None, height=height, width=width)
    replicated = NamedSharding(parts.mesh, PartitionSpec())
    return Program(
        key=layout.condition_key,
        function=build_condition_program(
            parts.modules["vae"],
            dtype=parts.dtype,
            sharding=NamedSharding(parts.mesh, PartitionSpec(None, None, *sides)),
        ),
        arguments=(
            abstract_weights(parts.weights["vae"]),
            abstract_input(parts.mesh, (1, 3, layout.shape.height, layout.shape.width), jnp.float32),
        ),
        out_shardings=(replicated, replicated),
    )


def _decode_program(parts: Parts, layout: Layout) -> Program:
    return Program(
        key=layout.decode_key,
        function=build_decode_program(parts.modules["vae"], dtype=parts.dtype, sharding=layout.decoder_input),
        arguments=(abstract_weights(parts.weights["vae"]), layout.describe_latents()),
    )
