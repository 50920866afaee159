"""LoRAs of FLUX.2: diffusers' picture of the same weights, packed projections too, every trainer's names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelines.families.flux2.loras import spell
from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from tests.pipelines.denoising import TO_LATENTS
from tests.pipelines.made_loras import RANK, Pairs, draw_pairs, read_deltas, save_tensors, write_kohya, write_peft

MAX_DIFFERENCE = 2
BLOCK = "transformer.transformer_blocks.0"
SINGLE_BLOCK = "transformer.single_transformer_blocks.1.attn"


@pytest.fixture(name="pairs_of", scope="module")
def write_loras(load_flux2: Callable[..., Any]) -> Callable[[str], Pairs]:
    """A model's LoRA over all layers, which lies in the loras folder under the model's name."""

    def pairs_of(model: str) -> Pairs:
        family = load_flux2(model)
        pairs = draw_pairs(family, "transformer", size=0.1)
        write_peft(family.model.loras_dir / f"{model}.safetensors", pairs)
        return pairs

    return pairs_of


@pytest.fixture(name="load")
def load_and_clean(load_flux2: Callable[..., Any], borrow: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *place: borrow(load_flux2(*place))


@pytest.mark.parametrize("model", ["klein", "dev"])
def test_the_picture_is_that_of_merged_weights_in_diffusers(
    load: Callable[..., Any],
    pairs_of: Callable[[str], Pairs],
    draw_recipe: Callable[..., Recipe],
    ask_diffusers: Callable[..., np.ndarray],
    model: str,
) -> None:
    family = load(model)
    pairs = pairs_of(model)
    plain = generate(family, draw_recipe(model=model)).pixels
    recipe = draw_recipe(model=model, loras=[{"ref": model, "scale": -0.7}])
    outcome = generate(family, recipe)
    assert find_difference(outcome.pixels, ask_diffusers(recipe, pairs=pairs, scale=-0.7)) <= MAX_DIFFERENCE
    assert find_difference(outcome.pixels, plain) > 10 * MAX_DIFFERENCE
    assert outcome.compiles == 0
    assert (generate(family, draw_recipe(model=model)).pixels == plain).all()


@pytest.mark.parametrize("place", [("klein", "tp=8"), ("dev", "tp=4", TO_LATENTS)], ids=["klein", "dev"])
def test_packed_projections_are_dealt_out_with_their_updates(
    load: Callable[..., Any],
    pairs_of: Callable[[str], Pairs],
    draw_recipe: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
    place: tuple[Any, ...],
) -> None:
    model = place[0]
    assert pairs_of(model)
    assert_same_output(load(*place), load(model), draw_recipe(model=model, loras=[{"ref": model}]))


def read(family: Any, ref: str) -> dict[str, np.ndarray]:
    """Weight of the transformer -> what the LoRA adds to it."""
    return read_deltas(family, ref, spell, "transformer")["transformer"]


@pytest.mark.parametrize("trainer", ["ai-toolkit", "bare", "kohya"])
def test_the_originals_names_mean_the_same_updates(
    load_flux2: Callable[..., Any], pairs_of: Callable[[str], Pairs], trainer: str
) -> None:
    family = load_flux2("klein")
    pairs = pairs_of("klein")
    down = pairs[f"{BLOCK}.attn.to_q"][1]
    rows = [pairs[f"{BLOCK}.attn.{one}"][0] for one in ("to_q", "to_k", "to_v")]
    original = {
        "double_blocks.0.img_attn.qkv": (np.concatenate(rows), down),
        "double_blocks.0.img_mlp.0": pairs[f"{BLOCK}.ff.linear_in"],
        "single_blocks.1.linear1": pairs[f"{SINGLE_BLOCK}.to_qkv_mlp_proj"],
        "single_blocks.1.linear2": pairs[f"{SINGLE_BLOCK}.to_out"],
    }
    file = family.model.loras_dir / f"{trainer}.safetensors"
    if trainer == "kohya":
        renamed = {f"transformer.{name}": (4 * up, matrix) for name, (up, matrix) in original.items()}
        write_kohya(file, renamed, prefixes={"transformer": "lora_unet_"}, alpha=RANK / 4)
    else:
        prefix = "" if trainer == "bare" else "diffusion_model."
        tensors = {f"{prefix}{name}.lora_B.weight": up for name, (up, _) in original.items()}
        tensors |= {f"{prefix}{name}.lora_A.weight": matrix for name, (_, matrix) in original.items()}
        save_tensors(file, tensors)
    found = read(family, trainer)
    expected = {f"{BLOCK}.attn.{one}": up @ down for one, up in zip(("to_q", "to_k", "to_v"), rows, strict=True)}
    for module in (f"{BLOCK}.ff.linear_in", f"{SINGLE_BLOCK}.to_qkv_mlp_proj", f"{SINGLE_BLOCK}.to_out"):
        expected[module] = np.matmul(*pairs[module])
    assert found.keys() == {f"{name.removeprefix('transformer.')}.weight" for name in expected}
    for module, update in expected.items():
        np.testing.assert_allclose(found[f"{module.removeprefix('transformer.')}.weight"], update, atol=1e-6)


def find_difference(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.abs(one.astype(int) - other.astype(int)).max())
