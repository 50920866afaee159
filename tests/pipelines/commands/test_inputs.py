"""What the command line says of pictures before it loads a model."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from pipelines.commands.inputs import check_pictures
from pipelines.models.catalog import load_catalog
from pipelines.recipes.recipe import Recipe, read_recipe
from pipelines.recipes.resolving import resolve

Draw = Callable[..., Recipe]


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    """A recipe with a portrait photo whose background is transparent."""
    Image.new("RGBA", (108, 192)).save(tmp_path / "portrait.png")

    def draw(model: str, **fields: str) -> Recipe:
        images = [str(tmp_path / "portrait.png")]
        return resolve(read_recipe({"model": model, "prompt": "x", "images": images, **fields}), load_catalog())

    return draw


@pytest.mark.parametrize(
    ("fields", "notes"),
    [
        (
            {},
            [
                "portrait.png: 69% of the picture lies outside 1280x704x121; --fit pad or stretch keeps it.",
                "portrait.png: --shape 704x1280x121 cuts off 2%.",
            ],
        ),
        ({"fit": "pad"}, ["portrait.png: black bars fill 69% of 1280x704x121."]),
        ({"fit": "stretch"}, ["portrait.png: the picture is stretched to the proportions of 1280x704x121."]),
    ],
)
def test_what_is_changed_and_cut_off_is_said(draw: Draw, fields: dict[str, str], notes: list[str]) -> None:
    recipe = draw("wan2.2-ti2v-5b", **fields)
    found = check_pictures(recipe, load_catalog().get(recipe.model))
    assert found == ["portrait.png: Its transparent parts lie on white.", *notes]
