"""In bf16, as on accelerators, each demo model gives the picture or video that it gives in fp32: at least 35 dB."""

import importlib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.catalog import load_catalog
from pipelines.generate import generate
from pipelines.recipe import Recipe, resolve
from pipelines.runtime.mesh import build_mesh
from pipelines.stages import ignore_progress

MIN_PSNR_DB = 35
STEPS = 5  # an emulated bf16 is slow on a CPU
DEMOS = [model for model in load_catalog().models if model.is_demo]


def measure_psnr_db(one: np.ndarray, other: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.square(one.astype(float) - other.astype(float)).mean()))


@pytest.mark.parametrize("model", DEMOS, ids=[model.id for model in DEMOS])
def test_the_demo_models_outputs_are_those_of_fp32(model: Any, cache_dir: Path) -> None:
    smallest = str(min(model.shapes, key=lambda shape: shape.width * shape.height))
    wanted = Recipe(model=model.id, prompt=model.examples[0], shape=smallest, steps=STEPS, seed=42)
    recipe = resolve(wanted, load_catalog())
    load = importlib.import_module(f"pipelines.{model.family}").load
    made = {}
    for dtype in (jnp.float32, jnp.bfloat16):
        family = load(model, mesh=build_mesh("dp=1"), cache_dir=cache_dir, on_progress=ignore_progress, dtype=dtype)
        assert family.parts.dtype == dtype
        made[dtype] = generate(family, recipe).pixels
        family.unload()
    exact, rounded = made.values()
    assert exact.std() > 20  # a picture, not a grey card
    assert (exact != rounded).any()
    assert measure_psnr_db(exact, rounded) >= MIN_PSNR_DB
