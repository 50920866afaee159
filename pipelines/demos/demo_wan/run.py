"""Runs all training stages in order; finished ones are skipped, interrupted ones resumed."""

import json
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from transformers import AutoTokenizer

from pipelines.demos.demo import train_network
from pipelines.demos.demo_wan import architecture, autoencoder
from pipelines.demos.demo_wan.album import Album, Encode, draw_album
from pipelines.demos.demo_wan.captions import EXAM
from pipelines.demos.demo_wan.denoiser import STAGES, Stage, train_stage
from pipelines.demos.demo_wan.export import export
from pipelines.demos.demo_wan.network import build_network, embed, is_hidden
from pipelines.demos.demo_wan.tokenizer import build_tokenizer, tokenize
from pipelines.demos.learning import Batch, Parameters
from pipelines.demos.motions import draw_clip, render_clip
from pipelines.demos.network import Network
from pipelines.demos.parts import finish
from pipelines.demos.stills.architecture import trace_and_initialise
from pipelines.families.wan.causal import encode_frames
from pipelines.families.wan.preview import pair_frames
from pipelines.runtime.sampling.preview import LatentsToRgb, fit_map
from pipelines.training.stop import Stop

STATISTICS_CLIPS = 64
PREVIEW_CLIPS = 32
READ_WIDTHS = {"mean": architecture.TEXT_WIDTH, "first": architecture.TEXT_WIDTH}
PREVIEW_CELLS = 4  # preview pixels per latent, each way


def train_demo_wan(*, mesh: Mesh, folder: Path, output: Path, stop: Stop) -> None:
    """Trains in `folder` and writes the diffusers folder to `output`; raises Unfinished when asked to stop."""
    tokenizer_folder = folder / "tokenizer"
    if not (tokenizer_folder / "tokenizer.json").exists():
        build_tokenizer(tokenizer_folder)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)

    vae: dict[str, np.ndarray] | None = None
    for stage in autoencoder.STAGES:
        vae = finish(
            folder / f"vae-{stage.name}.safetensors",
            lambda stage=stage, vae=vae: autoencoder.train_stage(
                stage, vae, mesh=mesh, folder=folder / f"vae-{stage.name}", stop=stop
            ),
        )
    assert vae is not None
    encode, statistics = _build_encode(vae, folder / "statistics.json")

    network = build_network(tokenizer)

    def read_captions(captions: list[str]) -> Batch:
        ids, is_text = tokenize(tokenizer, captions)
        return {"input_ids": ids, "is_text": is_text}

    def draw_albums(stage: Stage) -> list[Album]:
        return [draw_album(size, encode, folder=folder / "albums") for size in stage.sizes]

    values = train_network(
        network,
        exam=EXAM,
        read=lambda parameters, batch: _read(network, parameters, batch),
        read_widths=READ_WIDTHS,
        tokenize=read_captions,
        is_hidden=is_hidden,
        stages=STAGES,
        train_stage=lambda stage, denoiser, text: train_stage(
            stage,
            network,
            tokenizer,
            draw_albums(stage),
            denoiser,
            frozen=text,
            mesh=mesh,
            folder=folder / stage.name,
            stop=stop,
        ),
        mesh=mesh,
        folder=folder,
        stop=stop,
    )
    first = STAGES[0]
    export(
        vae=vae,
        statistics=statistics,
        network=values,
        tokenizer_folder=tokenizer_folder,
        latents_to_rgb=_fit_preview(draw_albums(first)[0], first.sizes[0].width, first.sizes[0].height),
        folder=output,
    )


def _build_encode(vae: Mapping[str, np.ndarray], file: Path) -> tuple[Encode, tuple[list[float], list[float]]]:
    """Returns an encoder to normalised latents, and the statistics used to normalise, which are stored in `file`."""
    module, _ = trace_and_initialise(architecture.build_vae, seed=0)
    parameters = {name: jnp.asarray(value) for name, value in vae.items()}
    encode_raw = jax.jit(lambda parameters, pixels: encode_frames(module, parameters, pixels))
    if not file.exists():
        rng = np.random.default_rng(9)
        side = autoencoder.SIDE
        clips = (render_clip(draw_clip(rng), side, side) for _ in range(STATISTICS_CLIPS))
        latents = [np.asarray(encode_raw(parameters, autoencoder.to_pixels(clip[None]))) for clip in clips]
        file.write_text(json.dumps(autoencoder.measure_statistics(np.concatenate(latents))), "utf-8")
    mean, deviation = json.loads(file.read_text("utf-8"))
    shift, scale = (np.asarray(value, np.float32)[:, None, None, None] for value in (mean, deviation))
    return lambda pixels: (encode_raw(parameters, pixels) - shift) / scale, (mean, deviation)


def _read(network: Network, parameters: Parameters, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the transformer's text embeddings for the probes: the first token's, and the mean over the text."""
    embeds = embed(network, parameters, batch["input_ids"], batch["is_text"])
    count = batch["is_text"].sum(axis=1, keepdims=True).astype(embeds.dtype)
    return {"mean": embeds.sum(axis=1) / count, "first": embeds[:, 0]}


def _fit_preview(album: Album, width: int, height: int) -> LatentsToRgb:
    pairs = [
        pair_frames(album.latents[index].astype(np.float32), render_clip(clip, width, height))
        for index, clip in enumerate(album.clips[:PREVIEW_CLIPS])
    ]
    latents, pictures = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return fit_map(latents, pictures, cells=PREVIEW_CELLS)
