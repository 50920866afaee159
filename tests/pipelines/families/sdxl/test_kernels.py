"""SDXL as on TPU, with convolutions and attention through their kernels, which are interpreted here."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from pipelines.families.unet import programs, sharding
from pipelines.recipes.recipe import Recipe
from pipelines.registry import load
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.convolution import PictureAxes, list_plain_convolutions
from pipelines.runtime.kernels.taps import FLAT_NDIM
from pipelines.runtime.weights.components import load_component
from pipelines.stages import ignore_progress
from tests.pipelines.denoising import TO_LATENTS, warm

MAX_RELATIVE_ERROR = 0.02  # weights and products are of bf16


def test_convolutions_that_were_turned_while_they_were_read_give_the_same_unet(family: Any) -> None:
    unet, mesh = family.parts.modules["unet"], build_mesh("sp=4", devices=jax.devices()[:4])
    taps = list_plain_convolutions(unet.module)
    weights = load_component(
        family.model.path / "unet",
        unet,
        mesh=mesh,
        rules=sharding.UNET_RULES,
        dtype=jnp.bfloat16,
        variant="",
        on_progress=ignore_progress,
        taps=taps,
    )
    assert {name for name, weight in weights.items() if weight.ndim == FLAT_NDIM} == {*taps}
    latents, text, pooled = (
        np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for shape in ((1, 4, 16, 16), (1, 7, 80), (1, 48))
    )

    def run(weights: Any, dtype: Any, **how: Any) -> np.ndarray:
        latents_BCHW, text_BLC, pooled_BC = (jnp.asarray(one, dtype) for one in (latents, text, pooled))
        conditions = {"text_embeds": pooled_BC, "time_ids": jnp.full((1, 6), 64, dtype)}
        call = jax.jit(
            lambda weights: unet.call(
                weights,
                latents_BCHW,
                jnp.float32(500),
                encoder_hidden_states=text_BLC,
                added_cond_kwargs=conditions,
                return_dict=False,
                **how,
            )[0]
        )
        return np.asarray(call(weights), np.float32)

    expected = run(family.parts.weights["unet"], jnp.float32)
    pictures = PictureAxes(mesh=mesh, spec=P(None, None, None, "sp"), interprets=True)
    found = run(weights, jnp.bfloat16, pictures=pictures)
    assert np.linalg.norm(found - expected) < MAX_RELATIVE_ERROR * np.linalg.norm(expected)


def test_attention_by_the_kernel_is_xlas_own(
    family: Any,
    draw_recipe: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
    interpret_attention: Callable[[Any], AbstractContextManager[set[str]]],
    cache_dir: Path,
) -> None:
    """The whole way to latents, on eight chips' own mesh: keys and values gathered for a device's own rows."""
    recipe = draw_recipe(steps=2)
    with interpret_attention(programs) as kernels:
        split = load(
            family.model, mesh="dp=2,sp=4", cache_dir=cache_dir, on_progress=ignore_progress, stages=TO_LATENTS
        )
        warm(split, recipe)
    assert kernels == {"flash_attention"}
    assert_same_output(split, family, recipe)
