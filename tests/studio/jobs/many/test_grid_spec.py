"""A recipe along axes: which jobs, in which order, at what cost."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import RecipeError
from pipelines.loras.files import LoraFile
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from studio.database import Database
from studio.jobs import workers
from studio.jobs.costs import estimates
from studio.jobs.costs.price import price_line
from studio.jobs.many.grid_spec import Expanded, Grid, expand
from studio.jobs.queue import Wanted
from studio.jobs.workers import LOCAL, WorkerState

Read = Callable[..., Expanded]
FILES = {"pixel": "sdxl", "boats": "sdxl", "waves": "wan"}
PIXEL, BOATS = {"ref": "pixel", "scale": 0.5}, {"ref": "boats", "scale": 1.0}


@pytest.fixture
def read(catalog: Catalog) -> Read:
    """`read(x=("steps", "1-3"), prompt=...)` is the grid, expanded; a third part of an axis is its LoRA."""
    files = tuple(LoraFile(ref, ref, family, Path(ref), 1) for ref, family in FILES.items())
    catalog = replace(catalog, own_loras=files)

    def read(*, x: tuple[str, ...], y: Any = None, z: Any = None, **fields: Any) -> Expanded:
        axes = {
            name: dict(zip(("field", "values", "lora"), axis, strict=False))
            for name, axis in (("x", x), ("y", y), ("z", z))
            if axis
        }
        recipe = {"model": "demo-sdxl", "prompt": "A red boat", "seed": 7, **fields}
        return expand(Grid.model_validate({**axes, "recipe": recipe}), prepare)

    def prepare(recipe: Recipe) -> Wanted:
        resolved = resolve(recipe, catalog)
        return Wanted(recipe=resolved, programs=str(resolved.shape))

    return read


def look(expanded: Expanded, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(cell.recipe, name) for name in names) for cell in expanded.cells]


def test_columns_change_first_and_everything_else_stays(read: Read) -> None:
    expanded = read(x=("steps", "2, 4"), y=("guidance_scale", "3, 5"), z=("seed", "1-2"))
    assert look(expanded, "seed", "guidance_scale", "steps") == [
        (1, 3, 2),
        (1, 3, 4),
        (1, 5, 2),
        (1, 5, 4),
        (2, 3, 2),
        (2, 3, 4),
        (2, 5, 2),
        (2, 5, 4),
    ]
    assert {cell.recipe.prompt for cell in expanded.cells} == {"A red boat"}


def test_one_drawn_seed_is_everybodys(read: Read) -> None:
    seeds = {cell.recipe.seed for cell in read(x=("steps", "1-5"), seed=None).cells}
    assert len(seeds) == 1
    assert None not in seeds


def test_a_cell_has_one_picture(read: Read) -> None:
    assert look(read(x=("steps", "1, 2"), batch_size=4), "batch_size") == [(1,), (1,)]


def test_prompt_axes_replace_what_stands_there_all_at_once(read: Read) -> None:
    expanded = read(
        x=("prompt", "red, boat"), y=("prompt", "boat, house"), prompt="A red boat", negative_prompt="no red"
    )
    assert look(expanded, "prompt", "negative_prompt") == [
        ("A red boat", "no red"),
        ("A boat boat", "no boat"),
        ("A red house", "no red"),
        ("A boat house", "no boat"),
    ]


def test_words_that_do_not_stand_in_the_prompt_are_named(read: Read) -> None:
    with pytest.raises(RecipeError, match="'green' does not stand in the prompt") as error:
        read(x=("steps", "1"), y=("prompt", "green, blue"))
    assert list(error.value.fields) == ["y"]


def test_a_value_that_the_model_does_not_take_is_said_at_its_axis(read: Read) -> None:
    with pytest.raises(RecipeError) as error:
        read(x=("steps", "1"), y=("scheduler", "euler, magic")).cells  # noqa: B018 - reading them checks them
    assert list(error.value.fields) == ["y"]


def test_another_model_takes_its_own_defaults(read: Read) -> None:
    own, other = look(read(x=("model", "demo-sdxl, demo-flux2"), steps=3), "model", "prompt", "seed", "steps")
    assert own == ("demo-sdxl", "A red boat", 7, 3)
    assert other == ("demo-flux2", "A red boat", 7, 8)


def test_the_guidance_of_a_second_expert_follows_unless_it_has_an_axis(read: Read) -> None:
    assert look(read(x=("guidance_scale", "2, 6"), model="wan2.2-a14b"), "guidance_scale_2") == [(2.0,), (6.0,)]


def test_too_many_are_counted_and_not_made(read: Read) -> None:
    expanded = read(x=("seed", "1-50"), y=("steps", "1-50"))
    assert expanded.describe()["count"] == 2500
    with pytest.raises(RecipeError, match=r"2,500 jobs; at most 100"):
        expanded.cells  # noqa: B018


def test_each_model_is_loaded_once_the_one_in_memory_first(read: Read) -> None:
    expanded = read(x=("model", "demo-sdxl, demo-flux2"), y=("seed", "1-3"))
    models = [cell.recipe.model for cell in expanded.cells]
    assert models == ["demo-sdxl", "demo-flux2"] * 3
    assert [models[place] for place in expanded.order(None)] == ["demo-sdxl"] * 3 + ["demo-flux2"] * 3
    order = expanded.order("demo-flux2")
    assert [models[place] for place in order] == ["demo-flux2"] * 3 + ["demo-sdxl"] * 3
    assert [expanded.cells[place].recipe.seed for place in order] == [1, 2, 3, 1, 2, 3]


def list_scales(expanded: Expanded) -> list[list[tuple[str, float]]]:
    return [[(lora.ref, lora.scale) for lora in cell.recipe.loras] for cell in expanded.cells]


def test_an_axis_of_scales_changes_one_lora_and_compiles_nothing(read: Read, database: Database) -> None:
    set_up(database)
    expanded = read(x=("lora_scale", "0, 1", "pixel"), loras=[PIXEL, BOATS], steps=2, shape="256x256")
    assert list_scales(expanded) == [[("boats", 1.0)], [("pixel", 1.0), ("boats", 1.0)]]
    assert expanded.describe()["axes"] == {"x": ["pixel 0", "pixel 1"]}
    assert (expanded.describe()["may_compile"], price(database, expanded)["warmings"]) == ([], [])


def test_the_only_lora_needs_no_name_and_two_may_have_an_axis_each(read: Read) -> None:
    assert list_scales(read(x=("lora_scale", "-1, 2"), loras=[PIXEL])) == [[("pixel", -1.0)], [("pixel", 2.0)]]
    both = read(x=("lora_scale", "1, 2", "pixel"), y=("lora_scale", "3", "boats"), loras=[PIXEL, BOATS])
    assert list_scales(both) == [[("pixel", 1.0), ("boats", 3.0)], [("pixel", 2.0), ("boats", 3.0)]]


def test_a_scaled_lora_stays_with_its_experts(read: Read) -> None:
    loras = [{"ref": "waves", "expert": "high"}, {"ref": "waves", "scale": 2, "expert": "low"}]
    expanded = read(x=("lora_scale", "3"), model="wan2.2-a14b", loras=loras, shape=None)
    ((high, low),) = (cell.recipe.loras for cell in expanded.cells)
    assert (high.expert, low.expert, high.scale) == ("high", "low", 3.0)


def test_one_that_the_form_has_at_zero_can_be_scaled(read: Read) -> None:
    assert list_scales(read(x=("lora_scale", "1"), loras=[PIXEL | {"scale": 0}])) == [[("pixel", 1.0)]]


@pytest.mark.parametrize(
    ("axis", "loras", "why"),
    [
        (("lora_scale", "1"), [], "has no LoRA"),
        (("lora_scale", "1"), [PIXEL, BOATS], "say whose"),
        (("lora_scale", "1", "waves"), [PIXEL], "is not among"),
        (("lora_scale", "1, 21"), [PIXEL], "scale of 21"),
    ],
)
def test_a_scale_of_no_lora_is_said_at_its_axis(read: Read, axis: tuple[str, ...], loras: Any, why: str) -> None:
    with pytest.raises(RecipeError, match=why) as error:
        read(x=("steps", "1"), y=axis, loras=loras).cells  # noqa: B018
    assert list(error.value.fields) == ["y"]


def test_a_model_that_the_lora_does_not_fit_is_said_at_its_axis(read: Read) -> None:
    with pytest.raises(RecipeError, match="pixel is for sdxl models") as error:
        read(x=("model", "demo-sdxl, demo-flux2"), y=("lora_scale", "1"), loras=[PIXEL]).cells  # noqa: B018
    assert list(error.value.fields) == ["y"]


def test_loras_change_as_seldom_as_can_be(read: Read) -> None:
    expanded = read(x=("lora_scale", "0.5, 1"), y=("seed", "1-3"), loras=[PIXEL])
    scales = [loras[0][1] for loras in list_scales(expanded)]
    assert scales == [0.5, 1.0] * 3
    order = expanded.order(None)
    assert [scales[place] for place in order] == [0.5] * 3 + [1.0] * 3
    assert [expanded.cells[place].recipe.seed for place in order] == [1, 2, 3, 1, 2, 3]


def set_up(database: Database) -> None:
    """demo-sdxl is in memory with 256x256 warm; 128x128 ran before, so it is in the cache; two more never ran."""
    with database.write() as tx:
        shapes = {"256x256": "warm", "128x128": "disk", "320x192": "cold"}
        workers.describe(tx, LOCAL, WorkerState.READY, activity="ready", model="demo-sdxl", shapes=shapes)
        for shape, extra in (("256x256", {}), ("128x128", {"compile_s": 9.0, "cache_s": 2.0})):
            measured = {"model": "demo-sdxl", "shape": shape, "batch_size": 1, "step_s": 0.5, "fixed_s": 1.0, **extra}
            estimates.record(tx, estimates.Measured(**measured))
        flux = {"model": "demo-flux2", "shape": "256x256", "batch_size": 1, "step_s": 1.0, "fixed_s": 1.0}
        estimates.record(tx, estimates.Measured(**flux, load_s=30.0, compile_s=60.0, cache_s=4.0))


def price(database: Database, expanded: Expanded) -> dict[str, Any]:
    return price_line(database, [expanded.cells[place] for place in expanded.order("demo-sdxl")]).to_json()


def test_values_that_programs_take_while_they_run_cost_no_compilation(read: Read, database: Database) -> None:
    set_up(database)
    told = price(database, read(x=("steps", "2, 4"), y=("guidance_scale", "3, 5"), shape="256x256"))
    assert told == {"seconds": 2 * (2 * 0.5 + 1) + 2 * (4 * 0.5 + 1), "loads": [], "warmings": []}


def test_sizes_say_what_must_be_compiled_or_read_first(read: Read, database: Database) -> None:
    set_up(database)
    expanded = read(x=("shape", "256x256, 128x128"), y=("seed", "1-2"), steps=2)
    told = price(database, expanded)
    assert told["warmings"] == [{"model": "demo-sdxl", "programs": "128x128", "state": "disk", "seconds": 2.0}]
    assert told["seconds"] == 4 * 2.0 + 2.0
    assert expanded.describe()["may_compile"] == ["x"]
    unknown = price(database, read(x=("shape", "256x256, 320x192"), steps=2))
    assert unknown["warmings"] == [{"model": "demo-sdxl", "programs": "320x192", "state": "cold", "seconds": None}]
    assert unknown["seconds"] is None


def test_models_say_what_must_be_loaded(read: Read, database: Database) -> None:
    set_up(database)
    told = price(database, read(x=("model", "demo-sdxl, demo-flux2"), y=("seed", "1-2"), steps=2, shape="256x256"))
    assert told["loads"] == [{"model": "demo-flux2", "seconds": 30.0}]
    assert told["warmings"] == [{"model": "demo-flux2", "programs": "256x256", "state": "disk", "seconds": 4.0}]
    assert told["seconds"] == 2 * 2.0 + 30.0 + 4.0 + 2 * 9.0
