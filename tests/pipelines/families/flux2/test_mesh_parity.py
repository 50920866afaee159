"""However a recipe is spread over devices, it gives the picture of one device.

Latents in fp32 are at most 1e-4 apart (relative), pixels at most 2 of 255.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax.sharding import AbstractMesh

from pipelines.families.flux2.programs import lay_out, list_programs
from pipelines.families.flux2.sharding import TRANSFORMER_RULES, check_heads, choose_sizes
from pipelines.generate import generate, generate_together
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import describe_parts
from pipelines.runtime.devices.mesh import AXES, build_mesh
from pipelines.runtime.devices.sharding import apply_rules
from pipelines.runtime.programs.compiled import lower
from tests.pipelines.denoising import TO_LATENTS


@pytest.mark.parametrize(
    ("place", "batch_size"),
    [
        (("dev", "tp=4", TO_LATENTS), 1),
        (("klein", "tp=8"), 1),
        (("klein", "dp=2,sp=4"), 1),
        (("dev", "dp=2,sp=2,tp=2"), 1),
        pytest.param(("distilled", "dp=8"), 8, id="a picture a device"),
    ],
    ids=lambda value: " ".join(map(str, value[:2])) if isinstance(value, tuple) else None,
)
def test_a_mesh_gives_the_picture_of_one_device(
    load_flux2: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
    place: tuple[Any, ...],
    batch_size: int,
) -> None:
    model = place[0]
    assert_same_output(load_flux2(*place), load_flux2(model), draw_recipe(model=model, batch_size=batch_size))


@pytest.mark.parametrize(
    ("model", "devices", "expected"),
    [
        ("flux2-dev", 8, {"tp": 8, "sp": 1}),
        ("klein", 8, {"tp": 8, "sp": 1}),
        ("klein", 16, {"tp": 8, "sp": 2}),
        ("flux2-klein-4b", 16, {"tp": 8, "sp": 2}),
        ("flux2-klein-4b", 12, {"tp": 12, "sp": 1}),
        ("flux2-klein-4b", 5, {"tp": 4, "sp": 1}),
        ("flux2-klein-9b", 16, {"tp": 16, "sp": 1}),
        ("flux2-klein-9b", 3, {"tp": 2, "sp": 1}),
    ],
)
def test_without_a_wish_weights_are_split_as_far_as_heads_go(
    flux2_catalog: Catalog, model: str, devices: int, expected: dict[str, int]
) -> None:
    assert choose_sizes(flux2_catalog.get(model), devices) == expected


@pytest.mark.parametrize("model_id", ["flux2-klein-4b", "flux2-klein-9b", "flux2-dev"])
def test_a_model_of_the_catalogue_starts_on_any_number_of_devices(
    caplog: pytest.LogCaptureFixture, model_id: str
) -> None:
    """On all that are a power of two; else on more than half, and it says why not on all."""
    model = load_catalog().get(model_id)
    parts = describe_parts(model, build_mesh("dp=1"))
    shapes = {name: weight.shape for name, weight in parts.weights["transformer"].items()}
    for devices in range(1, 17):
        caplog.clear()
        sizes = choose_sizes(model, devices)
        mesh: Any = AbstractMesh(tuple(sizes.get(axis, 1) for axis in AXES), AXES)
        check_heads(parts.modules["transformer"].module, mesh)
        apply_rules(TRANSFORMER_RULES, shapes, mesh)
        assert parts.latents_CHW(model.default_shape)[1] % sizes["sp"] == 0
        assert devices / 2 < mesh.size <= devices
        assert (mesh.size < devices) == (f"runs on {mesh.size} of {devices} devices" in caplog.text)
        assert mesh.size == devices or devices not in (1, 2, 4, 8, 16)


def test_every_device_holds_its_part_of_each_packed_block(load_flux2: Callable[..., Any]) -> None:
    """Device 1 of 8 has the second head's rows of q, k, v and the second eighth of both gates, in the file's values."""
    whole, split = (load_flux2(mesh=mesh).parts.weights["transformer"] for mesh in ("dp=1", "tp=8"))
    name = "single_transformer_blocks.1.attn.to_qkv_mlp_proj.weight"
    rows = np.asarray(whole[name])
    expected = [rows[start + 16 : start + 32] for start in (0, 128, 256)]
    expected += [rows[start + 48 : start + 96] for start in (384, 768)]
    assert (np.asarray(split[name].addressable_shards[1].data) == np.concatenate(expected)).all()


@pytest.mark.parametrize("place", [("klein", "tp=8"), ("dev", "tp=4", TO_LATENTS)], ids=["klein", "dev"])
def test_a_step_on_tp_gathers_and_sums_each_branch_and_moves_nothing_else(
    load_flux2: Callable[..., Any], place: tuple[Any, ...]
) -> None:
    family = load_flux2(*place)
    layout = lay_out(family.parts, family.model.default_shape, batch_size=1, uses_cfg=True)
    (program,) = (one for one in list_programs(family.parts, layout) if one.key == layout.denoise_key)
    text = lower(program).compile().as_text()
    assert {"all-gather", "reduce-scatter"} <= set(re.findall(r"[a-z]+-[a-z-]+", text))
    assert not {"all-reduce", "all-to-all", "collective-permute"} & set(re.findall(r"[a-z]+-[a-z-]+", text))


def test_recipes_that_run_together_give_what_each_gives_alone(
    load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe], find_difference: Callable[..., int]
) -> None:
    family = load_flux2("klein", "dp=2,sp=4")
    recipes = [draw_recipe(), draw_recipe(prompt="an owl", negative_prompt="rain", seed=9)]
    together = generate_together(family, recipes).pixels
    alone = np.concatenate([generate(family, recipe).pixels for recipe in recipes])
    assert find_difference(together, alone) <= 2
    assert find_difference(together[:1], together[1:]) > 2
