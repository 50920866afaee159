"""Which programs a shape needs, and how their arrays lie on the mesh.

The worker, the command line and ahead-of-time compilation for another machine all compile exactly these.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.catalog import Shape
from pipelines.families.flux2.decode import build_decode_program
from pipelines.families.flux2.denoise import build_denoise_program
from pipelines.families.flux2.encode import build_encode_program
from pipelines.families.flux2.parts import Parts
from pipelines.families.flux2.preview import build_preview_program
from pipelines.families.flux2.references import build_reference_program
from pipelines.families.flux2.variants import Guidance
from pipelines.references import References
from pipelines.runtime.devices.sharding import batch_class, split_pictures
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.sampling.schedules import COLUMNS, MAX_STEPS
from pipelines.runtime.sampling.solver import State
from pipelines.runtime.weights.components import abstract_input, abstract_weights

Key = tuple[Any, ...]

ENCODE_KEY: Key = ("encode",)
_VMEM_SHARE = 0.5  # of the denoiser's large products; of a half and three quarters what the TPU compiler finds faster


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The arrays of one (shape, images, guidance): sizes and where they lie."""

    shape: Shape
    images: int
    uses_cfg: bool
    latents_CHW: tuple[int, int, int]  # noqa: N815
    latents: NamedSharding
    rows: NamedSharding
    model_input: NamedSharding
    decoder_input: NamedSharding
    references_NCHW: tuple[int, ...] | None  # noqa: N815
    reference_size: Shape | None

    @property
    def tokens(self) -> int:
        """Of one picture."""
        return self.latents_CHW[1] * self.latents_CHW[2]

    @property
    def row_count(self) -> int:
        """Rows of the transformer's batch."""
        return self.images * (2 if self.uses_cfg else 1)

    @property
    def name(self) -> Key:
        """What the cache index calls all programs together."""
        return ("shape", self.shape, self.images, self.uses_cfg, self.references_NCHW)

    @property
    def denoise_key(self) -> Key:
        return ("denoise", self.shape, self.images, self.uses_cfg, self.references_NCHW)

    @property
    def reference_key(self) -> Key:
        return ("reference", self.references_NCHW)

    @property
    def decode_key(self) -> Key:
        return ("decode", self.shape, self.images)

    @property
    def preview_key(self) -> Key:
        return ("preview", self.shape, self.images)


def lay_out(
    parts: Parts,
    shape: Shape,
    *,
    batch_size: int,
    uses_cfg: bool,
    references: References | None = None,
) -> Layout:
    """Images over `dp` and rows of an image over `sp`, each where it divides; else replicated.

    The `references` are tokens beside the new picture's. `uses_cfg` asks for a pair of forwards, which only a model
    with classic guidance has.
    """
    images = batch_class(batch_size)
    has_pair = uses_cfg and parts.guidance is Guidance.PAIR
    latents_CHW = parts.latents_CHW(shape)
    dp, sp = parts.mesh.shape["dp"], parts.mesh.shape["sp"]
    height = "sp" if latents_CHW[1] % sp == 0 else None
    images_axis = "dp" if images % dp == 0 else None
    rows = "dp" if images * (2 if has_pair else 1) % dp == 0 else None
    sides = split_pictures(parts.mesh, images_axis, height=latents_CHW[1], width=latents_CHW[2])
    return Layout(
        shape=shape,
        images=images,
        uses_cfg=has_pair,
        latents_CHW=latents_CHW,
        latents=NamedSharding(parts.mesh, PartitionSpec(images_axis, None, height)),
        rows=NamedSharding(parts.mesh, PartitionSpec(rows)),
        model_input=NamedSharding(parts.mesh, PartitionSpec(rows, None, height)),
        decoder_input=NamedSharding(parts.mesh, PartitionSpec(images_axis, None, *sides)),
        references_NCHW=(references.count, *parts.latents_CHW(references.size)) if references else None,
        reference_size=references.size if references else None,
    )


def list_programs(parts: Parts, layout: Layout) -> tuple[Program, ...]:
    """The programs of the loaded stages."""
    programs = []
    if "encode" in parts.stages:
        programs.append(_encode_program(parts))
    if "denoise" in parts.stages:
        programs.append(_denoise_program(parts, layout))
        if layout.reference_size is not None:
            programs.append(_reference_program(parts, layout, layout.reference_size))
        programs.append(_preview_program(parts, layout))
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
    latents = _abstract_latents(layout)
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
        ),
        out_shardings=State(layout.latents, layout.latents),
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
        arguments=(abstract_weights(parts.weights["vae"]), _abstract_latents(layout)),
    )


def _preview_program(parts: Parts, layout: Layout) -> Program:
    colours = 3 * parts.preview_cells**2
    return Program(
        key=layout.preview_key,
        function=build_preview_program(parts.preview_cells),
        arguments=(
            abstract_input(parts.mesh, (layout.latents_CHW[0], colours), jnp.float32),
            abstract_input(parts.mesh, (colours,), jnp.float32),
            _abstract_latents(layout),
        ),
        out_shardings=NamedSharding(layout.latents.mesh, PartitionSpec()),
    )


def _abstract_latents(layout: Layout) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((layout.images, *layout.latents_CHW), jnp.float32, sharding=layout.latents)
