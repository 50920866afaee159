"""What a model in int8 is compared with: the model in full, whose weights are rounded here by hand."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pipelines.demos.scores import find_psnr
from pipelines.generate import generate
from pipelines.models.model import INT8
from pipelines.recipes.recipe import Recipe
from pipelines.registry import describe_parts, load
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.devices.sharding import SCALE
from pipelines.stages import ignore_progress
from tests.pipelines.denoising import TO_LATENTS, denoise

MAX_DIFFERENCE = 2


def assert_int8_is_full_rounded(
    full: Any, recipe: Recipe, *, mesh: str, cache_dir: Path, components: Sequence[str], least_db: float
) -> None:
    """A model in int8 on a mesh makes what the one in full makes of rounded weights, LoRAs merged before.

    Its picture is also as near as `least_db` to that of the weights as they are.
    """
    model = replace(full.model, weights=INT8)
    names = {
        component: [name for name in weights if name + SCALE in weights]
        for component, weights in describe_parts(model, build_mesh(mesh)).weights.items()
    }
    assert {component for component, own in names.items() if own} == {*components}
    rounded: Any = load(model, mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress, stages=TO_LATENTS)
    assert all(weights.keys() >= {*names[component]} for component, weights in rounded.parts.weights.items())
    try:
        plain = generate(full, recipe).pixels
        with rounded_by_hand(full, names):
            expected = generate(full, recipe).pixels
        pixels = full.decode(recipe, denoise(rounded, recipe))  # the autoencoder is not in int8
    finally:
        rounded.unload()
    assert np.abs(pixels.astype(int) - expected.astype(int)).max() <= MAX_DIFFERENCE
    found_db = find_psnr(pixels, plain)
    assert least_db <= found_db < 70  # neither another picture nor the same one


@contextlib.contextmanager
def rounded_by_hand(family: Any, names: dict[str, list[str]]) -> Iterator[None]:
    """Inside, these weights of a loaded family are whole multiples of 1/127 of each row's largest number."""
    kept = {
        (component, name): family.parts.weights[component][name] for component, own in names.items() for name in own
    }
    family._embeddings.clear()
    try:
        for (component, name), array in kept.items():
            exact = np.asarray(array)
            step = np.abs(exact).max(-1, keepdims=True) / 127
            family.parts.weights[component][name] = jax.device_put(np.rint(exact / step) * step, array.sharding)
        yield
    finally:
        for (component, name), array in kept.items():
            family.parts.weights[component][name] = array
        family._embeddings.clear()
