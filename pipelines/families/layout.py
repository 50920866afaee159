"""The placement of one run's arrays on the mesh, and the keys of its programs, common to all families.

A family adds the placements that only its own programs have.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.models.catalog import Shape
from pipelines.recipes.cache_kinds import MAGCACHE, TAYLOR
from pipelines.runtime.devices.mesh import turn_to_tokens
from pipelines.runtime.devices.sharding import batch_class, split_pictures

Key = tuple[Any, ...]

ENCODE_KEY: Key = ("encode",)
_CACHE_KEYS: dict[str, Key] = {"": (), MAGCACHE: ("step cache",), TAYLOR: ("taylor",)}
NO_REFERENCES = "only a model with references has programs for them"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Sizes and placements of the arrays of one (shape, outputs, guidance).

    `outputs` is the batch class: the pictures or videos that a program makes, requested or not. `latents_shape` is one
    output's, (C, H, W) or (C, T, H, W); `rows` is the sharding of arrays with one row per row of the denoiser's batch.
    With a step cache of some `cache_kind`, `kept` describes what it keeps from step to step: MagCache the residual
    (rows, tokens, width), TaylorSeer the outlook (2, rows, ...).
    """

    shape: Shape
    outputs: int
    uses_cfg: bool
    latents_shape: tuple[int, ...]
    latents: NamedSharding
    rows: NamedSharding
    cache_kind: str = ""
    kept: jax.ShapeDtypeStruct | None = None

    @property
    def row_count(self) -> int:
        """Returns the number of rows of the denoiser's batch."""
        return self.outputs * (2 if self.uses_cfg else 1)

    @property
    def denoiser_mesh(self) -> Mesh:
        """Returns the mesh as the denoiser sees it (turn_to_tokens)."""
        assert isinstance(self.rows.mesh, Mesh), "layouts are made on meshes of devices"
        return self.rows.mesh

    @property
    def name(self) -> Key:
        """Returns the cache index's key for all programs together."""
        return ("shape", self.shape, self.outputs, self.uses_cfg, *self._cached)

    @property
    def denoise_key(self) -> Key:
        return ("denoise", self.shape, self.outputs, self.uses_cfg, *self._cached)

    @property
    def residual_key(self) -> Key:
        """Returns the key of the program that makes what is kept before the first step."""
        assert self.kept is not None
        return ("residual", self.kept.shape)

    @property
    def _cached(self) -> Key:
        return _CACHE_KEYS[self.cache_kind]

    @property
    def condition_key(self) -> Key:
        return ("condition", self.shape)

    @property
    def decode_key(self) -> Key:
        return ("decode", self.shape, self.outputs)

    @property
    def preview_key(self) -> Key:
        return ("preview", self.shape, self.outputs)

    def look_ahead(self, rows: NamedSharding) -> Self:
        """Returns the layout of a run with TaylorSeer, whose outputs lie as `rows` (rows, ...) do."""
        return replace(
            self,
            cache_kind=TAYLOR,
            kept=jax.ShapeDtypeStruct(
                (2, self.row_count, *self.latents_shape),
                jnp.float32,
                sharding=NamedSharding(self.denoiser_mesh, PartitionSpec(None, *rows.spec)),
            ),
        )

    def describe_latents(self) -> jax.ShapeDtypeStruct:
        """Describes the latents of all outputs, for ahead-of-time compilation."""
        return jax.ShapeDtypeStruct((self.outputs, *self.latents_shape), jnp.float32, sharding=self.latents)


@dataclass(frozen=True, kw_only=True)
class PictureLayout(Layout):
    """Shards pictures over `dp` and rows of a picture over `sp`; an axis that does not divide them is replicated.

    So is `sp` where a denoiser that halves its rows would come to fewer of them than devices: XLA's partitioner gives
    wrong sums for convolutions where two or more devices would share a row (measured for 3 to 16 devices; uneven rows,
    of which every device has one or most have, are right).
    """

    model_input: NamedSharding
    decoder_input: NamedSharding

    @classmethod
    def divide(
        cls,
        mesh: Mesh,
        *,
        shape: Shape,
        batch_size: int,
        uses_cfg: bool,
        latents_CHW: tuple[int, int, int],
        halvings: int = 0,
        turns: bool = False,
        **further: Any,
    ) -> Self:
        """Builds the layout on this mesh; `further` are the fields that a family adds.

        `halvings` says how often the denoiser halves the rows. With `turns` the denoiser's batch of a run without
        guidance lies on all devices of `dp` as those of `sp` where it does not divide over `dp` (turn_to_tokens).
        """
        images = batch_class(batch_size)
        dp = mesh.shape["dp"]

        def split_height(parts: int) -> str | None:
            return "sp" if latents_CHW[1] % parts == 0 and latents_CHW[1] >> halvings >= parts else None

        height = split_height(mesh.shape["sp"])
        rows = "dp" if images * (2 if uses_cfg else 1) % dp == 0 else None
        turned = turn_to_tokens(mesh)
        if turns and not uses_cfg and rows is None and split_height(turned.shape["sp"]):
            seen, seen_height = turned, "sp"
        else:
            seen, seen_height = mesh, height
        images_axis = "dp" if images % dp == 0 else None
        sides = split_pictures(mesh, images_axis, height=latents_CHW[1], width=latents_CHW[2])
        return cls(
            shape=shape,
            outputs=images,
            uses_cfg=uses_cfg,
            latents_shape=latents_CHW,
            latents=NamedSharding(mesh, PartitionSpec(images_axis, None, height)),
            rows=NamedSharding(seen, PartitionSpec(rows)),
            model_input=NamedSharding(seen, PartitionSpec(rows, None, seen_height)),
            decoder_input=NamedSharding(mesh, PartitionSpec(images_axis, None, *sides)),
            **further,
        )
