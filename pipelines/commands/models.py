"""`models`: lists which models can run here, and in which shapes; describes, adds and removes single ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipelines.commands.options import DATA_DIR, AsJson, DataDir, DataDirectory, print_json, use_hub_files
from pipelines.commands.progress import show_download
from pipelines.errors import ModelError
from pipelines.families import find_traits
from pipelines.messages import say
from pipelines.models import description, model_arrivals, model_manager
from pipelines.models.catalog import Model, read_data_dir
from pipelines.models.own_models import UnusableModel
from pipelines.models.single_files import recognise_file
from pipelines.models.weight_files import SUFFIXES
from pipelines.web.web_files import Web


def show(context: typer.Context, *, as_json: AsJson = False, data_dir: DataDir = DATA_DIR) -> None:
    """Lists the models of the catalogue and of the data directory, and why what else lies there is none."""
    if context.invoked_subcommand is None:
        show_models(as_json=as_json, data_dir=data_dir)


Name = Annotated[str, typer.Option(help="What it is called here; else as the file, folder or repository.")]


def add(
    place: Annotated[
        str,
        typer.Argument(
            help="A .safetensors or .gguf file, a folder in diffusers layout, owner/name of the hub, or a URL."
        ),
    ],
    file: Annotated[str, typer.Argument(help="One file of a hub repository, instead of the whole.")] = "",
    *,
    name: Name = "",
    link: Annotated[bool, typer.Option("--link", help="Link a file or folder instead of copying it.")] = False,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit of a hub repository.")] = "main",
    variant: Annotated[str, typer.Option(help="Of a repository's weights, such as fp16.")] = "",
    civitai_token: Annotated[
        str,
        typer.Option(envvar="CIVITAI_TOKEN", show_envvar=True, hidden=True, help="For downloads that want a login."),
    ] = "",
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Adds a model of one's own, once it is clear that it is one."""
    use_hub_files(data_dir)
    path = Path(place).expanduser()
    if file or model_arrivals.is_url(place):
        source = model_arrivals.read_source(place, file=file, revision=revision)
        web = Web(allows_private=True, tokens={model_arrivals.CIVITAI: civitai_token} if civitai_token else {})
        model_id = show_download(
            source.told,
            lambda on_bytes: model_arrivals.bring_model(data_dir, source, name=name, web=web, on_bytes=on_bytes),
        )
    elif path.is_dir():
        model_id = model_manager.add_folder(data_dir, path, name=name, links=link)
    elif path.is_file():
        model_id = model_manager.add_file(data_dir, path, name=name, links=link)
    elif place.lower().endswith(SUFFIXES) or place.startswith((".", "/", "~")):
        raise ModelError(say("{path} is not there.", path=place), advice=say("Check the name of the file or folder."))
    else:
        model_id = model_manager.add_repository(data_dir, place, revision=revision, name=name, variant=variant)
    if not model_id:
        typer.echo("kept: it is one of two experts, whose names differ in high and low noise; add the other one too")
        return
    typer.echo(f"added {model_id}")
    _print_info(read_data_dir(data_dir).get(model_id))


def remove(model: Annotated[str, typer.Argument(help="Its id.")], *, data_dir: DataDir = DATA_DIR) -> None:
    """Removes a model of one's own: its entry, and its file or folder in models/. What was linked stays."""
    for removed in model_manager.remove_model(data_dir, model):
        typer.echo(f"removed {removed}")


def download(model: Annotated[str, typer.Argument(help="Its id.")], *, data_dir: DataDir = DATA_DIR) -> None:
    """Downloads a model's weights before they are needed; a download that broke off goes on where it stopped."""
    found = DataDirectory(data_dir=data_dir).catalog.get(model)
    if found.path is not None:
        raise ModelError(
            say("{model} is a folder on this machine.", model=found.id), advice=say("It needs no download.")
        )
    show_download(found.id, lambda on_bytes: model_manager.download_model(found, on_bytes=on_bytes))
    typer.echo(f"{found.id} is on this machine")


def info(
    model: Annotated[str, typer.Argument(help="Its id, its hub repository, or a file that is not added yet.")],
    *,
    as_json: AsJson = False,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Says what is known of a model without loading it."""
    use_hub_files(data_dir)
    path = Path(model).expanduser()
    if path.is_file():
        single = recognise_file(path)
        told = {
            "family": find_traits(single.family).title,
            "layout": str(single.likeness.layout),
            "holds": ", ".join(sorted(single.likeness.components)),
            "dtype": single.dtype,
            "size_bytes": single.size_bytes,
            "licence": single.licence,
            "notes": " ".join(map(str, single.likeness.notes)),
        }
        print_json(told) if as_json else _print_rows(told)
        return
    found = read_data_dir(data_dir).with_partial().get(model)
    if as_json:
        print_json(_tell(description.describe_model(found)))
    else:
        _print_info(found)


def _tell(described: description.Description) -> dict[str, Any]:
    told = {name: getattr(described, name) for name in described.__dataclass_fields__}
    return told | {
        "lacking": {name: str(what) for name, what in described.lacking.items()},
        "layout": str(described.layout),
    }


def _print_info(model: Model) -> None:
    told = _tell(description.describe_model(model))
    told["lacking"] = ", ".join(f"{name} ({what})" for name, what in told["lacking"].items())
    fits, told["size"] = told.pop("fits"), _word_size(told.pop("size_bytes"))
    told["fits"] = ", ".join(name for name, does in fits.items() if does) or (
        "nothing that was planned" if fits else ""
    )
    told["does not fit"] = ", ".join(name for name, does in fits.items() if not does)
    told["fits in int8"] = ", ".join(name for name, does in told.pop("fits_in_int8").items() if does)
    _print_rows(told)


def _word_size(size_bytes: int | None) -> str:
    return "nothing on this machine yet" if size_bytes is None else f"{size_bytes / 1e9:.2f} GB on disk"


def _print_rows(told: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in told.items():
        if value not in ("", None):
            table.add_row(name.replace("_", " "), escape(str(value)))
    Console().print(table)


def show_models(*, as_json: bool, data_dir: Path) -> None:
    """Prints the models, and what lies in models/ and is none."""
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
        origin = str(place) if place and model_manager.is_own(model) else model.repo or "embedded"
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
