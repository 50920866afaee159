"""All stages in order, each skipped when its result is there and resumed when it was broken off."""

import time
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from safetensors.numpy import load_file, save_file
from transformers import CLIPTokenizer

from pipelines.runtime.preview import LatentsToRgb, fit_map
from pipelines.training.demo_sdxl import architecture
from pipelines.training.demo_sdxl.album import Album, Encode, draw_album
from pipelines.training.demo_sdxl.autoencoder import encode_mean, train_autoencoder
from pipelines.training.demo_sdxl.deepen import deepen, fold_latents
from pipelines.training.demo_sdxl.denoiser import STAGES, train_stage
from pipelines.training.demo_sdxl.export import export
from pipelines.training.demo_sdxl.network import build_network
from pipelines.training.demo_sdxl.text import train_text
from pipelines.training.demo_sdxl.tokenizer import build_tokenizer
from pipelines.training.postcards import render

PREVIEW_PICTURES = 128
PREVIEW_CELLS = 4  # preview pixels a latent, each way


class Unfinished(Exception):  # noqa: N818 - asked for with stop_after_s
    """The time given is over; the checkpoint is written and a later run goes on from it."""


def train_demo_sdxl(*, mesh: Mesh, folder: Path, output: Path, stop_after_s: float | None = None) -> None:
    """Trains in `folder` and writes the diffusers folder to `output`; raises Unfinished when the time is over."""
    deadline = time.monotonic() + stop_after_s if stop_after_s else None
    tokenizer_folder = folder / "tokenizer"
    if not (tokenizer_folder / "vocab.json").exists():
        build_tokenizer(tokenizer_folder)
    tokenizer = CLIPTokenizer.from_pretrained(tokenizer_folder)

    shallow_file = folder / "shallow-vae.safetensors"
    if not shallow_file.exists():
        trained = train_autoencoder(mesh=mesh, folder=folder / "autoencoder", stop_after_s=_left(deadline))
        _check_time(deadline)
        save_file({name: np.asarray(value) for name, value in trained.items()}, shallow_file)
    shallow_values = load_file(shallow_file)
    vae_file = folder / "vae.safetensors"
    if not vae_file.exists():
        values = deepen(shallow_values, mesh=mesh, folder=folder / "deepen", stop_after_s=_left(deadline))
        _check_time(deadline)
        save_file(values, vae_file)
    encode = _build_encode(shallow_values)

    network = build_network(tokenizer)
    text_file = folder / "text.safetensors"
    if not text_file.exists():
        values = train_text(network, tokenizer, mesh=mesh, folder=folder / "text", stop_after_s=_left(deadline))
        _check_time(deadline)
        save_file(values, text_file)
    values = load_file(text_file)
    albums: list[Album] = []
    for stage in STAGES:
        file = folder / f"{stage.name}.safetensors"
        albums = [draw_album(size, encode, folder=folder / "albums") for size in stage.sizes]
        if not file.exists():
            values = train_stage(
                stage,
                network,
                tokenizer,
                albums,
                values,
                mesh=mesh,
                folder=folder / stage.name,
                stop_after_s=_left(deadline),
            )
            _check_time(deadline)
            save_file(values, file)
        values = load_file(file)
    export(
        vae=load_file(vae_file),
        network=values,
        tokenizer_folder=tokenizer_folder,
        latents_to_rgb=_fit_preview(albums[0]),
        folder=output,
    )


def _build_encode(shallow_values: Mapping[str, np.ndarray]) -> Encode:
    """Latents as the teacher gives them, free of what the deep encoder gets wrong."""
    shallow, _ = architecture.trace_and_initialise(architecture.build_shallow_vae, seed=0)
    parameters = {name: jnp.asarray(value) for name, value in shallow_values.items()}
    encode = jax.jit(lambda parameters, pixels: fold_latents(encode_mean(shallow, parameters, pixels)))
    return lambda pixels: encode(parameters, pixels)


def _fit_preview(album: Album) -> LatentsToRgb:
    pictures = [render(scene, album.width, album.height) for scene in album.scenes[:PREVIEW_PICTURES]]
    return fit_map(album.latents[:PREVIEW_PICTURES].astype(np.float32), np.stack(pictures), cells=PREVIEW_CELLS)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(1.0, deadline - time.monotonic())


def _check_time(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() > deadline:
        raise Unfinished
