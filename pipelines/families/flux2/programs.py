"""The programs that a shape needs, and the sharding of their arrays.

The worker, the command line and ahead-of-time compilation for another machine all compile exactly these.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.families.flux2.decode import build_decode_program
from pipelines.families.flux2.denoise import build_denoise_program
from pipelines.families.flux2.parts import Parts
from pipelines.families.flux2.preview import build_preview_program
from pipelines.families.flux2.references import build_reference_program
from pipelines.families.flux2.sharding import are_tokens_split
from pipelines.families.flux2.variants import Guidance
from pipelines.families.language_model import build_encode_program
from pipelines.families.layout import ENCODE_KEY, Key, PictureLayout
from pipelines.families.learnt_preview import describe_preview
from pipelines.families.reused_steps import describe_reuse, find_cache, list_residual_programs, place_results
from pipelines.models.catalog import Shape
from pipelines.pictures.references import References
from pipelines.recipes.cache_kinds import MAGCACHE, TAYLOR
from pipelines.runtime.devices.sharding import split_pictures
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.sampling.schedules import COLUMNS, MAX_STEPS
from pipelines.runtime.sampling.solver import State
from pipelines.runtime.weights.components import abstract_input, abstract_weights

_VMEM_SHARE = 0.5  # of VMEM for the denoiser's large matmuls: the faster of 0.5 and 0.75, says the TPU compiler


@dataclass(frozen=True, kw_only=True)
class Layout(PictureLayout):
    """The latents' layout, with that of the references' latents."""

    references_NCHW: tuple[int, ...] | None  # noqa: N815
    reference_size: Shape | None

    @property
    def tokens(self) -> int:
        """Returns the number of tokens of one picture."""
        return self.latents_shape[1] * self.latents_shape[2]

    @property
    def name(self) -> Key:
        return (*super().name, self.references_NCHW)

    @property
    def denoise_key(self) -> Key:
        return (*super().denoise_key, self.references_NCHW)

    @property
    def reference_key(self) -> Key:
        return ("reference", self.references_NCHW)


def lay_out(
    parts: Parts,
    shape: Shape,
    *,
    batch_size: int,
    uses_cfg: bool,
    references: References | None = None,
    cache_kind: str = "",
) -> Layout:
    """Lays out a run, see `PictureLayout`; the `references` are tokens beside the new picture's.

    `uses_cfg` asks for a pair of forward passes, which only a model with classifier-free guidance has.
    """
    layout = Layout.divide(
        parts.mesh,
        shape=shape,
        batch_size=batch_size,
        uses_cfg=uses_cfg and parts.guidance is Guidance.PAIR,
        latents_CHW=parts.latents_CHW(shape),
        references_NCHW=(references.count, *parts.latents_CHW(references.size)) if references else None,
        reference_size=references.size if references else None,
    )
    if cache_kind == TAYLOR:
        return layout.look_ahead(layout.model_input)
    return replace(layout, cache_kind=MAGCACHE, kept=_describe_residual(parts, layout)) if cache_kind else layout


def _describe_residual(parts: Parts, layout: Layout) -> jax.ShapeDtypeStruct:
    """Describes what all blocks add to the tokens of the picture and of its references, which lie as those do."""
    config, mesh = parts.config_of("transformer"), parts.mesh
    count, _, height, width = layout.references_NCHW or (0, 0, 0, 0)
    tokens = layout.tokens + count * height * width
    axis = "tp" if are_tokens_split(mesh, tokens, parts.text_length) else None
    if axis is None and layout.model_input.spec[2] == "sp" and not count:
        axis = "sp"
    size = (layout.row_count, tokens, config.num_attention_heads * config.attention_head_dim)
    return jax.ShapeDtypeStruct(
        size, parts.dtype, sharding=NamedSharding(mesh, PartitionSpec(layout.rows.spec[0], axis))
    )


def list_programs(parts: Parts, layout: Layout) -> tuple[Program, ...]:
    """Returns the programs of the loaded stages."""
    programs = []
    if "encode" in parts.stages:
        programs.append(_encode_program(parts))
    if "denoise" in parts.stages:
        programs += [_denoise_program(parts, layout), *list_residual_programs(layout)]
        if layout.reference_size is not None:
            programs.append(_reference_program(parts, layout, layout.reference_size))
        programs.append(describe_preview(parts, layout, build_preview_program(parts.preview.map.cells)))
    if "decode" in parts.stages:
        programs.append(_decode_program(parts, layout))
    return tuple(programs)


def _encode_program(parts: Parts) -> Program:
    prompts = 2 if parts.guidance is Guidance.PAIR else 1
    return Program(
        key=ENCODE_KEY,
        function=build_encode_program(parts.modules["text_encoder"], out_layers=parts.out_layers, dtype=parts.dtype),
        arguments=(
            abstract_weights(parts.weights["text_encoder"]),
            abstract_input(parts.mesh, (2, prompts, parts.text_length), jnp.int32),
        ),
        out_shardings=NamedSharding(parts.mesh, PartitionSpec()),
    )


def _denoise_program(parts: Parts, layout: Layout) -> Program:
    latents = layout.describe_latents()
    out = State(layout.latents, layout.latents)
    embeddings = (layout.row_count, parts.text_length, parts.text_width)
    return Program(
        key=layout.denoise_key,
        vmem_share=_VMEM_SHARE,
        function=build_denoise_program(
            parts.modules["transformer"],
            guidance=parts.guidance,
            uses_cfg=layout.uses_cfg,
            dtype=parts.dtype,
            mesh=parts.mesh,
            input_sharding=layout.model_input,
            cache=find_cache(layout),
        ),
        arguments=(
            abstract_weights(parts.weights["transformer"]),
            State(latents, latents),
            jax.ShapeDtypeStruct(embeddings, parts.dtype, sharding=layout.rows),
            layout.references_NCHW and abstract_input(parts.mesh, layout.references_NCHW, jnp.float32),
            abstract_input(parts.mesh, (MAX_STEPS, len(COLUMNS)), jnp.float32),
            abstract_input(parts.mesh, (), jnp.float32),
            abstract_input(parts.mesh, (), jnp.int32),
            abstract_input(parts.mesh, (), jnp.int32),
            *describe_reuse(parts.mesh, layout),
        ),
        out_shardings=place_results(layout, out),
    )


def _reference_program(parts: Parts, layout: Layout, size: Shape) -> Program:
    assert layout.references_NCHW is not None
    count, _, height, width = layout.references_NCHW
    pictures = (count, 3, size.height, size.width)
    sides = split_pictures(parts.mesh, None, height=height, width=width)
    return Program(
        key=layout.reference_key,
        function=build_reference_program(
            parts.modules["vae"],
            dtype=parts.dtype,
            sharding=NamedSharding(parts.mesh, PartitionSpec(None, None, *sides)),
        ),
        arguments=(abstract_weights(parts.weights["vae"]), abstract_input(parts.mesh, pictures, jnp.float32)),
        out_shardings=NamedSharding(parts.mesh, PartitionSpec()),
    )


def _decode_program(parts: Parts, layout: Layout) -> Program:
    return Program(
        key=layout.decode_key,
        function=build_decode_program(parts.modules["vae"], dtype=parts.dtype, sharding=layout.decoder_input),
        arguments=(abstract_weights(parts.weights["vae"]), layout.describe_latents()),
    )
