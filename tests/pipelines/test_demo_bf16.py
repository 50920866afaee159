"""In bf16, as on accelerators, each demo model gives the picture or video that it gives in fp32: at least 35 dB."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.demos.scores import find_psnr
from pipelines.families.flux2 import decode
from pipelines.generate import generate, uses_cfg
from pipelines.models.catalog import Model, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.registry import find_architecture
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.stages import STAGES, ignore_progress

MIN_PSNR_DB = 35
VIDEO_STEPS = 5  # of 20: an emulated bf16 is slow on a CPU
DEMOS = [model for model in load_catalog().models if model.is_demo]


def find_smallest(model: Model) -> str:
    return str(min(model.shapes, key=lambda shape: shape.width * shape.height))


def draw_recipe(model: Model, prompt: str, **fields: Any) -> Recipe:
    return resolve(Recipe(model=model.id, prompt=prompt, seed=42, **fields), load_catalog())


@pytest.fixture
def load_demo(cache_dir: Path, load_family: Callable[..., Any]) -> Callable[..., Any]:
    """A demo model on one device; in fp32 that of test_demo_model.py, which stays loaded."""

    def load(model: Model, dtype: Any, *, stages: tuple[str, ...] = STAGES) -> Any:
        if dtype == jnp.float32:
            family = load_family(model.id)
            assert family.parts.dtype == dtype
            return family
        mesh = build_mesh("dp=1")
        architecture: Any = find_architecture(model)
        loaded = architecture.load(
            model, mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress, dtype=dtype, stages=stages
        )
        assert loaded.parts.dtype == dtype
        return loaded

    return load


@pytest.mark.parametrize("model", DEMOS, ids=[model.id for model in DEMOS])
def test_the_demo_models_outputs_are_those_of_fp32(load_demo: Callable[..., Any], model: Model) -> None:
    """A picture of all steps, a short way to a video, both as small as there are."""
    steps = VIDEO_STEPS if model.is_video else model.steps
    recipe = draw_recipe(model, model.examples[0].prompt, shape=find_smallest(model), steps=steps)
    exact = generate(load_demo(model, jnp.float32), recipe).pixels
    family = load_demo(model, jnp.bfloat16)
    rounded = generate(family, recipe).pixels
    family.unload()
    assert exact.std() > 20  # a picture, not a grey card
    assert (exact != rounded).any()
    assert find_psnr(exact, rounded) >= MIN_PSNR_DB


def test_a_decode_by_the_kernels_is_that_of_fp32(
    load_demo: Callable[..., Any], interpret_pictures: Callable[[Any], AbstractContextManager[set[str]]]
) -> None:
    """In bf16 as on TPU, through the kernels for its convolutions, which are interpreted here."""
    model = load_catalog().get("demo-flux2")
    recipe = draw_recipe(model, model.examples[0].prompt, shape=find_smallest(model), steps=4)
    shape, is_guided = recipe.parsed_shape, uses_cfg(recipe)
    exact = load_demo(model, jnp.float32)
    exact.warm(shape, batch_size=1, uses_cfg=is_guided, on_progress=ignore_progress)
    latents = np.asarray(exact.denoise(recipe, exact.encode(recipe), on_progress=ignore_progress))
    expected = exact.decode(recipe, latents)
    assert expected.std() > 20
    with interpret_pictures(decode) as kernels:
        rounded = load_demo(model, jnp.bfloat16, stages=("decode",))
        rounded.warm(shape, batch_size=1, uses_cfg=is_guided, on_progress=ignore_progress)
    assert kernels == {"convolve_taps", "double_pixels"}
    assert find_psnr(expected, rounded.decode(recipe, latents)) >= MIN_PSNR_DB
