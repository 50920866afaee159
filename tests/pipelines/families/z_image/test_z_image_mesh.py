"""However a recipe is spread over devices, it gives the picture of one device."""

from collections.abc import Callable
from typing import Any

import jax
import pytest

from pipelines.errors import MeshError
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import describe_parts
from pipelines.runtime.devices.mesh import build_mesh


@pytest.mark.parametrize(
    ("mesh", "fields"),
    [
        pytest.param("dp=2,sp=4", {"negative_prompt": "rain " * 9}, id="rows of different lengths"),
        pytest.param("dp=2,sp=4", {"guidance_scale": 1.0}, id="one row on all devices"),
        pytest.param("dp=2,sp=2,tp=2", {"batch_size": 2}, id="slices of weights"),
    ],
)
def test_a_mesh_gives_the_picture_of_one_device(
    load_z_image: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
    mesh: str,
    fields: dict[str, Any],
) -> None:
    assert_same_output(load_z_image(mesh=mesh), load_z_image(), draw_recipe(**fields))


def test_a_plan_describes_weights_as_they_are_placed(load_z_image: Callable[..., Any]) -> None:
    family = load_z_image(mesh="dp=2,sp=2,tp=2")
    described = describe_parts(family.model, build_mesh("dp=2,sp=2,tp=2"))

    def look(parts: Any) -> Any:
        return jax.tree.map(lambda one: (one.shape, one.dtype, one.sharding), parts.weights)

    assert look(described) == look(family.parts)
    assert described.text_length == family.parts.text_length


def test_a_mesh_that_cuts_through_heads_is_refused(z_image_catalog: Catalog) -> None:
    with pytest.raises(MeshError, match="tp=4 does not divide this model's 6 attention heads"):
        describe_parts(z_image_catalog.get("base"), build_mesh("tp=4", devices=jax.devices()[:4]))
