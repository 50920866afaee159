"""Latents to a small picture by one linear map: what the image will be, long before it is decoded.

A VAE's latents are nearly a small colour picture. The map (channels -> red, green, blue) is fitted once per VAE and
stored with the model as `preview.json`; it costs one tiny program and no decoder. Where a latent covers many pixels and
has many channels, the map draws a square of `cells` x `cells` pixels for each.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

FILE_NAME = "preview.json"


@dataclass(frozen=True, kw_only=True)
class LatentsToRgb:
    """`matrix` (channels, cells * cells * 3) and `bias` (cells * cells * 3,), giving values in [-1, 1]."""

    matrix: np.ndarray
    bias: np.ndarray
    cells: int = 1

    def draw(self, latents_BCHW: jax.Array) -> jax.Array:
        """uint8 (B, H * cells, W * cells, 3); for use inside jit."""
        batch, _, height, width = latents_BCHW.shape
        rgb = jnp.einsum("bchw,cr->bhwr", latents_BCHW, jnp.asarray(self.matrix, jnp.float32)) + jnp.asarray(self.bias)
        rgb = rgb.reshape(batch, height, width, self.cells, self.cells, 3).transpose(0, 1, 3, 2, 4, 5)
        rgb = rgb.reshape(batch, height * self.cells, width * self.cells, 3)
        return (jnp.clip(rgb / 2 + 0.5, 0, 1) * 255).round().astype(jnp.uint8)


# SDXL's autoencoder, as T. Vass published it ("Explaining the SDXL latent space", Hugging Face blog, 2024): bytes per
# unit of latent, here over 127.5 and around 0.
SDXL_LATENTS_TO_RGB = LatentsToRgb(
    matrix=np.array([[60, 60, 60], [-60, -5, 10], [25, 15, -5], [-70, -50, -35]], np.float32) / 127.5,
    bias=np.array([150, 140, 130], np.float32) / 127.5 - 1,
)

# The autoencoder of Stable Diffusion 1 and 2, as keturn published it ("Decoding latents to RGB without upscaling",
# Hugging Face forum, 2022): in [-1, 1] for latents that the denoiser works with.
SD_LATENTS_TO_RGB = LatentsToRgb(
    matrix=np.array(
        [[0.298, 0.207, 0.208], [0.187, 0.286, 0.173], [-0.158, 0.189, 0.264], [-0.184, -0.271, -0.473]], np.float32
    ),
    bias=np.zeros(3, np.float32),
)


def read_map(folder: Path) -> LatentsToRgb | None:
    """The map stored with a model; None when there is none."""
    file = folder / FILE_NAME
    if not file.exists():
        return None
    stored = json.loads(file.read_text("utf-8"))
    return LatentsToRgb(
        matrix=np.asarray(stored["matrix"], np.float32),
        bias=np.asarray(stored["bias"], np.float32),
        cells=stored.get("cells", 1),
    )


def fit_map(latents_BCHW: np.ndarray, pixels_BHWC: np.ndarray, *, cells: int = 1) -> LatentsToRgb:
    """Least squares from latents to uint8 pictures of `k` times their size, averaged over squares of k / cells."""
    batch, channels, height, width = latents_BCHW.shape
    scale = pixels_BHWC.shape[1] // (height * cells)
    small = pixels_BHWC.reshape(batch, height, cells, scale, width, cells, scale, 3).mean((3, 6)) / 127.5 - 1
    small = small.transpose(0, 1, 3, 2, 4, 5).reshape(-1, cells * cells * 3)
    inputs = latents_BCHW.transpose(0, 2, 3, 1).reshape(-1, channels).astype(np.float64)
    solution, *_ = np.linalg.lstsq(np.c_[inputs, np.ones(len(inputs))], small, rcond=None)
    return LatentsToRgb(matrix=solution[:-1].astype(np.float32), bias=solution[-1].astype(np.float32), cells=cells)


class PreviewMap:
    """One model's map from latents to RGB: shipped with it, learnt here before, or still to be learnt.

    A checkpoint may bring its map. For others it is learnt from the first output that is decoded, and kept in
    `learnt_folder`; until then `guess` stands in.
    """

    def __init__(self, model_folder: Path | None, learnt_folder: Path, *, guess: LatentsToRgb) -> None:
        self._learnt_folder = learnt_folder
        found = (read_map(model_folder) if model_folder else None) or read_map(learnt_folder)
        self.is_learnt = found is not None
        self.map = found or guess

    def learn(self, latents_BCHW: np.ndarray, pixels_BHWC: np.ndarray) -> None:
        """Fits the map to latents and the uint8 pictures they were decoded to, and keeps it."""
        self.map = fit_map(latents_BCHW, pixels_BHWC, cells=self.map.cells)
        self.is_learnt = True
        self._learnt_folder.mkdir(parents=True, exist_ok=True)
        write_map(self.map, self._learnt_folder)


def write_map(found: LatentsToRgb, folder: Path) -> None:
    values = {"cells": found.cells, "matrix": found.matrix.round(5).tolist(), "bias": found.bias.round(5).tolist()}
    (folder / FILE_NAME).write_text(json.dumps(values, indent=1) + "\n", "utf-8")
