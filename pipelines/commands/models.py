"""`models`: lists which models can run here, and in which shapes."""

import typer
from rich.console import Console
from rich.table import Table

from pipelines.commands.options import DATA_DIR, AsJson, DataDir, DataDirectory, print_json


def show_models(*, as_json: AsJson = False, data_dir: DataDir = DATA_DIR) -> None:
    """Lists the models of the catalogue and of the data directory, and says which folders there cannot run."""
    catalog = DataDirectory(data_dir=data_dir).catalog
    models = catalog.models
    for reason in catalog.refused.values():
        typer.echo(f"lumesh: {reason}", err=True)
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
        return
    table = Table(box=None, pad_edge=False)
    for column in ("model", "title", "from", "shapes", "steps"):
        table.add_column(column)
    for model in models:
        origin = str(model.path) if model.path and not model.is_demo else model.repo or "embedded"
        table.add_row(model.id, model.title, origin, model.shape_list(), str(model.steps))
    Console().print(table)
    typer.echo("\nMake a picture: python -m pipelines generate --model demo-sdxl --prompt 'A red sailboat at sunset'")
