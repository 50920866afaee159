"""Runs all training stages in order; finished ones are skipped, interrupted ones resumed."""

from collections.abc import Mapping
from pathlib import Path

import jax
from jax.sharding import Mesh
from transformers import CLIPTokenizer

from pipelines.demos.demo import train_network
from pipelines.demos.demo_sdxl import architecture
from pipelines.demos.demo_sdxl.denoiser import STAGES, build_loss
from pipelines.demos.demo_sdxl.export import export
from pipelines.demos.demo_sdxl.network import build_network, embed, is_hidden
from pipelines.demos.demo_sdxl.tokenizer import build_tokenizer, tokenize
from pipelines.demos.learning import Batch, Parameters
from pipelines.demos.network import Network
from pipelines.demos.stills.album import draw_album
from pipelines.demos.stills.course import train_stage
from pipelines.demos.stills.latents import fit_preview, train_latents
from pipelines.demos.stills.questions import EXAM
from pipelines.training.stop import Stop

PREVIEW_CELLS = 4  # preview pixels per latent, each way
READ_WIDTHS = {"pooled": architecture.TEXT_WIDTH, "tokens": 2 * architecture.TEXT_WIDTH}


def train_demo_sdxl(*, mesh: Mesh, folder: Path, output: Path, stop: Stop) -> None:
    """Trains in `folder` and writes the diffusers folder to `output`; raises Unfinished when asked to stop."""
    tokenizer_folder = folder / "tokenizer"
    if not (tokenizer_folder / "vocab.json").exists():
        build_tokenizer(tokenizer_folder)
    tokenizer = CLIPTokenizer.from_pretrained(tokenizer_folder)
    vae, encode = train_latents(mesh=mesh, folder=folder, stop=stop)

    network = build_network(tokenizer)

    def read_captions(captions: list[str]) -> Batch:
        return {"input_ids": tokenize(tokenizer, captions)}

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
            loss=build_loss(network, stage),
            is_hidden=is_hidden,
            mesh=mesh,
            folder=folder / stage.name,
            stop=stop,
        ),
        mesh=mesh,
        folder=folder,
        stop=stop,
    )
    album = draw_album(STAGES[0].sizes[0], encode, folder=folder / "albums")
    export(
        vae=vae,
        network=values,
        tokenizer_folder=tokenizer_folder,
        latents_to_rgb=fit_preview(album, cells=PREVIEW_CELLS),
        folder=output,
    )


def _read(network: Network, parameters: Parameters, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the UNet's text embeddings for the probes: the pooled one, and the last token of both encoders."""
    prompt_embeds, pooled = embed(network, parameters, batch["input_ids"])
    return {"pooled": pooled, "tokens": prompt_embeds[:, -1]}
