"""A recipe is checked once, at the door, with one message for each field."""

import math
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipelines.errors import RecipeError
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.recipes.recipe import MAX_DRAWN_SEED, MAX_PROMPT_CHARS, MAX_SEED, Lora, Recipe, read_recipe
from pipelines.recipes.resolving import list_idle, resolve


@pytest.fixture(name="catalog", scope="module")
def load() -> Catalog:
    return load_catalog()


def test_model_and_prompt_are_enough(catalog: Catalog) -> None:
    model = catalog.default
    recipe = resolve(read_recipe({"model": model.id, "prompt": "  A boat "}), catalog)
    assert recipe.prompt == "A boat"
    assert (recipe.shape, recipe.steps, recipe.scheduler) == (str(model.default_shape), model.steps, model.scheduler)
    assert recipe.guidance_scale == model.guidance_scale
    assert 0 <= recipe.seed <= MAX_DRAWN_SEED


def test_a_resolved_recipe_stays_as_it_is(catalog: Catalog) -> None:
    recipe = resolve(Recipe(model=catalog.default.id, prompt="A boat"), catalog)
    assert resolve(recipe, catalog) == recipe


def test_json_and_back_is_the_same_recipe(catalog: Catalog) -> None:
    recipe = resolve(Recipe(model=catalog.default.id, prompt="A boat", seed=3), catalog)
    assert recipe.to_json()["schema"] == 1
    assert read_recipe(recipe.to_json()) == recipe


def test_zero_is_a_seed_and_a_guidance_scale(catalog: Catalog) -> None:
    recipe = resolve(Recipe(model=catalog.default.id, prompt="A boat", seed=0, guidance_scale=0.0), catalog)
    assert (recipe.seed, recipe.guidance_scale) == (0, 0.0)


@pytest.mark.parametrize("seed", [None, -1, "-1"])
def test_a_seed_of_minus_one_is_drawn_as_in_other_programs(catalog: Catalog, seed: Any) -> None:
    recipe = read_recipe({"model": catalog.default.id, "prompt": "A boat", "seed": seed})
    assert recipe.seed is None
    assert len({resolve(recipe, catalog).seed for _ in range(3)}) > 1


@pytest.mark.parametrize("seed", [2**40, 2**53 + 1, 2**63 - 1, str(2**53 + 1)])
def test_seeds_have_63_bits_and_may_be_text_for_programs_that_count_in_floats(catalog: Catalog, seed: Any) -> None:
    recipe = read_recipe({"model": catalog.default.id, "prompt": "A boat", "seed": seed})
    assert resolve(recipe, catalog).seed == int(seed)


def test_pictures_are_cropped_unless_the_recipe_says_otherwise(catalog: Catalog) -> None:
    """A recipe of before there was a choice has no word on it."""
    plain = {"model": "demo-sdxl", "prompt": "A boat"}
    found = [resolve(read_recipe({**plain, **more}), catalog).fit for more in ({}, {"images": ["abc"]})]
    assert found == [None, "crop"]
    assert resolve(read_recipe({**plain, "images": ["abc"], "fit": "stretch"}), catalog).fit == "stretch"
    with pytest.raises(RecipeError, match="fit: input should be one of 'crop', 'pad', 'stretch'"):
        read_recipe({**plain, "images": ["abc"], "fit": "squeeze"})


@pytest.mark.parametrize(
    ("fields", "at_fault", "message"),
    [
        ({"prompt": " "}, "prompt", "what the picture should show"),
        ({"prompt": "x" * (MAX_PROMPT_CHARS + 1)}, "prompt", f"at most {MAX_PROMPT_CHARS}"),
        ({"model": "nope"}, "model", "Known models"),
        ({"shape": "17x19"}, "shape", "allowed: "),
        ({"steps": 0}, "steps", "allowed: 1 to"),
        ({"guidance_scale": math.nan}, "guidance_scale", "out of range"),
        ({"seed": MAX_SEED + 1}, "seed", "out of range"),
        ({"batch_size": 10**12}, "batch_size", "out of range"),
        ({"seed": MAX_SEED - 1, "batch_size": 3}, "seed", "leaves no seed for picture 3"),
        ({"scheduler": "magic"}, "scheduler", "allowed: "),
        ({"seed": -2}, "seed", "out of range"),
        ({"schema": 2}, "schema", "reads schema 1"),
        ({"strength": 0.5}, "strength", "needs a picture to start from"),
        ({"fit": "pad"}, "fit", "needs a picture to start from"),
        ({"images": ["abc"], "strength": 0.0}, "strength", "allowed: 0.01 to 1"),
        ({"images": ["abc"], "strength": 1.1}, "strength", "allowed: 0.01 to 1"),
        ({"images": ["abc"], "strength": math.nan}, "strength", "out of range"),
        ({"images": ["abc", "def"]}, "images", "takes at most 1 images"),
        ({"model": "demo-flux2", "strength": 0.5}, "strength", "demo-flux2 has no strength; leave it out"),
        ({"model": "flux2-dev", "strength": 0.5, "images": ["abc"]}, "strength", "flux2-dev has no strength"),
        ({"model": "demo-flux2", "images": ["abc"]}, "images", "takes no images"),
    ],
)
def test_each_wrong_field_is_named_with_what_is_allowed(
    catalog: Catalog, fields: dict[str, Any], at_fault: str, message: str
) -> None:
    with pytest.raises(RecipeError) as refusal:
        resolve(read_recipe({"model": "demo-sdxl", "prompt": "A boat", **fields}), catalog)
    assert list(refusal.value.fields) == [at_fault]
    assert message in refusal.value.fields[at_fault]


def test_all_problems_are_told_at_once(catalog: Catalog) -> None:
    with pytest.raises(RecipeError) as refusal:
        resolve(Recipe(model=catalog.default.id, prompt="", steps=0, batch_size=0), catalog)
    assert set(refusal.value.fields) == {"prompt", "steps", "batch_size"}


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({}, {"model": "is required", "prompt": "is required"}),
        ({"model": "m", "prompt": "p", "colour": 1}, {"colour": "is not a known field"}),
    ],
)
def test_untrusted_json_is_refused_field_by_field(fields: dict[str, Any], problems: dict[str, str]) -> None:
    with pytest.raises(RecipeError) as refusal:
        read_recipe(fields)
    assert refusal.value.fields == problems


@pytest.mark.parametrize(
    ("fields", "strength", "denoising_steps"),
    [
        ({"steps": 20}, None, 20),
        ({"steps": 20, "images": ["abc"]}, 0.6, 12),
        ({"steps": 10, "images": ["abc"], "strength": 0.35}, 0.35, 3),
        ({"steps": 10, "images": ["abc"], "strength": 1}, 1.0, 10),
        ({"steps": 1, "images": ["abc"], "strength": 0.01}, 0.01, 1),
    ],
)
def test_a_picture_to_start_from_leaves_only_the_last_steps(
    catalog: Catalog, fields: dict[str, Any], strength: float | None, denoising_steps: int
) -> None:
    recipe = resolve(read_recipe({"model": "demo-sdxl", "prompt": "A boat", **fields}), catalog)
    assert (recipe.strength, recipe.denoising_steps) == (strength, denoising_steps)


@pytest.mark.parametrize(("shape", "flow_shift"), [("1280x720x81", 5.0), ("832x480x81", 3.0), ("832x480x33", 3.0)])
def test_the_flow_shift_follows_the_shape(catalog: Catalog, shape: str, flow_shift: float) -> None:
    recipe = Recipe(model="wan2.1-14b", prompt="A boat", shape=shape)
    assert resolve(recipe, catalog).flow_shift == flow_shift
    assert resolve(recipe.model_copy(update={"flow_shift": 4.0}), catalog).flow_shift == 4.0


@pytest.mark.parametrize(
    ("fields", "scales"),
    [
        ({}, (4.0, 3.0)),
        ({"guidance_scale": 6.0}, (6.0, 6.0)),
        ({"guidance_scale_2": 2.0}, (4.0, 2.0)),
        ({"guidance_scale": 6.0, "guidance_scale_2": 2.0}, (6.0, 2.0)),
    ],
)
def test_the_second_expert_has_its_own_guidance(
    catalog: Catalog, fields: dict[str, float], scales: tuple[float, float]
) -> None:
    recipe = resolve(read_recipe({"model": "wan2.2-a14b", "prompt": "A boat"} | fields), catalog)
    assert (recipe.guidance_scale, recipe.guidance_scale_2) == scales


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, ""),
        ({"guidance_scale": 1.0}, ""),
        ({"guidance_scale": 1.0, "guidance_scale_2": 1.0}, ""),
        ({"guidance_scale": 3.0, "guidance_scale_2": 2.0, "negative_prompt": "rain"}, ""),
        ({"guidance_scale": 1.0, "guidance_scale_2": 3.0}, "of 1 turns guidance off: guidance_scale_2 has no effect"),
        ({"guidance_scale": 0.5, "negative_prompt": "rain"}, "of 0.5 turns guidance off: the negative prompt has no"),
    ],
)
def test_what_guidance_that_is_off_leaves_without_effect_is_told(
    catalog: Catalog, fields: dict[str, Any], told: str
) -> None:
    asked = read_recipe({"model": "wan2.2-a14b", "prompt": "A boat", **fields})
    notes = list_idle(asked, resolve(asked, catalog), catalog.get("wan2.2-a14b"))
    assert bool(notes) == bool(told)
    assert told in " ".join(notes)


def test_one_expert_has_no_second_guidance(catalog: Catalog) -> None:
    with pytest.raises(RecipeError, match=r"wan2\.1-14b has no guidance_scale_2; leave it out"):
        resolve(Recipe(model="wan2.1-14b", prompt="A boat", guidance_scale_2=3.0), catalog)


def test_which_weights_made_it_is_written_into_files_and_is_no_wish(catalog: Catalog) -> None:
    recipe = Recipe(model=catalog.default.id, prompt="a boat")
    made = resolve(recipe, catalog).made_with("local-0123456789abcdef")
    assert Recipe.model_validate_json(made.model_dump_json(by_alias=True)).revision == "local-0123456789abcdef"
    assert resolve(made, catalog).revision is None
    assert made.made_with("").revision is None


@pytest.fixture(name="with_loras", scope="module")
def keep_loras(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("loras")
    for number in range(9):
        save_file({"unet.mid_block.x.lora_A.weight": np.zeros(1)}, folder / f"ink-{number}.safetensors")
    save_file({"transformer.blocks.0.attn1.to_q.lora_A.weight": np.zeros(1)}, folder / "motion.safetensors")
    return load_catalog(None, folder)


def test_loras_are_those_of_the_folder(with_loras: Catalog, catalog: Catalog) -> None:
    assert [lora.ref for lora in with_loras.find_loras()] == [*(f"ink-{number}" for number in range(9)), "motion"]
    assert catalog.find_loras() == ()
    recipe = Recipe(model="sdxl-base", prompt="A boat", loras=(Lora(ref="ink-0"), Lora(ref="ink-1", scale=-0.5)))
    assert resolve(recipe, with_loras).loras == recipe.loras


def test_a_scale_of_zero_is_as_none(with_loras: Catalog) -> None:
    recipe = Recipe(model="sdxl-base", prompt="A boat", loras=(Lora(ref="ink-0", scale=0.0),))
    assert resolve(recipe, with_loras).loras == ()


@pytest.mark.parametrize(
    ("loras", "message"),
    [
        ([("pencil", 1.0)], "there is no LoRA 'pencil' here. Put the file into the loras folder of the data directory"),
        ([("pencil", 1.0)], "Those that fit sdxl-base: ink-0, ink-1"),
        ([("../ink-0", 1.0)], "there is no LoRA"),
        ([("motion", 1.0)], "motion is for wan models, not for sdxl-base. Those that fit: ink-0"),
        ([("ink-0", math.nan)], "ink-0 has a scale of nan; allowed: -20.0 to 20.0"),
        ([("ink-0", math.inf)], "allowed: -20.0 to 20.0"),
        ([("ink-0", -20.1)], "allowed: -20.0 to 20.0"),
        ([("ink-0", 1.0), ("ink-0", 0.5)], "ink-0 is given twice"),
        ([(f"ink-{number}", 1.0) for number in range(9)], "9 given; at most 8"),
    ],
)
def test_loras_that_cannot_be_used_are_refused(
    with_loras: Catalog, loras: list[tuple[str, float]], message: str
) -> None:
    recipe = Recipe(model="sdxl-base", prompt="A boat", loras=tuple(Lora(ref=ref, scale=scale) for ref, scale in loras))
    with pytest.raises(RecipeError) as refusal:
        resolve(recipe, with_loras)
    assert message in refusal.value.fields["loras"]


def test_without_a_loras_folder_there_are_none(catalog: Catalog) -> None:
    with pytest.raises(RecipeError, match="Those that fit sdxl-base: none yet"):
        resolve(Recipe(model="sdxl-base", prompt="A boat", loras=(Lora(ref="ink-0"),)), catalog)
