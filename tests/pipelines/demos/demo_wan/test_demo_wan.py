"""A tiny Wan as the trainer makes it: genuine files, diffusers' own video, and words that are read whole."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from pipelines.demos.demo_wan import architecture, autoencoder
from pipelines.demos.demo_wan.captions import EXAM, QUESTIONS, label
from pipelines.demos.demo_wan.export import export
from pipelines.demos.demo_wan.network import build_network
from pipelines.demos.demo_wan.tokenizer import build_tokenizer, tokenize
from pipelines.demos.motions import draw_clip, render_clip, vocabulary_text
from pipelines.demos.stills.architecture import trace_and_initialise
from pipelines.models.catalog import Catalog, Shape, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.runtime.sampling.preview import LatentsToRgb

CELLS = 2
MAP = LatentsToRgb(
    matrix=np.full((architecture.LATENT_CHANNELS, 3 * CELLS**2), 0.02, np.float32),
    bias=np.zeros(3 * CELLS**2, np.float32),
    cells=CELLS,
)
MEAN = [0.1 * index for index in range(architecture.LATENT_CHANNELS)]
DEVIATION = [1.0 + 0.1 * index for index in range(architecture.LATENT_CHANNELS)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build_tokenizer(tmp_path_factory.mktemp("words") / "tokenizer", captions=3000)


@pytest.fixture(scope="module")
def folder(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("models")
    tokenizer.save_pretrained(base.parent / "wan-tokenizer")
    _, vae = trace_and_initialise(architecture.build_vae, seed=0)
    export(
        vae=vae,
        statistics=(MEAN, DEVIATION),
        network=build_network(tokenizer).initial,
        tokenizer_folder=base.parent / "wan-tokenizer",
        latents_to_rgb=MAP,
        folder=base / "exported",
    )
    return base / "exported"


def test_captions_are_whole_words(tokenizer: Any) -> None:
    for caption in vocabulary_text(np.random.default_rng(5), 200):
        ids, is_text = tokenize(tokenizer, [caption])
        words = tokenizer.convert_ids_to_tokens(ids[0][is_text[0] == 1])
        assert words[-1] == "</s>", caption  # fits
        assert "<unk>" not in words
        spelled = [word for word in words if len(word) == 1 and word.isalpha() and word != "▁"]
        assert not spelled, (caption, words)


def test_unknown_words_are_spelled(tokenizer: Any) -> None:
    ids, is_text = tokenize(tokenizer, ["an astronaut, 4k!"])
    assert tokenizer.unk_token_id not in ids[0][is_text[0] == 1]


def test_every_answer_is_one_of_its_question() -> None:
    rng = np.random.default_rng(0)
    answers = np.array([label(draw_clip(rng)) for _ in range(300)])
    assert (answers >= 0).all()
    assert (answers < np.array(list(QUESTIONS.values()))).all()
    assert len(EXAM.draw(rng)[1]) == len(QUESTIONS)


def test_statistics_are_of_each_channel() -> None:
    latents = np.random.default_rng(0).normal(size=(6, 2, 5, 16, 16)) * [[[[[2.0]]], [[[1.0]]]]] + 3
    mean, deviation = autoencoder.measure_statistics(latents)
    np.testing.assert_allclose(mean, 3, atol=0.1)
    np.testing.assert_allclose(deviation, [2, 1], atol=0.1)


def test_an_untrained_autoencoder_is_measured_as_bad() -> None:
    module, initial = trace_and_initialise(architecture.build_vae, seed=0)
    clip = render_clip(draw_clip(np.random.default_rng(0)), 32, 32, frames=5)
    parameters = {name: jnp.asarray(value) for name, value in initial.items()}
    assert 0 < autoencoder.measure_psnr(module, parameters, clip[None]) < 15


def test_the_index_names_every_part(folder: Path) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    parts = {name for name, value in index.items() if isinstance(value, list) and value[0]}
    assert parts == {path.name for path in folder.iterdir() if path.is_dir()}


def test_it_fits_in_the_repository(folder: Path) -> None:
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) <= 15_000_000


def test_the_exported_model_gives_diffusers_own_video(
    folder: Path, cache_dir: Path, find_difference: Callable[[np.ndarray, np.ndarray], int]
) -> None:
    from dataclasses import replace

    from diffusers import WanPipeline

    from pipelines.generate import generate
    from pipelines.registry import load
    from pipelines.stages import ignore_progress

    small = Shape(width=32, height=32, frames=5)
    model = replace(load_catalog(folder.parent).get("exported"), shapes=(small,), default_shape=small, flow_shifts={})
    family = load(model, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
    fields = {"prompt": "a red boat", "negative_prompt": "", "seed": 5, "steps": 3, "guidance_scale": 3}
    recipe = resolve(Recipe(model="exported", **fields), Catalog((model,)))
    pipeline: Any = WanPipeline.from_pretrained(folder, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    expected = pipeline(
        prompt="a red boat",
        negative_prompt="",
        width=32,
        height=32,
        num_frames=5,
        num_inference_steps=3,
        guidance_scale=3.0,
        max_sequence_length=architecture.TEXT_LENGTH,
        generator=torch.Generator("cpu").manual_seed(5),
        output_type="np",
    ).frames
    assert find_difference(generate(family, recipe).pixels, (expected * 255).round().astype(np.uint8)) <= 3
    family.unload()
