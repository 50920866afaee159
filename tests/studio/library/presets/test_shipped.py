"""The shipped gallery: enough of it, all of it runnable, and no picture that a model of ours did not make."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.models.catalog import Catalog, load_catalog
from studio.library.examples import EXAMPLES_DIR, has_picture
from studio.library.presets.__main__ import SCHEMA_FILE, format_schema, list_drawings, main
from studio.library.presets.gallery import require_runnable
from studio.library.presets.preset import Preset
from studio.library.presets.shipped import GALLERY_DIR, read_shipped, thumb_of
from studio.library.presets.styles import read_styles

SHIPPED = read_shipped()


def test_there_are_enough_for_the_demo_and_for_the_full_models() -> None:
    demo = {model.id for model in load_catalog().models if model.is_demo}
    of_demo = [preset for preset in SHIPPED.values() if preset.recipe.model in demo]
    assert len(of_demo) >= 10
    assert len(SHIPPED) - len(of_demo) >= 14
    assert len({preset.title for preset in SHIPPED.values()}) == len(SHIPPED)


@pytest.mark.parametrize("preset", SHIPPED.values(), ids=SHIPPED)
def test_each_runs_here_and_says_who_made_it(preset: Preset) -> None:
    catalog: Catalog = load_catalog()
    assert preset.recipe.model in {model.id for model in catalog.models}
    require_runnable(preset, catalog)
    assert preset.author
    assert preset.licence
    assert preset.description
    assert preset.tags


def test_only_what_was_drawn_here_has_a_picture() -> None:
    pictured = {preset_id for preset_id in SHIPPED if thumb_of(preset_id).is_file()}
    assert pictured == SHIPPED.keys() & list_drawings().keys()
    assert all(SHIPPED[preset_id].recipe.seed is not None for preset_id in pictured)
    assert sum(thumb_of(preset_id).stat().st_size for preset_id in pictured) < 1_500_000


def test_every_example_of_a_demo_has_its_picture_and_there_is_no_other() -> None:
    drawings = {name: drawing for name, drawing in list_drawings().items() if name not in SHIPPED}
    demos = [model for model in load_catalog().models if model.is_demo]
    assert len(drawings) == sum(len(model.examples) for model in demos) <= 20
    files = {drawing.file for drawing in drawings.values()}
    assert files == {*EXAMPLES_DIR.rglob("*.webp")}
    assert max(file.stat().st_size for file in files) <= 6_000


def test_an_example_of_a_model_with_other_defaults_has_no_picture() -> None:
    model = load_catalog().get("demo-sdxl")
    example = model.examples[0]
    assert has_picture(model, example)
    assert not has_picture(replace(model, steps=model.steps + 1), example)
    assert not has_picture(replace(model, id="mine"), example)
    assert not has_picture(model, replace(example, seed=None))


@pytest.mark.process
@pytest.mark.usefixtures("fork_commands")
def test_a_thumbnail_is_what_the_model_makes(tmp_path: Path) -> None:
    """After new weights: `python -m studio.library.presets redraw`."""
    preset_id = next(name for name, drawing in list_drawings().items() if drawing.settings["model"] == "demo-flux2")
    assert main(["redraw", preset_id, "--to", str(tmp_path)]) == 0
    drawn, shipped = (
        np.asarray(Image.open(folder / f"{preset_id}.webp").convert("RGB"), dtype=float)
        for folder in (tmp_path, GALLERY_DIR)
    )
    assert drawn.shape == shipped.shape
    assert np.abs(drawn - shipped).mean() < 3


def test_the_published_schema_is_the_format() -> None:
    assert SCHEMA_FILE.read_text("utf-8") == format_schema()
    schema = json.loads(format_schema())
    assert schema["properties"]["title"]["maxLength"] == 80
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"title", "recipe"}


def test_styles_have_a_place_for_the_prompt_and_some_fit_the_demo() -> None:
    styles = read_styles()
    assert len({style.id for style in styles}) == len(styles) > 8
    assert any(style.fits_demo for style in styles)


def test_every_lora_of_a_shipped_preset_can_be_downloaded() -> None:
    named = {preset_id: preset for preset_id, preset in SHIPPED.items() if preset.recipe.loras}
    assert len(named) >= 6
    for preset_id, preset in named.items():
        assert {lora.ref for lora in preset.recipe.loras} == {source.ref for source in preset.loras}, preset_id
