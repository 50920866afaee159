"""A tiny FLUX.2 as the trainer makes it: genuine files, diffusers' own pictures, and a loss that is rectified flow."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from pipelines.demos.demo_flux2 import architecture
from pipelines.demos.demo_flux2.denoiser import STAGES, build_loss, fold_patches
from pipelines.demos.demo_flux2.export import export
from pipelines.demos.demo_flux2.network import build_network
from pipelines.demos.demo_flux2.tokenizer import END, build_tokenizer, tokenize
from pipelines.demos.stills.architecture import build_vae, trace_and_initialise
from pipelines.models.catalog import Catalog, Shape, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.runtime.sampling.preview import LatentsToRgb

TOKEN_CHANNELS = architecture.TRANSFORMER_CONFIG["in_channels"]
CELLS = 8
MAP = LatentsToRgb(
    matrix=np.full((TOKEN_CHANNELS, 3 * CELLS**2), 0.02, np.float32),
    bias=np.zeros(3 * CELLS**2, np.float32),
    cells=CELLS,
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build_tokenizer(tmp_path_factory.mktemp("words") / "tokenizer", captions=300)


@pytest.fixture(scope="module")
def network(tokenizer: Any) -> Any:
    return build_network(tokenizer)


@pytest.fixture(scope="module")
def folder(tokenizer: Any, network: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("models")
    tokenizer.save_pretrained(base.parent / "exported-tokenizer")
    _, vae = trace_and_initialise(build_vae, seed=0)
    export(
        vae=vae,
        network=network.initial,
        tokenizer_folder=base.parent / "exported-tokenizer",
        latents_to_rgb=MAP,
        folder=base / "exported",
    )
    return base / "exported"


@pytest.mark.parametrize("text", ["a red sailboat", "zwölf Boxkämpfer", "日本の山", "😀🏔️", "x1 <|&%$ 42!?", ""])
def test_any_text_is_spelled_and_ended(tokenizer: Any, text: str) -> None:
    ids, is_text = tokenize(tokenizer, [text])
    assert ids.shape == is_text.shape == (1, architecture.TEXT_LENGTH)
    words = ids[0][is_text[0] == 1]
    assert words[-1] == tokenizer.convert_tokens_to_ids(END)
    assert tokenizer.pad_token_id not in words


def test_large_letters_and_space_around_make_no_difference(tokenizer: Any) -> None:
    plain, shouted = (tokenize(tokenizer, [text])[0] for text in ("a red sailboat", "  A RED Sailboat "))
    np.testing.assert_array_equal(plain, shouted)


def test_patches_are_folded_as_diffusers_folds_them() -> None:
    from diffusers import Flux2KleinPipeline

    latents = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)
    expected = Flux2KleinPipeline._patchify_latents(torch.from_numpy(latents)).numpy()
    np.testing.assert_array_equal(fold_patches(jnp.asarray(latents)), expected)


def test_the_loss_of_a_picture_known_by_heart_is_small(tokenizer: Any, network: Any) -> None:
    """With an output of zeros the loss is the target's own square: noise of 1 and latents of nothing."""
    loss = build_loss(network, STAGES[0], tokenizer=tokenizer)
    silent = network.initial | {
        "transformer.proj_out.weight": np.zeros_like(network.initial["transformer.proj_out.weight"])
    }
    ids, is_text = tokenize(tokenizer, ["a boat"] * 16)
    batch = {
        "latents": jnp.zeros((16, 16, 8, 8)),
        "is_kept": jnp.ones(16),
        "input_ids": jnp.asarray(ids),
        "is_text": jnp.asarray(is_text),
    }
    value = jax.jit(loss)({name: jnp.asarray(array) for name, array in silent.items()}, batch, jax.random.key(0))
    assert abs(float(value) - 1) < 0.05


def test_the_index_names_every_part(folder: Path) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    parts = {name for name, value in index.items() if isinstance(value, list)}
    assert parts == {path.name for path in folder.iterdir() if path.is_dir()}


def test_it_fits_in_the_repository(folder: Path) -> None:
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) <= 15_000_000


def test_the_exported_model_gives_diffusers_own_picture(
    folder: Path, cache_dir: Path, find_difference: Callable[[np.ndarray, np.ndarray], int]
) -> None:
    from dataclasses import replace

    from diffusers import Flux2KleinPipeline

    from pipelines.generate import generate
    from pipelines.registry import load
    from pipelines.stages import ignore_progress

    square = Shape(width=128, height=128)
    model = replace(load_catalog(folder.parent).get("exported"), shapes=(square,), default_shape=square)
    family = load(model, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
    recipe = resolve(
        Recipe(model="exported", prompt="a red boat", seed=5, steps=3, guidance_scale=3), Catalog((model,))
    )
    pipeline: Any = Flux2KleinPipeline.from_pretrained(folder, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    expected = pipeline(
        prompt="a red boat",
        width=128,
        height=128,
        num_inference_steps=3,
        guidance_scale=3.0,
        max_sequence_length=architecture.TEXT_LENGTH,
        text_encoder_out_layers=architecture.OUT_LAYERS,
        generator=torch.Generator("cpu").manual_seed(5),
        output_type="np",
    ).images
    assert find_difference(generate(family, recipe).pixels, (expected * 255).round().astype(np.uint8)) <= 2
    family.unload()
