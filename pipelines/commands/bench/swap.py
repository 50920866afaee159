"""`bench swap`: measures the cost of swapping one model for the next, and that the old one leaves nothing in memory."""

import tempfile
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pipelines.commands import asked, options
from pipelines.commands.bench.compare import PROMPT
from pipelines.commands.bench.process import measure
from pipelines.errors import ModelError, RecipeError
from pipelines.messages import english
from pipelines.models.catalog import Catalog, Model, Shape

RUNNER = "pipelines.commands.bench.swap_runner"
STEPS = 2


def run(
    *,
    model: Annotated[list[str] | None, typer.Option(help="Once for each model; without it all demo models.")] = None,
    swaps: Annotated[int, typer.Option(min=2, help="Loads in all.")] = 21,
    mesh: options.MeshText = None,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Loads models in turn in one process, makes two steps in the smallest shape, unloads, and says what is left.

    Example: python -m pipelines bench swap --model demo-sdxl --model my-model --swaps 20
    """
    catalog = options.DataDirectory(data_dir=data_dir).catalog
    models = [_find_model(catalog, name) for name in model or [one.id for one in catalog.models if one.is_demo]]
    if len(models) < 2:
        raise RecipeError({"model": english("a swap takes two models or more: --model ID --model ID")})
    recipes = [
        asked.make_recipe(
            catalog,
            {"model": one.id, "prompt": PROMPT, "seed": 42, "shape": str(_find_smallest(one)), "steps": STEPS},
        )
        for one in models
    ]
    with tempfile.TemporaryDirectory() as cache:
        task = {
            "recipes": [recipe.to_json() for recipe in recipes],
            "swaps": swaps,
            "mesh": mesh,
            "models_dir": str(data_dir / "models"),
            "cache_dir": cache,
        }
        turns = measure(RUNNER, task, what="swaps")
    if as_json:
        options.print_json({"recipes": task["recipes"], "swaps": turns})
        return
    _print(turns, first_round=len(models))


def _find_model(catalog: Catalog, model_id: str) -> Model:
    try:
        return catalog.get(model_id)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error


def _find_smallest(model: Model) -> Shape:
    return min(model.shapes, key=lambda shape: shape.width * shape.height * shape.frames)


def _print(turns: list[dict[str, Any]], *, first_round: int) -> None:
    table = Table(box=None)
    columns = {
        "model": "{model}",
        "load": "{load_s:.2f} s",
        "shard": "{shard_s:.2f} s",
        "compile": "{compile_s:.2f} s",
        "make": "{make_s:.2f} s",
        "unload": "{unload_s:.2f} s",
        "compiled": "{compiles}",
        "left on devices": "{device_mb:.2f} MB",
        "process": "{process_mb:.0f} MB",
    }
    for name in columns:
        table.add_column(name, justify="left" if name == "model" else "right")
    for turn in turns:
        table.add_row(*(pattern.format(**turn) for pattern in columns.values()))
    Console().print(table)
    if len(turns) > first_round:
        grown = turns[-1]["process_mb"] - turns[first_round - 1]["process_mb"]
        later = len(turns) - first_round
        typer.echo(f"\nsince the first round, over {later} swaps: the process grew by {grown:.0f} MB")
