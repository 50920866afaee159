"""`models`: lists which models can run here, and in which shapes."""

from collections.abc import Sequence

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipelines.catalog import read_data_dir
from pipelines.commands.options import DATA_DIR, AsJson, DataDir, print_json
from pipelines.own_models import UnusableModel


def show_models(*, as_json: AsJson = False, data_dir: DataDir = DATA_DIR) -> None:
    """Lists the models of the catalogue and of the data directory, and why what else lies there is none."""
    catalog = read_data_dir(data_dir)
    models = catalog.models
    if as_json:
        print_json(
            [
                {
                    "id": model.id,
                    "title": model.title,
                    "family": model.family,
                    "repo": model.repo,
                    "revision": model.revision,
                    "licence": model.licence,
                    "shapes": [str(shape) for shape in model.shapes],
                    "default_shape": str(model.default_shape),
                    "steps": model.steps,
                    "guidance_scale": model.guidance_scale,
                    "schedulers": list(model.schedulers),
                }
                for model in models
            ]
        )
        for one in catalog.unusable:
            typer.echo(f"{one.name} cannot be used. {one.reason} {one.advice}", err=True)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("model", "title", "from", "shapes", "steps"):
        table.add_column(column)
    for model in models:
        place = model.file or model.path
        origin = str(place) if place and not model.is_demo else model.repo or "embedded"
        table.add_row(model.id, model.title, origin, model.shape_list(), str(model.steps))
    Console().print(table)
    if catalog.unusable:
        _show_unusable(catalog.unusable)
    typer.echo("\nMake a picture: python -m pipelines generate --model demo-sdxl --prompt 'A red sailboat at sunset'")


def _show_unusable(unusable: Sequence[UnusableModel]) -> None:
    table = Table(box=None, pad_edge=False, title="Not usable", title_justify="left")
    for column in ("in models/", "why", "what to do"):
        table.add_column(column)
    for one in unusable:
        table.add_row(escape(one.name), escape(one.reason), escape(one.advice))
    typer.echo("")
    Console().print(table)
