"""The exported folder is a genuine SDXL checkpoint: plain diffusers loads it and every tensor is the one given."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from pipelines.demos.demo_sdxl.export import export
from pipelines.demos.demo_sdxl.network import build_network
from pipelines.demos.stills.architecture import LATENT_CHANNELS, build_vae, trace_and_initialise
from pipelines.models.catalog import load_catalog
from pipelines.runtime.sampling.preview import LatentsToRgb, read_map

MAP = LatentsToRgb(matrix=np.full((LATENT_CHANNELS, 3), 0.25, np.float32), bias=np.zeros(3, np.float32))


@pytest.fixture(scope="module")
def values(data_dir: Path) -> dict[str, dict[str, np.ndarray]]:
    """Random parameters, as the trainer would hand them over."""
    from transformers import CLIPTokenizer

    network = build_network(CLIPTokenizer.from_pretrained(data_dir / "tokenizer"))
    _, vae = trace_and_initialise(build_vae, seed=0)
    return {"vae": vae, "network": network.initial}


@pytest.fixture(scope="module")
def folder(data_dir: Path, values: dict[str, dict[str, np.ndarray]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "exported"
    export(**values, tokenizer_folder=data_dir / "tokenizer", latents_to_rgb=MAP, folder=folder)
    return folder


@pytest.fixture(scope="module")
def pipeline(folder: Path) -> Any:
    from diffusers import StableDiffusionXLPipeline

    pipeline = StableDiffusionXLPipeline.from_pretrained(folder, dtype=torch.float32, add_watermarker=False)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def test_plain_diffusers_makes_a_picture_with_it(pipeline: Any) -> None:
    picture = pipeline("a red boat", width=64, height=64, num_inference_steps=1, output_type="np").images[0]
    assert picture.shape == (64, 64, 3)
    assert np.isfinite(picture).all()


@pytest.mark.parametrize("part", ["unet", "text_encoder", "text_encoder_2", "vae"])
def test_every_parameter_is_the_one_given(pipeline: Any, values: dict[str, dict[str, np.ndarray]], part: str) -> None:
    together = {f"vae.{name}": value for name, value in values["vae"].items()} | values["network"]
    prefix = f"{part}."
    given = {name.removeprefix(prefix): value for name, value in together.items() if name.startswith(prefix)}
    loaded = dict(getattr(pipeline, part).named_parameters())
    assert loaded.keys() == given.keys()
    for name, value in given.items():
        np.testing.assert_array_equal(loaded[name].detach().numpy(), value.astype(np.float16).astype(np.float32), name)


def test_files_are_fp16_with_the_names_older_readers_expect(folder: Path) -> None:
    for part in ("unet", "vae"):
        stored = load_file(folder / part / "diffusion_pytorch_model.safetensors")
        assert {value.dtype for value in stored.values()} == {np.dtype(np.float16)}
    stored = load_file(folder / "text_encoder" / "model.safetensors")
    assert all(name.startswith("text_model.") for name in stored)


def test_the_index_names_every_part(folder: Path) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    parts = {name for name, value in index.items() if isinstance(value, list)}
    assert parts == {path.name for path in folder.iterdir() if path.is_dir()}


def test_the_preview_map_travels_with_the_model(folder: Path) -> None:
    np.testing.assert_array_equal(read_map(folder).matrix, MAP.matrix)


def test_our_catalogue_finds_it_as_a_256_px_model(folder: Path) -> None:
    assert [str(shape) for shape in load_catalog(folder.parent).get("exported").shapes] == ["256x256"]


def test_it_fits_in_the_repository(folder: Path) -> None:
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) <= 15_000_000


def test_the_exported_model_gives_diffusers_own_picture(
    folder: Path,
    cache_dir: Path,
    ask_diffusers: Callable[..., np.ndarray],
    find_difference: Callable[[np.ndarray, np.ndarray], int],
) -> None:
    """v-prediction and fp16 files, which the random SDXL of the parity tests has not."""
    from dataclasses import replace

    from pipelines.generate import generate
    from pipelines.models.catalog import Catalog, Shape
    from pipelines.recipes.recipe import Recipe
    from pipelines.recipes.resolving import resolve
    from pipelines.registry import load
    from pipelines.stages import ignore_progress

    square = Shape(width=128, height=128)
    model = replace(load_catalog(folder.parent).get("exported"), shapes=(square,), default_shape=square)
    family = load(model, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
    recipe = resolve(
        Recipe(model="exported", prompt="a red boat", seed=5, steps=3, guidance_scale=3), Catalog((model,))
    )
    assert find_difference(generate(family, recipe).pixels, ask_diffusers(folder, recipe)) <= 2
    family.unload()
