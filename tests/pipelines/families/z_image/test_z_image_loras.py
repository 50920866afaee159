"""LoRAs of Z-Image: diffusers' picture of the same weights, and the original's names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelines.families.z_image.loras import spell
from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from tests.pipelines.made_loras import RANK, Pairs, draw_pairs, read_deltas, save_tensors, write_kohya, write_peft

MAX_DIFFERENCE = 2
BLOCK = "transformer.layers.1"


@pytest.fixture(name="pairs", scope="module")
def write_lora(load_z_image: Callable[..., Any]) -> Pairs:
    """A LoRA over all layers, which lies in the loras folder."""
    family = load_z_image()
    pairs = draw_pairs(family, "transformer", size=0.1)
    write_peft(family.model.loras_dir / "all.safetensors", pairs)
    return pairs


def test_the_picture_is_that_of_merged_weights_in_diffusers(  # noqa: PLR0917 - fixtures
    load_z_image: Callable[..., Any],
    borrow: Callable[[Any], Any],
    pairs: Pairs,
    draw_recipe: Callable[..., Recipe],
    ask_diffusers: Callable[..., np.ndarray],
    find_difference: Callable[[np.ndarray, np.ndarray], int],
) -> None:
    family = borrow(load_z_image())
    plain = generate(family, draw_recipe()).pixels
    recipe = draw_recipe(loras=[{"ref": "all", "scale": -0.7}])
    outcome = generate(family, recipe)
    assert find_difference(outcome.pixels, ask_diffusers(recipe, pairs=pairs, scale=-0.7)) <= MAX_DIFFERENCE
    assert find_difference(outcome.pixels, plain) > 10 * MAX_DIFFERENCE
    assert outcome.compiles == 0


@pytest.mark.parametrize("trainer", ["comfyui", "kohya"])
def test_the_originals_names_mean_the_same_updates(
    load_z_image: Callable[..., Any], pairs: Pairs, trainer: str
) -> None:
    family = load_z_image()
    down = pairs[f"{BLOCK}.attention.to_q"][1]
    rows = [pairs[f"{BLOCK}.attention.{one}"][0] for one in ("to_q", "to_k", "to_v")]
    original = {
        "layers.1.attention.qkv": (np.concatenate(rows), down),
        "layers.1.attention.out": pairs[f"{BLOCK}.attention.to_out.0"],
        "final_layer.linear": pairs["transformer.all_final_layer.2-1.linear"],
    }
    file = family.model.loras_dir / f"{trainer}.safetensors"
    if trainer == "kohya":
        renamed = {f"transformer.{name}": (4 * up, matrix) for name, (up, matrix) in original.items()}
        write_kohya(file, renamed, prefixes={"transformer": "lora_unet_"}, alpha=RANK / 4)
    else:
        tensors = {f"diffusion_model.{name}.lora_B.weight": up for name, (up, _) in original.items()}
        tensors |= {f"diffusion_model.{name}.lora_A.weight": matrix for name, (_, matrix) in original.items()}
        save_tensors(file, tensors)
    found = read_deltas(family, trainer, spell, "transformer")["transformer"]
    expected = {f"layers.1.attention.{one}": up @ down for one, up in zip(("to_q", "to_k", "to_v"), rows, strict=True)}
    for module in ("layers.1.attention.to_out.0", "all_final_layer.2-1.linear"):
        expected[module] = np.matmul(*pairs[f"transformer.{module}"])
    assert found.keys() == {f"{name}.weight" for name in expected}
    for module, update in expected.items():
        np.testing.assert_allclose(found[f"{module}.weight"], update, atol=1e-6)
