"""Reference pictures: an edit sees them as extra tokens beside those of the new picture.

Each picture goes through the autoencoder's encoder and gets a time position of its own (10, 20, ...), so that a prompt
can tell them apart. All pictures of a recipe are fitted to one size out of the model's own shapes
(pipelines/pictures/references.py), so that a shape needs at most one program for each size and number of pictures.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from pipelines.families.flux2.decode import read_statistics
from pipelines.families.flux2.parts import PATCH
from pipelines.models.catalog import Model
from pipelines.pictures.fitting import Fit, fit_picture
from pipelines.pictures.reading import open_picture
from pipelines.pictures.references import References, choose_references
from pipelines.runtime.bridge.autoencoder import prepare_pictures
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels.convolution import PictureAxes

TIME_STEP = 10  # between references along the time axis of the position ids


def read_references(
    files: Sequence[str], model: Model, fit: Fit | None = None
) -> tuple[np.ndarray | None, References | None]:
    """Returns pixels (N, 3, height, width) fp32 in [-1, 1] with their `References`, or (None, None) without files.

    Raises RecipeError for a file that is not a picture.
    """
    pictures = [open_picture(Path(file)) for file in files]
    references = choose_references(model, [picture.size for picture in pictures])
    if references is None:
        return None, None
    return np.concatenate([fit_picture(picture, references.size, fit) for picture in pictures]), references


def build_reference_program(vae: TracedModule, *, dtype: Any, sharding: NamedSharding) -> Any:
    """Builds reference(weights, pictures (N, 3, height, width)) -> normalised, patchified latents.

    The latents are (N, 4 * C, H, W) fp32. `sharding` splits the pictures over as many devices as divide them.
    """

    def reference(weights: Mapping[str, jax.Array], pixels_NCHW: jax.Array) -> jax.Array:
        mean, deviation = read_statistics(weights, epsilon=vae.module.config.batch_norm_eps)
        pixels_NCHW = jax.lax.with_sharding_constraint(pixels_NCHW.astype(dtype), sharding)
        call, prepared = prepare_pictures(vae, weights, PictureAxes.of_pictures(sharding))
        latents = call(prepared, pixels_NCHW, method=_encode).astype(jnp.float32)
        return (patchify(latents) - mean) / deviation

    return reference


def patchify(latents_BCHW: jax.Array) -> jax.Array:
    """Turns 2 x 2 patches into channels: (B, C, 2 * H, 2 * W) -> (B, 4 * C, H, W)."""
    batch, channels, height, width = latents_BCHW.shape
    patches = latents_BCHW.reshape(batch, channels, height // PATCH, PATCH, width // PATCH, PATCH)
    return patches.transpose(0, 1, 3, 5, 2, 4).reshape(batch, channels * PATCH**2, height // PATCH, width // PATCH)


def _encode(vae: Any, pixels: Any) -> Any:
    return vae.encode(pixels, return_dict=False)[0].mode()
