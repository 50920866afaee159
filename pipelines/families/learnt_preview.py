"""Previews by a linear map that the program takes as an input (runtime/sampling/preview.py).

A checkpoint may come with a map; otherwise it is fitted to the first decoded output, and no program is recompiled.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.families.base import LoadedModel
from pipelines.families.layout import Layout
from pipelines.families.parts import CheckpointParts
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices import hosts
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.sampling.preview import PreviewMap
from pipelines.runtime.weights.components import abstract_input

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PreviewedParts(CheckpointParts):
    """Parts of a model whose previews come from a linear map."""

    preview: PreviewMap


class PreviewedModel(LoadedModel):
    """A loaded model whose previews are drawn by a linear map."""

    def decode(self, recipe: Recipe, latents: Any) -> np.ndarray:
        pixels = super().decode(recipe, latents)
        if not hosts.agree("the preview is learnt", self._preview.is_learnt):
            values = hosts.fetch(latents)[: len(pixels)]
            try:
                self._preview.learn(*self._pair_preview(values, pixels))
            except Exception:  # a preview is worth no output: the next one is asked
                log.exception("the preview of %s", self.model.id)
        return pixels

    @property
    def _preview(self) -> PreviewMap:
        return self.parts.preview

    def _draw_preview(self, layout: Layout, x0: jax.Array) -> np.ndarray:
        known = self._preview.map
        matrix, bias = (self._put(np.asarray(value, np.float32)) for value in (known.matrix, known.bias))
        return hosts.fetch(self._programs.get(*layout.preview_key)(matrix, bias, x0))

    def _pair_preview(self, latents: np.ndarray, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns latents (N, C, H, W) with their pictures (N, height, width, 3), to fit the map to."""
        return latents, pixels


def describe_preview(parts: PreviewedParts, layout: Layout, function: Callable[..., Any]) -> Program:
    """Describes the program `function(matrix, bias, latents)`."""
    known = parts.preview.map
    return Program(
        key=layout.preview_key,
        function=function,
        arguments=(
            abstract_input(parts.mesh, known.matrix.shape, jnp.float32),
            abstract_input(parts.mesh, known.bias.shape, jnp.float32),
            layout.describe_latents(),
        ),
        out_shardings=NamedSharding(parts.mesh, PartitionSpec()),
    )
