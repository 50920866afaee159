"""The shipped demo models: small, readable by plain diffusers, and the same picture here and there.

Not here: how well they follow prompts (pipelines/demos/stills/quality.py scores that).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelines.demos.demo_flux2.architecture import OUT_LAYERS, TEXT_LENGTH
from pipelines.demos.demo_wan.architecture import TEXT_LENGTH as WAN_TEXT_LENGTH
from pipelines.generate import generate
from pipelines.models.catalog import Model, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve

CATALOG = load_catalog()
STEPS = 5  # so few show a difference as well
DEMOS = [model for model in CATALOG.models if model.is_demo]
MAX_BYTES = 15_000_000
MAX_DIFFERENCE = {"sdxl": 2, "flux2": 2, "wan": 3}

# What plain diffusers must be told beside the recipe, because it is in no file of its layout.
CALL_OPTIONS: dict[str, dict[str, Any]] = {
    "sdxl": {},
    "flux2": {"max_sequence_length": TEXT_LENGTH, "text_encoder_out_layers": OUT_LAYERS},
    "wan": {"max_sequence_length": WAN_TEXT_LENGTH},
}

every_demo = pytest.mark.parametrize("model", DEMOS, ids=[model.id for model in DEMOS])
every_example = pytest.mark.parametrize(
    ("model", "text"), [(model, example.prompt) for model in DEMOS for example in model.examples], ids=str
)


@pytest.fixture(scope="module")
def load_tokenizer() -> Callable[[Model], Any]:
    from transformers import AutoTokenizer

    return lambda model: AutoTokenizer.from_pretrained(model.path / "tokenizer")


@every_demo
def test_it_is_small_enough_for_the_repository(model: Model) -> None:
    assert 1_000_000 < sum(file.stat().st_size for file in model.path.rglob("*") if file.is_file()) <= MAX_BYTES


@every_demo
def test_it_comes_with_its_preview_map(model: Model) -> None:
    assert (model.path / "preview.json").exists()


@every_demo
@pytest.mark.parametrize(
    "text", ["a beautiful sunset", "zwölf Boxkämpfer", "日本の山", "😀", "an astronaut, 4k, <|&%$ 42!?"]
)
def test_its_tokenizer_spells_any_text(load_tokenizer: Callable[[Model], Any], model: Model, text: str) -> None:
    tokenizer = load_tokenizer(model)
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.eos_token_id not in ids[:-1]
    knows_all_letters = model.family != "wan" or text.isascii()  # UMT5's kind of vocabulary lists its letters
    assert not knows_all_letters or tokenizer.unk_token_id not in ids[1:-1]


@every_example
def test_the_example_prompts_fit(load_tokenizer: Callable[[Model], Any], model: Model, text: str) -> None:
    tokenizer = load_tokenizer(model)
    assert len(tokenizer(text)["input_ids"]) <= tokenizer.model_max_length


@every_demo
def test_what_it_makes_is_plain_diffusers_own(
    load_family: Callable[..., Any], find_difference: Callable[[np.ndarray, np.ndarray], int], model: Model
) -> None:
    import torch
    from diffusers import DiffusionPipeline

    smallest = min(model.shapes, key=lambda shape: shape.width * shape.height)  # compiled for test_demo_bf16.py too
    recipe = Recipe(model=model.id, prompt=model.examples[0].prompt, shape=str(smallest), steps=STEPS, seed=42)
    recipe = resolve(recipe, CATALOG)
    pixels = generate(load_family(model.id), recipe).pixels
    pipeline = DiffusionPipeline.from_pretrained(model.path, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    shape = recipe.parsed_shape
    made = pipeline(
        prompt=recipe.prompt,
        width=shape.width,
        height=shape.height,
        num_inference_steps=recipe.steps,
        guidance_scale=recipe.guidance_scale,
        generator=torch.Generator("cpu").manual_seed(42),
        output_type="np",
        **({"num_frames": shape.frames} if model.is_video else {}),
        **CALL_OPTIONS[model.family],
    )
    expected = made.frames if model.is_video else made.images
    assert find_difference(pixels, (expected * 255).round().astype(np.uint8)) <= MAX_DIFFERENCE[model.family]
    assert pixels.std() > 20  # a picture, not a grey card
