"""Trains the picture demos' autoencoder, and provides the encoder for albums and the linear map for previews."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pipelines.demos.parts import finish
from pipelines.demos.postcards import render
from pipelines.demos.stills import architecture
from pipelines.demos.stills.album import Album, Encode
from pipelines.demos.stills.autoencoder import encode_mean, train_autoencoder
from pipelines.demos.stills.deepen import deepen, fold_latents
from pipelines.runtime.sampling.preview import LatentsToRgb, fit_map
from pipelines.training.stop import Stop

PREVIEW_PICTURES = 128


def train_latents(*, mesh: Mesh, folder: Path, stop: Stop) -> tuple[dict[str, np.ndarray], Encode]:
    """Returns the AutoencoderKL's parameters, and an encoder that uses its teacher; resumes from `folder`."""
    shallow = finish(
        folder / "shallow-vae.safetensors",
        lambda: train_autoencoder(mesh=mesh, folder=folder / "autoencoder", stop=stop),
    )
    deep = finish(
        folder / "vae.safetensors",
        lambda: deepen(shallow, mesh=mesh, folder=folder / "deepen", stop=stop),
    )
    return deep, _build_encode(shallow)


def fit_preview(album: Album, *, cells: int, pack: Callable[[np.ndarray], Any] = np.asarray) -> LatentsToRgb:
    """Fits the linear map from latents, packed as the model packs them, to `cells` x `cells` preview pixels each."""
    pictures = [render(scene, album.width, album.height) for scene in album.scenes[:PREVIEW_PICTURES]]
    latents = pack(album.latents[:PREVIEW_PICTURES].astype(np.float32))
    return fit_map(np.asarray(latents), np.stack(pictures), cells=cells)


def _build_encode(shallow_values: Mapping[str, np.ndarray]) -> Encode:
    """Returns an encoder by the teacher, whose latents are free of the deep encoder's errors."""
    shallow, _ = architecture.trace_and_initialise(architecture.build_shallow_vae, seed=0)
    parameters = {name: jnp.asarray(value) for name, value in shallow_values.items()}
    encode = jax.jit(lambda parameters, pixels: fold_latents(encode_mean(shallow, parameters, pixels)))
    return lambda pixels: encode(parameters, pixels)
