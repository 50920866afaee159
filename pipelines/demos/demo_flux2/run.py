"""Runs all training stages in order; finished ones are skipped, interrupted ones resumed."""

from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from transformers import AutoTokenizer

from pipelines.demos.demo import train_network
from pipelines.demos.demo_flux2.architecture import OUT_LAYERS, TEXT_WIDTH
from pipelines.demos.demo_flux2.denoiser import STAGES, build_loss, fold_patches
from pipelines.demos.demo_flux2.export import export
from pipelines.demos.demo_flux2.network import build_network, embed, is_hidden
from pipelines.demos.demo_flux2.tokenizer import build_tokenizer, tokenize
from pipelines.demos.learning import Batch, Parameters
from pipelines.demos.network import Network
from pipelines.demos.stills.album import draw_album
from pipelines.demos.stills.course import train_stage
from pipelines.demos.stills.latents import fit_preview, train_latents
from pipelines.demos.stills.questions import EXAM
from pipelines.training.stop import Stop

PREVIEW_CELLS = 8  # preview pixels per token, each way
READ_WIDTHS = {"end": len(OUT_LAYERS) * TEXT_WIDTH, "mean": len(OUT_LAYERS) * TEXT_WIDTH}


def train_demo_flux2(*, mesh: Mesh, folder: Path, output: Path, stop: Stop) -> None:
    """Trains in `folder` and writes the diffusers folder to `output`; raises Unfinished when asked to stop."""
    tokenizer_folder = folder / "tokenizer"
    if not (tokenizer_folder / "vocab.json").exists():
        build_tokenizer(tokenizer_folder)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    vae, encode = train_latents(mesh=mesh, folder=folder, stop=stop)
    network = build_network(tokenizer)

    def read_captions(captions: list[str]) -> Batch:
        ids, is_text = tokenize(tokenizer, captions)
        return {"input_ids": ids, "is_text": is_text}

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
            denoiser,
            frozen=text,
            encode=encode,
            albums=folder / "albums",
            tokenize=read_captions,
            loss=build_loss(network, stage, tokenizer=tokenizer),
            is_hidden=is_hidden,
            mesh=mesh,
            folder=folder / stage.name,
            stop=stop,
        ),
        mesh=mesh,
        folder=folder,
        stop=stop,
    )
    album = draw_album(STAGES[-1].sizes[0], encode, folder=folder / "albums")
    export(
        vae=vae,
        network=values,
        tokenizer_folder=tokenizer_folder,
        latents_to_rgb=fit_preview(album, cells=PREVIEW_CELLS, pack=lambda latents: fold_patches(jnp.asarray(latents))),
        folder=output,
    )


def _read(network: Network, parameters: Parameters, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the transformer's text embeddings for the probes: the last token's, and the mean over the text."""
    prompt_embeds = embed(network, parameters, jnp.stack([batch["input_ids"], batch["is_text"]]))
    is_text = batch["is_text"][:, :, None].astype(prompt_embeds.dtype)
    last = batch["is_text"].sum(axis=1) - 1
    return {
        "end": jnp.take_along_axis(prompt_embeds, last[:, None, None], axis=1)[:, 0],
        "mean": (prompt_embeds * is_text).sum(axis=1) / is_text.sum(axis=1),
    }
