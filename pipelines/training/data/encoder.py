"""A family's own programs for prompts and pictures, opened to prepare what a training learns from.

They are the programs that a picture is made with, so a training sees the very embeddings and latents of inference.
Not here: which rows there are, and keeping them (rows.py).
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from pipelines import registry
from pipelines.families.trainable import Learner, Rows
from pipelines.models.catalog import Model, Shape
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.programs.compiled import Programs
from pipelines.runtime.weights.components import choose_dtype, load_component
from pipelines.runtime.weights.single_file import StoredComponent
from pipelines.stages import OnProgress


class TextReader:
    """The text encoders of one model, on the devices until `close`."""

    def __init__(self, model: Model, learner: Learner, *, mesh: Mesh, cache_dir: Path, on_progress: OnProgress) -> None:
        architecture: Any = registry.find_architecture(model)
        self._loaded: Any = architecture.load(
            model, mesh=mesh, cache_dir=cache_dir, on_progress=on_progress, stages=("encode",)
        )
        self._loaded.warm_encoder(on_progress)
        self._learner = learner

    def read(self, caption: str) -> Rows:
        """Returns a caption's rows, without a batch axis; those of an empty one are what guidance compares with."""
        recipe = Recipe(model=self._loaded.model.id, prompt=self._learner.write_prompt(caption), negative_prompt="")
        return self._learner.take_text(self._loaded.parts, self._loaded.encode(recipe), is_empty=not caption)

    def close(self) -> None:
        """Frees the devices."""
        self._loaded.unload()


class PictureReader:
    """The autoencoder of one model, on the devices until `close`."""

    def __init__(
        self,
        model: Model,
        learner: Learner,
        folder: Path,
        *,
        mesh: Mesh,
        on_progress: OnProgress,
        stored: StoredComponent | None = None,
    ) -> None:
        self._learner = learner
        self._mesh = mesh
        self._autoencoder = learner.build_autoencoder(folder)
        self._weights = load_component(
            folder / "vae",
            self._autoencoder,
            mesh=mesh,
            rules=((r"", PartitionSpec()),),
            dtype=learner.choose_autoencoder_dtype(self._autoencoder, choose_dtype(mesh)),
            variant=model.variant,
            on_progress=on_progress,
            stored=stored,
        )
        self._programs = Programs()

    def read(self, pixels_FHWC: np.ndarray) -> Rows:
        """Returns the latents of uint8 pixels (frames, height, width, 3), without a batch axis."""
        frames, height, width, _ = pixels_FHWC.shape
        shape = Shape(width=width, height=height, frames=frames)
        key = ("latents", shape)
        if not self._programs.has(*key):
            program = self._learner.build_latents_program(self._autoencoder, self._weights, self._mesh, shape)
            self._programs.compile_all([program])
        compiled = self._programs.get(*key)
        pixels = (pixels_FHWC.astype(np.float32) / 127.5 - 1.0).transpose(3, 0, 1, 2)
        pixels = pixels.reshape(compiled.in_avals[0][1].shape)
        return {name: value[0] for name, value in jax.device_get(compiled(self._weights, pixels)).items()}

    def close(self) -> None:
        """Frees the devices."""
        self._programs.clear()
        for value in self._weights.values():
            value.delete()
